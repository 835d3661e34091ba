"""Rounding errors from the numbers at hand: against every order of summation, rationals, and the float32 program."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification.call_arguments import Arguments
from onelip.certification.leaves import Proofs, in_float64
from onelip.certification.rounding import error_at_sample, error_in_ball
from onelip.certification.tracing import Tracer
from onelip.layers import create_conv, create_linear
from onelip.proofs.layer_bound import FLOAT32, FLOAT64, Progress, compose
from onelip.proofs.linear_bounds import matrix_bound
from onelip.proofs.measured_rounding import Product, error_at, measured, order_sums

U = FLOAT32.unit_roundoff


def depths(leaves: tuple[int, ...]) -> Iterator[dict[int, int]]:
    """The depths of the leaves in every binary tree over them."""
    if len(leaves) == 1:
        yield {leaves[0]: 0}
        return
    first, rest = leaves[0], leaves[1:]
    for chosen in range(2 ** len(rest) - 1):
        left = (first, *(leaf for place, leaf in enumerate(rest) if chosen >> place & 1))
        right = tuple(leaf for place, leaf in enumerate(rest) if not chosen >> place & 1)
        for one in depths(left):
            for other in depths(right):
                yield {leaf: depth + 1 for leaf, depth in {**one, **other}.items()}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_no_order_of_summation_exceeds_the_sums(count: int) -> None:
    """All orders of up to six terms, 945 trees; that of falling magnitudes is the worst of them."""
    generator = torch.Generator().manual_seed(count)
    for power in (0.0, 1.0, 4.0):
        weights = torch.rand(count, generator=generator, dtype=torch.float64) ** power
        sizes = [float(size) for size in weights.sort(descending=True).values]
        worst = max(
            sum((depth + 1) * sizes[leaf] for leaf, depth in tree.items()) for tree in depths(tuple(range(count)))
        )
        in_turn = sum(sum(sizes[: many + 1]) for many in range(1, count)) + sum(sizes)
        assert worst == pytest.approx(in_turn, rel=1e-12)
        bound, terms = order_sums(Product(F.linear, weights[None]), torch.ones(1, count, dtype=torch.float64))
        assert terms == count
        assert worst <= float(bound) <= count * sum(sizes) * (1 + 1e-6)


def test_sums_of_one_size_cost_half() -> None:
    weights = torch.ones(1, 1000, dtype=torch.float64)
    bound, _ = order_sums(Product(F.linear, weights), weights)
    assert float(bound) < 0.51 * 1000 * 1000


def test_weights_that_are_zero_and_places_outside_of_the_image_do_not_count() -> None:
    kernel = torch.ones(1, 1, 3, 3)
    kernel[0, 0, 0] = 0.0
    product = Product(lambda x, taps, shift: F.conv2d(x, taps, shift, padding=1), kernel, torch.ones(1))
    bound, terms = order_sums(product, torch.ones(1, 1, 4, 4, dtype=torch.float64))
    assert terms == 7  # six taps and the bias
    assert bound[0, 0, 3, 0] < 3 * 3 + 1e-4  # two taps and the bias: depths 3, 3, 2


def summed(terms: Any, order: str) -> np.float32:
    """Float32 sums of exact products in an order, without fused multiply-adds."""
    numbers = [np.float32(term) for term in terms]
    if order == "pairs":
        while len(numbers) > 1:
            odd = numbers[-1:] if len(numbers) % 2 else []
            numbers = [a + b for a, b in zip(numbers[::2], numbers[1::2], strict=False)] + odd
        return numbers[0]
    if order in ("falling", "rising"):
        numbers.sort(key=abs, reverse=order == "falling")
    total = np.float32(0)
    for number in numbers:
        total = total + number
    return total


def test_orders_that_beat_smaller_bounds() -> None:
    """1 and many terms of half a unit in its last place: added to 1 in turn, each of them is lost.

    The error is the whole of them. As if sums were pairwise, or all depths the mean depth, it would be refuted.
    """
    count = 4097
    row = torch.full((1, count), 2.0**-24)
    row[0, 0] = 1.0
    x = torch.ones(1, count)
    exact = sum((Fraction(float(number)) for number in row[0]), Fraction(0))
    error = {
        order: abs(float(Fraction(float(summed(row[0].tolist(), order))) - exact)) for order in ("falling", "pairs")
    }
    bound = measured(matrix_bound(row, None), Product(F.linear, row))
    allowed = float(error_at(bound, x.double(), FLOAT32))  # pyright: ignore[reportArgumentType]
    sizes = float(row.double().sum())
    pairwise, mean_depth = (np.log2(count) + 1) * U * sizes, (count / 2 + 1.5) * U * sizes
    assert error["pairs"] <= pairwise < mean_depth < error["falling"] <= allowed


@pytest.mark.parametrize("seed", range(4))
def test_float32_sums_in_every_order_stay_within(seed: int) -> None:
    """Rationals say what the sums are; inputs of very different sizes, rows with zeros, a bias."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, 60, generator=generator) * (torch.rand(3, 60, generator=generator) > 0.3)
    bias = torch.randn(3, generator=generator)
    x = torch.randn(2, 60, generator=generator) * 10 ** torch.randint(-3, 3, (2, 60), generator=generator)
    bound = measured(matrix_bound(weight, bias), Product(F.linear, weight, bias))
    allowed = error_at(bound, x.double(), FLOAT32)
    assert allowed is not None
    plain = bound.rounding(FLOAT32) if bound.rounding else None
    assert plain is not None
    for sample, limit in zip(x, allowed, strict=True):
        assert limit < 0.8 * (plain.slope * float(sample.double().norm()) + plain.constant)
        for order in ("given", "falling", "rising", "pairs"):
            squares = 0.0
            for row, shift in zip(weight, bias, strict=True):
                pairs = [(float(w), float(v)) for w, v in zip(row, sample, strict=True)]
                exact = sum((Fraction(w) * Fraction(v) for w, v in pairs), Fraction(float(shift)))
                products = [np.float32(w) * np.float32(v) for w, v in pairs]
                computed = summed([*products, float(shift)], order)
                squares += float(Fraction(float(computed)) - exact) ** 2
            assert squares**0.5 <= limit


