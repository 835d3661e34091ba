"""Values whose batch is not their first dimension, as inside of an exported layer that works in the frequency domain.

Their entries are in the order before x batch x after, whatever the shape: a row is one of the places before the batch,
and holds `after` entries of each input. A frequency layer permutes an image to rows of channels, multiplies the rows
by the matrix of a DFT, each row by a matrix of its own, transforms back, and permutes the batch to the front again.

Complex products arrive as x_re A - x_im B and x_re B + x_im A side by side. Term by term their norms would add up. So
every value that consists of rows of one `base` times matrices knows this (`Rows`), and where such values are put side
by side, the rows of the base that meet are one block of a block diagonal matrix, with the largest norm of a block.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onelip.certification.graph import Moved, Rows, exactly
from onelip.certification.operations.arithmetic import sum_rounding
from onelip.certification.operations.numbers import magnitude
from onelip.certification.operations.registered import (
    Call,
    counted,
    inside_operation,
    integers,
    moved_indices,
    operation,
)
from onelip.certification.traced import Traced
from onelip.proofs.layer_bound import LayerBound, linear_bound
from onelip.proofs.linear_bounds import bias_norm, matrix_bound
from onelip.proofs.proven import SAFETY, batch_norm_bounds, magnitude_norm_bound, norm_bound

_INPUTS = "the batch must be its first dimension, or it must act in front of the batch only"


def _before(x: Traced) -> int:
    return 1 if x.before is None else x.before


def _after(x: Traced) -> int:
    return x.numel() // (_before(x) * x.tracer.batch)


def permuted_batch(call: Call, x: Traced, order: Sequence[int]) -> Traced:
    """Dimensions in another order, the batch among them."""
    lengths = [math.prod(x.shape[:dim]) for dim in range(x.dim())]
    found = [0] if x.before is None else [d for d in order if lengths[d] == x.before and x.shape[d] == x.tracer.batch]
    if not found:
        raise call.refused("the batch is part of another dimension; unflatten it before")
    batch, place = found[0], order.index(found[0])
    value = x.value.permute(*order)
    one = [1 if dim == batch else length for dim, length in enumerate(x.shape)]
    indices = moved_indices(x.shape_without_batch(), lambda t: t.reshape(one).permute(*order))
    before = None if place == 0 else math.prod(value.shape[:place])
    return call.add([(x, 1.0)], value, exactly, facts=(Moved(indices),), shares_memory=True, before=before)


@operation("permute")
@inside_operation("permute")
def permute(call: Call, input: Traced, *sizes: Any, dims: Any = None) -> Traced:
    """Dimensions in another order; where the batch is not the first, it has to come back before the end."""
    order = integers(dims or (sizes[0] if len(sizes) == 1 else sizes))
    return permuted_batch(call, input, [counted(dim, input.dim()) for dim in order])


@operation("movedim", "moveaxis")
@inside_operation("movedim", "moveaxis")
def movedim(call: Call, input: Traced, source: Any, destination: Any) -> Traced:
    """Some dimensions go to other places."""
    numbered = torch.empty([*range(input.dim())], device="meta").movedim(source, destination)
    return permuted_batch(call, input, numbered.shape)


@operation("transpose", "swapaxes", "swapdims")
@inside_operation("transpose", "swapaxes", "swapdims")
def transpose(call: Call, input: Traced, dim0: int, dim1: int) -> Traced:
    """Two dimensions change places."""
    order, (first, second) = list(range(input.dim())), (counted(dim, input.dim()) for dim in (dim0, dim1))
    order[first], order[second] = second, first
    return permuted_batch(call, input, order)


operation("adjoint")(lambda call, input: transpose(call, input, -2, -1))
operation("t")(lambda call, input: permute(call, input, *range(input.dim())[::-1]))
inside_operation("t")(lambda call, input: permute(call, input, *range(input.dim())[::-1]))


def _in_order(call: Call, x: Traced, value: Tensor) -> Traced:
    facts = (
        Moved(moved_indices(x.shape_without_batch(), None)),
        *(fact for fact in x.node.facts if type(fact) is Rows),
    )
    return call.add([(x, 1.0)], value, exactly, facts=facts, shares_memory=True, before=x.before)


def _register_in_order(function: Callable[..., Tensor], *names: str) -> None:
    inside_operation(*names)(
        lambda call, input, *arguments, **keywords: _in_order(
            call, input, function(input.value, *arguments, **keywords)
        )
    )


_register_in_order(
    lambda t, *shape: t.reshape(integers(shape[0] if len(shape) == 1 else shape)), "reshape", "view", "_unsafe_view"
)
_register_in_order(Tensor.flatten, "flatten")
_register_in_order(lambda t, dim, sizes: t.unflatten(dim, tuple(sizes)), "unflatten")
_register_in_order(lambda t, memory_format=None: t, "contiguous", "alias", "detach", "clone")


def _rows_of(x: Traced, start: int, count: int) -> Rows:
    """Some rows of a value, as rows of what it was made of."""
    found = x.node.fact(Rows)
    if found is None or found.shift:
        if x.node.norm is None:  # the products will be nodes behind this one, whose value is gone then
            x.node.norm = x.norms()
        return Rows(x.node, ((start, None),), 0.0)
    terms = [(first + start, None if m is None else m[start : start + count]) for first, m in found.terms]
    return Rows(found.base, tuple(terms), 0.0)


def _range(call: Call, x: Traced, axis: int, start: int, count: int, take: Callable[[Tensor], Tensor]) -> Traced:
    """Places in front of the batch; `take` picks them along the axis. All numbers count from the front."""
    leading = math.prod(x.shape[: axis + 1])
    if _before(x) % leading:
        raise call.refused(_INPUTS)
    each = _before(x) // leading
    lengths = (*x.shape[: axis + 1], each * _after(x))
    facts: list[Any] = [Moved(moved_indices(x.shape_without_batch(), lambda t: take(t.reshape(lengths))))]
    if math.prod(x.shape[:axis]) == 1:
        facts.append(_rows_of(x, start * each, count * each))
    value, before = take(x.value), leading // x.shape[axis] * count * each
    first = before == 1 and value.dim() < x.dim()  # the one place in front of the batch was selected
    return call.add(
        [(x, 1.0)], value, exactly, facts=tuple(facts), shares_memory=True, before=None if first else before
    )


@inside_operation("narrow")
def narrow(call: Call, input: Traced, dim: int, start: int, length: int) -> Traced:
    """A range of rows."""
    axis = counted(dim, input.dim())
    first, (count,) = counted(start, input.shape[axis] + 1 if start >= 0 else input.shape[axis]), integers(length)
    return _range(call, input, axis, first, count, lambda t: t.narrow(axis, first, count))


@inside_operation("slice")
def exported_slice(
    call: Call, input: Traced, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Traced:
    """A range of rows."""
    first, last, _ = slice(start, end).indices(input.shape[dim])
    if step != 1:
        raise call.refused("it takes steps; the batch must be its first dimension for that")
    return narrow(call, input, dim, first, max(0, last - first))


@inside_operation("select")
def select(call: Call, input: Traced, dim: int, index: int) -> Traced:
    """One place in front of the batch."""
    axis = counted(dim, input.dim())
    place = counted(index, input.shape[axis])
    return _range(call, input, axis, place, 1, lambda t: t.select(axis, place))


@inside_operation("matmul", "mm")
def matmul(call: Call, input: Any, other: Any) -> Traced:
    """W x, which mixes rows."""
    x = call.traced(other, "x W with a batch that is not the first dimension is not looked into; use F.linear before")
    weight = call.constant(input, "a product of two values that depend on the input has no Lipschitz constant")
    if weight.dim() != 2 or x.dim() < 2 or not x.numel() or _before(x) % math.prod(x.shape[:-1]):
        raise call.refused(_INPUTS)
    columns = x.numel() // (x.tracer.batch * x.shape[-2])
    operands = {"matrix": weight}
    bound = call.proven("matrix times rows", (columns,), operands, lambda: matrix_bound(weight, None, columns))
    return _node(call, x, weight @ x.value, bound, _before(x) // x.shape[-2] * len(weight))


inside_operation("rmatmul")(lambda call, input, other: matmul(call, other, input))


def _node(call: Call, x: Traced, value: Tensor, bound: LayerBound, before: int, *facts: Any) -> Traced:
    """A node with one input and the bound of a layer."""
    result = call.add([(x, bound.lipschitz)], value, bound.rounding, facts=facts, weighted=(1.0,), before=before)
    result.node.exact_offset, result.node.peak = bound.offset, bound.peak
    return result


@inside_operation("bmm")
def bmm(call: Call, input: Any, mat2: Any) -> Traced:
    """Each row times a matrix of its own. The norm is that of Frobenius: tight ones are found where parts meet."""
    x = call.traced(input)
    matrices = call.constant(mat2, "a product of two values that depend on the input has no Lipschitz constant")
    if x.shape[0] != x.before or x.shape[1] != x.tracer.batch:
        raise call.refused(_INPUTS)
    largest = float(batch_norm_bounds(matrices).nan_to_num(nan=math.inf).amax())
    outputs = len(matrices) * matrices.shape[2]
    bound = linear_bound(largest, largest, terms=matrices.shape[1], outputs=outputs)
    rows = x.node.fact(Rows)
    facts = ()
    if rows is not None and not rows.shift and [matrix for _, matrix in rows.terms] == [None]:
        facts = (Rows(rows.base, ((rows.terms[0][0], matrices),), 0.0),)
    return _node(call, x, torch.bmm(x.value, matrices), bound, len(matrices), *facts)


def add(call: Call, input: Any, other: Any, alpha: float = 1, *, sign: float) -> Traced:
    """x + y, or x - y."""
    if alpha != 1:
        raise call.refused("alpha must be 1")
    first, second = input, other
    if isinstance(first, Traced) and isinstance(second, Traced):
        if first.shape != second.shape or first.before != second.before:
            raise call.refused("the two values have different shapes")
        value = first.value + sign * second.value
        rounding = sum_rounding(0.0, value.numel() // call.tracer.batch)
        facts = _summed_rows(first.node.fact(Rows), second.node.fact(Rows), sign)
        pairs = [(first, 1.0), (second, 1.0)]
        return call.add(pairs, value, rounding, facts=facts, before=first.before)
    x, number = (first, second) if isinstance(first, Traced) else (second, first)
    shift = torch.as_tensor(call.constant(number, ""), dtype=torch.float64)
    value = x.value + sign * shift if x is first else shift + sign * x.value
    if value.shape != x.shape:
        raise call.refused("the constants have more dimensions than the value")
    size = _shift_norm(x, shift)
    rows = x.node.fact(Rows)
    facts = (Rows(rows.base, rows.terms, size),) if rows is not None and not rows.shift and x is first else ()
    bound = LayerBound(1.0, size, sum_rounding(size, value.numel() // call.tracer.batch, 2.0))
    return _node(call, x, value, bound, _before(x), *facts)


inside_operation("add", "radd")(functools.partial(add, sign=1.0))
inside_operation("sub", "subtract")(functools.partial(add, sign=-1.0))
inside_operation("rsub")(lambda call, input, other: add(call, other, input, sign=-1.0))


def _summed_rows(first: Rows | None, second: Rows | None, sign: float) -> tuple[Rows, ...]:
    if first is None or second is None or first.base is not second.base or first.shift or second.shift:
        return ()
    matrices = [(start, m) for start, m in first.terms if m is not None]
    matrices += [(start, sign * m) for start, m in second.terms if m is not None]
    whole = len(matrices) == len(first.terms) + len(second.terms) == len({start for start, _ in matrices})
    return (Rows(first.base, tuple(matrices), 0.0),) if whole else ()


def _shift_norm(x: Traced, shift: Tensor) -> float:
    """Norm of constants spread over one input."""
    count = x.numel() // x.tracer.batch
    if shift.dim() == 1 and len(shift) == x.shape[-1] and _after(x) % len(shift) == 0:
        return bias_norm(shift, count // len(shift))
    return magnitude(shift) * math.sqrt(count) * SAFETY


@inside_operation("cat", "concat", "concatenate")
def cat(call: Call, tensors: Any, dim: int = 0) -> Traced:
    """Rows below each other."""
    parts = [call.traced(part) for part in tensors]
    each = {
        _before(part) / part.shape[0] for part in parts if len(part)
    }  # places before the batch in one of dimension 0
    fits = all(part.before is not None for part in parts) and len(each) == 1 and each.pop().is_integer()
    if not fits or counted(dim, parts[0].dim()) or len({part.shape[1:] for part in parts}) > 1:
        raise call.refused(_INPUTS)
    value, before = torch.cat([part.value for part in parts]), sum(map(_before, parts))
    rows = [part.node.fact(Rows) for part in parts]
    bound = _blocks_bound(call, [row for row in rows if row is not None], list(map(_before, parts)), value)
    if bound is not None:
        base: Rows = rows[0]
        return _node(call, Traced(call.tracer, base.base, parts[0].value, parts[0].before), value, bound, before)

    def indices(position: int) -> Tensor:
        counts = [_before(part) * _after(part) for part in parts]
        marked = [torch.full((count,), -1) for count in counts]
        marked[position] = torch.arange(counts[position])
        return torch.cat(marked)

    pairs = [(part, 1.0) for part in parts]
    return call.add(pairs, value, exactly, joint=True, facts=(Moved(indices),), before=before)


def _blocks_bound(call: Call, rows: Sequence[Rows], counts: Sequence[int], value: Tensor) -> LayerBound | None:
    """All parts as one map of their common base: block diagonal, if no row of the base is in two blocks."""
    if len(rows) != len(counts) or any(row.base is not rows[0].base for row in rows):
        return None
    blocks: dict[tuple[int, ...], list[tuple[int, Rows]]] = {}
    for count, row in zip(counts, rows, strict=True):
        blocks.setdefault((count, *sorted(start for start, _ in row.terms)), []).append((count, row))
    ranges = sorted((start, start + key[0]) for key in blocks for start in key[1:])
    if any(end > start for (_, end), (start, _) in itertools.pairwise(ranges)):
        return None
    shift = math.sqrt(sum(row.shift**2 for row in rows)) * SAFETY
    outputs = value.numel() // call.tracer.batch
    plain = [m is None for row in rows for _, m in row.terms]
    if all(plain) and len(blocks) == len(rows) == len(plain):
        return LayerBound(1.0, shift, sum_rounding(shift, outputs, 2.0) if shift else exactly)
    if any(plain):
        return None
    matrices = [torch.cat([_column(row) for _, row in members], -1) for members in blocks.values()]

    def prove() -> tuple[float, float]:
        return max(map(norm_bound, matrices)), max(magnitude_norm_bound(m.abs()) for m in matrices)

    norms = call.proven("blocks of rows", (), {str(place): m for place, m in enumerate(matrices)}, prove)
    return linear_bound(*norms, terms=max(m.shape[-2] for m in matrices) + 1, outputs=outputs, bias_norm=shift)


def _column(row: Rows) -> Tensor:
    """The matrices (rows, terms * in, out) that make one part, in the order of the rows that they read."""
    return torch.cat([matrix for _, matrix in sorted(row.terms, key=lambda term: term[0]) if matrix is not None], -2)
