"""Rounding errors from the numbers at hand: much smaller than from norms, and as safe.

Let s = sum_j t_j be computed from N products t_j = w_j a_j in some order. Every order is a binary tree with the
products as its leaves, and a fused multiply-add leaves a rounding out. A leaf at depth e_j takes part in e_j additions
and one product, so that

    |computed s - s| <= sum_j ((1 + u)^(d_j) - 1) |t_j| <= u / (1 - N u) sum_j d_j |t_j|,    d_j = e_j + 1 <= N.

sum_j e_j |t_j| is the sum, over the additions v, of the magnitudes below v. Let n_v be the number of leaves below v.
The n_v - 2 other additions below v have fewer leaves, so that the i-th smallest n_v is at most i + 1, and the sum is at
most that of the largest 2, 3, ..., N magnitudes. This is what adding them up one after the other gives, the largest
first: d = (N, N, N - 1, ..., 2) is the worst case for magnitudes in falling order. By Cauchy and Schwarz

    sum_j d_j |t_j| <= mean(d) S_1 + ||d - mean(d)|| sqrt(S_2 - S_1^2 / N),    S_1 = sum_j |t_j|, S_2 = sum_j t_j^2.

For numbers of one size that is half of N S_1. S_1, S_2 and N are products like the one that is computed, with the
magnitudes, the squares and the places of the weights that are not zero: adding a zero rounds nothing. The error in the
norm is that of all these bounds together, for each input of a batch, where norms alone allow N u || |W| || ||a||, as
if all rows of |W| and a were parallel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onelip.proofs.layer_bound import FLOAT64, Arithmetic, LayerBound, Progress, exact_bound, largest_activation
from onelip.proofs.proven import SAFETY, batch_norm_bounds, gamma

_CHUNK = 32
"""Inputs that are looked at together, which bounds the memory."""


Apply = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Product:
    """x -> `apply(x, weight, bias)`: inner products with constants. The tensors may be of any type.

    `add` does the same without changing signs, where `apply` also subtracts.
    """

    apply: Apply
    weight: Tensor
    bias: Tensor | None = None
    add: Apply | None = None

    def run(self, x: Tensor) -> Tensor:
        """In float64."""
        return self.apply(x, self.weight.detach().double(), None if self.bias is None else self.bias.detach().double())

    def sums(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """sum_j f(|w_j|) f(|x_j|) + f(|b|)."""
        bias = None if self.bias is None else function(self.bias.detach().double().abs())
        weight = function(self.weight.detach().double().abs())
        return (self.add or self.apply)(function(x.abs()), weight, bias)


def order_sums(product: Product, x: Tensor) -> tuple[Tensor, int]:
    """Upper bounds of sum_j d_j |t_j| for each output and every order, a bias being one more term; the largest N."""
    size, square = product.sums(x, lambda numbers: numbers), product.sums(x, torch.square)
    leaves = product.sums(torch.ones_like(x[:1]), lambda numbers: (numbers != 0).double()).clamp(min=1)
    depth = (leaves + (leaves - 1) * (1 + leaves / 2)) / leaves
    squares = leaves**2 + leaves * (leaves + 1) * (2 * leaves + 1) / 6 - 1
    most = int(leaves.amax())
    own = 8 * gamma(most + 8)  # of the float64 numbers here
    around = (square - size**2 / leaves).clamp(min=0) + own * square
    spread = (squares - leaves * depth**2).clamp(min=0) + 2.0**-40 * squares
    sums = torch.minimum(depth * size + (spread * around).sqrt(), leaves * size)
    return torch.where(sums.isnan(), torch.inf, sums) * (1 + own) * (1 + 2.0**-30), most


def measured(bound: LayerBound, product: Product, bias_roundings: int = 0) -> LayerBound:
    """The bound of a product with what it rounds where its inputs are known; its bias may have been rounded before."""

    def step(now: Progress, arithmetic: Arithmetic) -> Progress:
        assert bound.rounding is not None
        plain, wide, unit = bound.rounding(arithmetic), bound.rounding(FLOAT64), arithmetic.unit_roundoff
        (sums, terms), size = order_sums(product, now.value), batch_norm_bounds(now.value)
        value = product.run(now.value)
        total = batch_norm_bounds(sums)
        made = total * (unit / (1 - terms * unit) if terms * unit < 0.5 else math.inf)
        made = made.masked_fill(~(total <= largest_activation(arithmetic)), torch.inf)  # what follows may be tiny
        # As in `linear_bound`, whose slope is at least u times the norm of the magnitudes.
        lost = 4 * (terms + 1) * (1 + plain.slope / unit) * arithmetic.tiny * math.sqrt(value[0].numel())
        own = made + lost * (1 + size) + 2 * bias_roundings * unit * bound.offset
        error = bound.lipschitz * now.error + own + plain.slope * (now.wide + now.error)
        return Progress(
            value,
            (bound.lipschitz * now.wide + wide.slope * (size + now.wide) + wide.constant) * SAFETY,
            torch.nan_to_num(error * SAFETY, nan=torch.inf, posinf=torch.inf),
        )

    return replace(bound, step=step)


def exact_step(function: Callable[[Tensor], Tensor]) -> LayerBound:
    """What moves, drops or negates entries, inserts zeros, or is relu: it rounds nothing and expands nothing."""
    return replace(exact_bound(), step=lambda now, _: now._replace(value=function(now.value)))


def for_prepared_input(prepare: Callable[[Tensor], Tensor], bound: LayerBound) -> LayerBound:
    """The bound of a layer for inputs that are first moved or padded."""
    inner = bound.step
    if inner is None:
        return bound
    return replace(bound, step=lambda now, arithmetic: inner(now._replace(value=prepare(now.value)), arithmetic))


def input_minus(branch: LayerBound, bound: LayerBound) -> LayerBound:
    """`bound`, of x - branch(x), with what is rounded where x is known."""
    inner = branch.step
    if inner is None:
        return bound

    def step(now: Progress, arithmetic: Arithmetic) -> Progress:
        made = inner(now, arithmetic)
        value, wide, error = now.value - made.value, now.wide + made.wide, now.error + made.error
        size, lost = batch_norm_bounds(value) + wide, 4 * arithmetic.tiny * math.sqrt(value[0].numel())
        wide = wide + 2 * FLOAT64.unit_roundoff * size
        error = error + arithmetic.unit_roundoff * (size + error) + lost
        return Progress(value, wide * SAFETY, error * SAFETY)

    return replace(bound, step=step)


def error_at(bound: LayerBound, x: Tensor, arithmetic: Arithmetic) -> Tensor | None:
    """Bounds (batch,) of what a layer rounds at the float64 inputs x (batch, ...), None where that is not known.

    At a point x' it is at most that and slope * ||x' - x||, with the slope of the layer's plain rounding error.
    """
    step = bound.step
    if step is None:
        return None
    zeros = torch.zeros(_CHUNK, dtype=torch.float64)
    parts = [step(Progress(part, zeros[: len(part)], zeros[: len(part)]), arithmetic) for part in x.split(_CHUNK)]
    return torch.cat([part.error for part in parts])