def test_sums_that_overflow_inside_of_a_layer_have_no_bound() -> None:
    """However small what follows makes them: a huge product, then a tiny one."""
    huge, tiny = torch.full((4, 4), 1e37), torch.full((4, 4), 1e-37)
    steps = [measured(matrix_bound(weight, None), Product(F.linear, weight)) for weight in (huge, tiny)]
    x = torch.full((2, 4), 10.0)
    x[1] = 1e-9
    computed = x @ huge.mT @ tiny.mT
    errors = error_at(compose(*steps), x.double(), FLOAT32)
    assert errors is not None
    assert computed[0].isinf().all()
    assert errors.isinf().tolist() == [True, False]


METHODS = ["aol", "bcop", "cayley", "cpl", "lot", "sandwich", "sll", "soc"]


def norms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x.flatten(1), dim=1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("padding_mode", "side"), [("circular", 4), ("circular", 9), ("zeros", 7)])
def test_steps_compute_the_layer_and_bound_the_float32_program(method: str, padding_mode: Any, side: int) -> None:
    """At the inputs that were measured, and with the plain slope around them."""
    torch.manual_seed(side)
    layer = create_conv(method, 3, 5, 3, padding_mode=padding_mode).eval().requires_grad_(False)
    assert layer.bias is not None
    layer.bias.normal_()
    x = torch.randn(3, 3, side, side)
    bound, twin = layer.bound((3, side, side)), in_float64(layer)
    allowed, rounding = error_at(bound, x.double(), FLOAT32), bound.rounding
    if method == "soc" and padding_mode == "zeros":  # a series: its plain error holds
        assert allowed is None
        return
    assert allowed is not None
    assert bound.step is not None
    assert rounding is not None
    zeros = torch.zeros(3, dtype=torch.float64)
    value = bound.step(Progress(x.double(), zeros, zeros), FLOAT32).value[:, :5, :side, :side]
    assert torch.allclose(value, twin(x.double()), rtol=1e-11, atol=1e-11)
    plain = rounding(FLOAT32)
    assert (allowed < plain.slope * norms(x.double()) + plain.constant).all()
    for distance in (0.0, 0.1, 2.0):
        step = torch.randn_like(x)
        moved = x + distance * step / norms(step)[:, None, None, None]
        error = norms(layer(moved).double() - twin(moved.double()))
        assert (error <= allowed + plain.slope * norms(moved.double() - x.double())).all()


@pytest.mark.parametrize("padding_mode", ["zeros", "circular", "reflect", "replicate"])
def test_convolutions_of_torch_are_measured_too(padding_mode: Any) -> None:
    """As nodes of a model, with either form of padding, strides and groups."""
    torch.manual_seed(2)
    conv = nn.Conv2d(4, 6, 3, 2, 1, groups=2, padding_mode=padding_mode).eval().requires_grad_(False)
    x = torch.randn(3, 4, 8, 8)
    graph, exact = Tracer(conv, Proofs(), torch.float32, measures=FLOAT32).run(Arguments.of(x.double()))
    found = graph.output.measured
    assert found is not None
    error = norms(conv(x).double() - exact)
    here = error_at_sample(graph.used(), FLOAT64, 3)
    plain = Tracer(conv, Proofs(), torch.float32).run(Arguments.of(x.double()))[0]
    without = error_in_ball(plain.used(), FLOAT32, here, torch.zeros(3, dtype=torch.float64))
    assert (error <= found.errors).all()
    assert (found.errors < without.errors[plain.output.index]).all()


@pytest.mark.parametrize("method", METHODS)
def test_linear_layers_too(method: str) -> None:
    torch.manual_seed(1)
    layer = create_linear(method, 20, 30).eval().requires_grad_(False)
    x = torch.randn(5, 20)
    allowed = error_at(layer.bound((20,)), x.double(), FLOAT32)
    assert allowed is not None
    assert (norms(layer(x).double() - in_float64(layer)(x.double())) <= allowed).all()
