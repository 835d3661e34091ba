"""Products of two values that are both bounded: gates, attention, recurrent cells.

With |a| <= A and |b| <= B entry by entry, ||d(ab)|| <= B ||da|| + A ||db||; for matrices, with the norms of Frobenius,
||d(ab)|| <= ||b|| ||da|| + ||a|| ||db||. Where one of the two has no limit, the product has no constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import Range, exactly
from onelip.certification.operations.refused import refusal
from onelip.certification.operations.registered import Call, entries, inside_operation, operation, root, second_opinion
from onelip.certification.ranges import range_of, widened
from onelip.certification.traced import Traced, all_traced, mapped
from onelip.proofs.layer_bound import Arithmetic, RoundingError
from onelip.proofs.proven import SAFETY, gamma

_LARGEST = 2.0**100
"""Of an entry: a float32 program has no radius beyond it."""


@second_opinion
def bounded_product(
    call: Call, name: str, arguments: Sequence[Any], keywords: dict[str, Any], found: Any, refused: Exception | None
) -> Any:
    """A product of two bounded values, which the rules refuse."""
    if refused is None or len(arguments) != 2 or keywords or not all(isinstance(part, Traced) for part in arguments):
        return found
    first, second = arguments
    if any(x.before is not None for x in (first, second)):
        return found
    if name == "div":
        (low, high), bounded = range_of(second.node), all(map(math.isfinite, range_of(first.node)))
        away = low > 1e-18 or high < -1e-18
        return torch.mul(first, torch.reciprocal(second)) if away and bounded else found
    limits = [widened(range_of(x.node)) for x in (first, second)]
    sizes = [max(abs(low), abs(high)) for (low, high), _ in limits]
    if name not in ("mul", "matmul") or not max(sizes) <= _LARGEST:
        return found
    value = first.value * second.value if name == "mul" else first.value @ second.value
    if value.dim() != first.dim() or first.dim() != second.dim() or len(value) != call.tracer.batch:
        return found
    if name == "mul":
        terms, factors = 1, [sizes[1], sizes[0]]
        shared = [root(entries(value) // max(1, entries(x))) for x in (first, second)]
    elif first.dim() < 3:
        return found
    else:
        terms = first.shape[-1]
        factors = [
            sizes[1] * math.sqrt(terms * second.shape[-1]) * SAFETY,
            sizes[0] * math.sqrt(terms * first.shape[-2]) * SAFETY,
        ]
        places = math.prod(value.shape[1:-2])
        shared = [root(places // max(1, math.prod(x.shape[1:-2]))) for x in (first, second)]

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        lost = 8 * terms * arithmetic.tiny * (1 + sum(sizes)) * math.sqrt(entries(value))
        return RoundingError(gamma(terms + 2, arithmetic.unit_roundoff) * SAFETY, lost * SAFETY)

    coefficients = [factor * copies * SAFETY for factor, copies in zip(factors, shared, strict=True)]
    pairs = list(zip((first, second), coefficients, strict=True))
    products = [terms * a * b for a in limits[0][0] for b in limits[1][0]]
    ends = min(products), max(products)
    result = call.add(pairs, value, rounding, weighted=(coefficients[0], 0.0), limits=lambda _: ends)
    result.node.margin = min(wider for _, wider in limits) / 2
    return result


@operation("scaled_dot_product_attention")
def attention(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q k^T / sqrt(d)) v of bounded values."""
    if not (isinstance(query, Traced) or isinstance(key, Traced)):
        raise call.refused("it rounds products of constants on the way; compute the weights first")
    bounded = all(math.isfinite(end) for x in (query, key, value) if isinstance(x, Traced) for end in range_of(x.node))
    if not bounded or attn_mask is not None or is_causal or dropout_p or enable_gqa:
        raise call.refused(refusal("scaled_dot_product_attention", ""))
    scores = torch.matmul(query, key.transpose(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return torch.matmul(F.softmax(scores, -1), value)


@operation("glu")
def glu(call: Call, input: Any, dim: int = -1) -> Any:
    """One half times the sigmoid of the other."""
    if not all(map(math.isfinite, range_of(call.traced(input).node))):
        raise call.refused(refusal("glu", ""))
    first, second = input.chunk(2, dim)
    return first * torch.sigmoid(second)


def _register_added(name: str, joined: Callable[[Any, Any], Any]) -> None:
    @operation(name)
    def added(call: Call, input: Any, tensor1: Any, tensor2: Any, value: float = 1) -> Any:
        if not (isinstance(tensor1, Traced) or isinstance(tensor2, Traced)):
            raise call.refused("it rounds a product of constants on the way; write it as a sum")
        return input + joined(tensor1, tensor2) * value


_register_added("addcmul", torch.mul)
_register_added("addcdiv", torch.div)


def _joined_range(*values: Any) -> Range:
    ends = [range_of(x.node) if isinstance(x, Traced) else (float(x.min()), float(x.max())) for x in values]
    return min(low for low, _ in ends), max(high for _, high in ends)


Cell = Callable[..., Any]


def _as_values(call: Call, anchor: Traced, given: Any) -> Any:
    """Constant inputs and states as values of the graph: kernels multiply them by weights, and round on the way."""

    def as_value(part: Tensor) -> Traced:
        fixed = call.constant(part, "")
        if not bool((fixed == fixed[:1]).all()):
            raise call.refused("its initial states or inputs differ between the inputs of a batch")
        ends = float(fixed.min()), float(fixed.max())
        return call.add([(anchor, 0.0)], fixed, exactly, limits=lambda _: ends)

    return mapped(given, lambda part: as_value(part) if not isinstance(part, Traced) and bool(part.any()) else part)


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Cell:
    return lambda call, input, hx, w_ih, w_hh, b_ih=None, b_hh=None: activation(
        F.linear(input, w_ih, b_ih) + F.linear(hx, w_hh, b_hh)
    )


def _gru_cell(call: Call, input: Any, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Any:
    """The new state is a mean of a bounded proposal and of the old state, which stays bounded."""
    given, kept = F.linear(input, w_ih, b_ih).chunk(3, 1), F.linear(hx, w_hh, b_hh).chunk(3, 1)
    reset, update = torch.sigmoid(given[0] + kept[0]), torch.sigmoid(given[1] + kept[1])
    proposal = torch.tanh(given[2] + reset * kept[2])
    state = proposal + update * (hx - proposal)
    limits = _joined_range(proposal, hx)
    state.node.limits = lambda _: limits
    return state


def _lstm_cell(call: Call, input: Any, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Any:
    """Its cell grows by 1 at most at each step."""
    hidden, cell = hx
    i, f, g, o = (F.linear(input, w_ih, b_ih) + F.linear(hidden, w_hh, b_hh)).chunk(4, 1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _register_recurrent(name: str, cell: Cell) -> None:
    @operation(f"{name}_cell")
    def one(call: Call, input: Any, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Any:
        """One step."""
        given = _as_values(call, next(all_traced((input, hx))), (input, hx))
        return cell(call, *given, w_ih, w_hh, b_ih, b_hh)

    @inside_operation(name)
    @operation(name)
    def layers(
        call: Call,
        input: Any,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Any, ...]:
        """Cells over the steps of a sequence, in one direction or both, in layers on top of each other."""
        long, directions, each = name == "lstm", 1 + bidirectional, 4 if has_biases else 2
        if (dropout and train) or len(params) != each * num_layers * directions:
            raise call.refused("dropout in training is random, and projections have no bound here")
        anchor, time, last = next(all_traced((input, hx))), 1 if batch_first else 0, []
        steps = list(input.unbind(time))
        for layer in range(num_layers):
            found = []
            for way in range(directions):
                number = layer * directions + way
                state: Any = (hx[0][number], hx[1][number]) if long else hx[number]
                states = []
                for step in steps[:: 1 - 2 * way]:
                    now, state = _as_values(call, anchor, (step, state))
                    state = cell(call, now, state, *params[each * number : each * (number + 1)])
                    states.append(state[0] if long else state)
                last.append(state)
                found.append(states[:: 1 - 2 * way])
            steps = found[0] if directions == 1 else [torch.cat(pair, -1) for pair in zip(*found, strict=True)]
        ends = zip(*last, strict=True) if long else [last]
        return torch.stack(steps, time), *(torch.stack(list(end), 0) for end in ends)


for _name, _cell in {
    "rnn_tanh": _plain_cell(torch.tanh),
    "rnn_relu": _plain_cell(torch.relu),
    "gru": _gru_cell,
    "lstm": _lstm_cell,
}.items():
    _register_recurrent(_name, _cell)
