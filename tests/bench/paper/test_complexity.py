"""The complexity table: the paper's formulas, and onelip's own against what is counted."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest

from onelip.bench.measurement.layer_costs import count_layer_costs
from onelip.bench.paper.complexity import COSTS, LayerShape, costs_in_use, evaluate, known_counts, pretty, theory_table
from onelip.errors import InvalidInputError
from onelip.fast import autocorrelation
from onelip.layers import frequency_choice, get_method, list_methods
from onelip.layers.frequency_choice import spectral_operations

METHODS = [method.key for method in list_methods()]
STATED = [row.method for row in theory_table() if row.source == "onelip"]
"""Methods that say what onelip computes, not only what was published: that can be counted."""
KERNEL_METHODS = [method.key for method in list_methods() if method.conv.has_frequency_form]
SHAPE = LayerShape(b=4, s=16, c=32, k=3, t=10)

# The paper's table, written down independently: exponents of b, s, c, k, t and the factor, term by term.
C, M, P = (1, 2, 2, 2, 0), (1, 2, 1, 0, 0), (0, 0, 2, 2, 0)
PAPER = {
    "standard": ([(1, C)], [(1, M)], [], [(1, P)]),
    "aol": ([(1, C)], [(1, M)], [(1, (0, 0, 3, 4, 0))], [(5, P)]),
    "bcop": (
        [(1, C)],
        [(1, M)],
        [(1, (0, 0, 3, 1, 1)), (1, (0, 0, 3, 3, 0))],
        [(1, (0, 0, 2, 1, 1)), (1, (0, 0, 2, 3, 0))],
    ),
    "cayley": ([(1, (1, 2, 2, 0, 0))], [(2.5, M)], [(1, (0, 2, 3, 0, 0))], [(1.5, (0, 2, 2, 0, 0))]),
    "cpl": ([(2, C)], [(3, M)], [(1, (0, 2, 2, 2, 0))], [(1, P), (1, (0, 2, 1, 0, 0))]),
    "lot": ([(1, (1, 2, 2, 0, 0))], [(3, M)], [(4, (0, 2, 3, 0, 1))], [(4, (0, 2, 2, 0, 1))]),
    "sll": ([(2, C)], [(3, M)], [(1, (0, 0, 3, 4, 0))], [(5, P)]),
    "soc": ([(1, (1, 2, 2, 2, 1))], [(1, (1, 2, 1, 0, 1))], [(1, (0, 0, 2, 2, 1))], [(1, P)]),
}


@pytest.mark.parametrize("method", PAPER)
def test_published_costs_are_those_of_the_paper(method: str) -> None:
    row = next(row for row in theory_table() if row.method == method and row.source == "published")
    for shape in (SHAPE, LayerShape(7, 11, 13, 5, 3)):
        sizes = (shape.b, shape.s, shape.c, shape.k, shape.t)
        for cost, terms in zip(COSTS, PAPER[method], strict=True):
            expected = sum(factor * math.prod(map(pow, sizes, exponents)) for factor, exponents in terms)
            assert row.at(shape)[cost] == pytest.approx(expected), cost


def test_every_method_has_costs_for_what_it_runs() -> None:
    assert {row.method for row in theory_table()} == set(METHODS)
    for method in METHODS:
        assert costs_in_use(method).source == ("onelip" if method in STATED else "published")
        assert all(value >= 0 for value in costs_in_use(method).at(SHAPE).values())


def _as_kernel(method: str) -> dict[str, object]:
    """Options that make a layer apply its kernel as such for every shape: only circular ones act on frequencies."""
    return {"padding_mode": "zeros"} if method in KERNEL_METHODS else {}


def _exponent(method: str, symbol: str, cost: str, low: LayerShape, high: int) -> float:
    """Counted exponent: log of the growth of a cost over log of the growth of one size.

    Kernels are applied as such: the form in use must not change between the two sizes.
    """
    counts = [count_layer_costs(method, shape, **_as_kernel(method)) for shape in (low, replace(low, **{symbol: high}))]
    assert not any(count.by_frequency for count in counts)
    return math.log(getattr(counts[1], cost) / getattr(counts[0], cost)) / math.log(high / getattr(low, symbol))


@pytest.mark.parametrize(
    ("method", "exponent"),
    [
        *(("aol", 3), ("bcop", 3), ("cayley", 3), ("lot", 3), ("sll", 3), ("cpl", 2), ("soc", 3), ("bjorck", 3)),
        *(("oni", 3), ("eco", 3), ("sandwich", 3)),
    ],
)
def test_counted_parameter_transformation_in_channels(method: str, exponent: int) -> None:
    """8 or 4 times the work for twice the channels; SOC's proven normaliser and exponential cost c^3, unlike F4."""
    growth = _exponent(method, "c", "parameter_macs", replace(SHAPE, c=1024), 2048)
    assert growth == pytest.approx(exponent, abs=0.05)


@pytest.mark.parametrize(
    ("method", "exponent"),
    [
        *(("cayley", 2), ("lot", 2), ("soc", 2), ("sandwich", 2)),
        *(("aol", 0), ("bcop", 0), ("sll", 0), ("cpl", 0), ("eco", 0)),
    ],
)
def test_counted_parameter_transformation_in_image_size(method: str, exponent: int) -> None:
    """Frequency matrices grow with s^2; CPL's power iteration, published with s^2, is ours on a fixed grid."""
    growth = _exponent(method, "s", "parameter_macs", replace(SHAPE, c=128, s=64), 128)
    assert growth == pytest.approx(exponent, abs=0.05)


@pytest.mark.parametrize(("method", "exponent"), [("aol", 4), ("sll", 4), ("bcop", 3), ("cpl", 2), ("bjorck", 4)])
def test_counted_parameter_transformation_in_kernel_size(method: str, exponent: int) -> None:
    growth = _exponent(method, "k", "parameter_macs", replace(SHAPE, c=128, k=9), 17)
    assert growth == pytest.approx(exponent, abs=0.25)


@pytest.mark.parametrize("method", KERNEL_METHODS)
def test_input_part_of_kernels(method: str) -> None:
    """A convolution: 4 times the work for twice the channels, the image's side or the kernel's."""
    for symbol, high in (("c", 64), ("s", 32), ("k", 9)):
        assert _exponent(method, symbol, "input_macs", SHAPE, high) == pytest.approx(2), symbol


def test_soc_series_applies_one_convolution_per_term() -> None:
    """The published input transformation, C t, with the t = 4 terms that onelip allows in training."""
    counted = count_layer_costs("soc", SHAPE, algorithm="series")
    published = next(row for row in theory_table() if row.method == "soc" and row.source == "published")
    assert counted.input_macs == published.at(replace(SHAPE, t=4))["input_macs"]


@pytest.mark.parametrize("method", METHODS)
def test_batch_size_concerns_the_input_part_alone(method: str) -> None:
    small, large = (count_layer_costs(method, LayerShape(b=b)) for b in (128, 256))
    assert large.input_macs == 2 * small.input_macs
    assert large.input_memory == pytest.approx(2 * small.input_memory, rel=0.02)
    assert large.parameter_macs == small.parameter_macs
    assert large.parameter_memory == small.parameter_memory
    stored = asdict(known_counts()[method])
    assert asdict(large) == pytest.approx(stored, rel=0.01), "run benchmarks/counted_costs.py: the layer has changed"


@pytest.mark.parametrize("method", [*STATED, "standard"])
def test_counted_input_transformation_is_what_the_formula_says(method: str) -> None:
    shape = LayerShape(b=8, s=32, c=128, k=3)
    theory, counted = costs_in_use(method).at(shape), count_layer_costs(method, shape)
    assert not counted.by_frequency
    if method in KERNEL_METHODS:  # the image itself is kept, not a padded copy of it
        assert counted.input_macs == theory["input_macs"]
        assert counted.input_memory == pytest.approx(theory["input_memory"], rel=1e-3)
    else:  # 17 of 32 columns of a spectrum are kept, which counts as half; ECO pads the image to 33 x 33
        assert 1 < counted.input_macs / theory["input_macs"] < 1.08
        assert 1 < counted.input_memory / theory["input_memory"] < 1.08


@pytest.mark.parametrize("method", STATED)
@pytest.mark.parametrize("shape", [LayerShape(b=1, s=32, c=128, k=3), LayerShape(b=1, s=64, c=128, k=5)])
def test_counted_parameter_transformation_is_what_the_formula_says(
    monkeypatch: pytest.MonkeyPatch, method: str, shape: LayerShape
) -> None:
    """Leading terms only, the cost of the kernel's DFT not among them, and for every size of kernel."""
    monkeypatch.setattr(autocorrelation, "SHORT_FROM", shape.c + 1)
    theory, counted = costs_in_use(method).at(shape), count_layer_costs(method, shape, **_as_kernel(method))
    assert 0.9 < counted.parameter_macs / theory["parameter_macs"] < 1.15
    assert 0.9 < counted.parameter_memory / theory["parameter_memory"] < 1.15


def test_autocorrelations_of_3_x_3_kernels_take_18_products() -> None:
    """And sums of all taps and of all products, which grow with c^2."""
    shape = LayerShape(b=1, s=32, c=128, k=3)
    counted = count_layer_costs("aol", shape, padding_mode="zeros").parameter_macs
    factors, offsets = 32 * 9, 13 * 32
    assert counted == pytest.approx(18 * shape.c**3 + (factors + offsets) * shape.c**2, rel=1e-2)


@pytest.mark.parametrize("side", [8, 16])
@pytest.mark.parametrize("method", KERNEL_METHODS)
def test_kernels_act_on_frequencies_where_that_is_cheaper(
    method: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts of both forms of one layer: the layer's own estimate of its operations is exact."""
    shape = LayerShape(b=8, s=side, c=128, k=3)
    share = frequency_choice.WHOLE_SHARE if side <= 8 else frequency_choice.FREQUENCY_SHARE
    ours = count_layer_costs(method, shape)
    monkeypatch.setattr(frequency_choice, "WHOLE_SHARE", 0)
    monkeypatch.setattr(frequency_choice, "FREQUENCY_SHARE", 0)
    as_kernel = count_layer_costs(method, shape)
    assert ours.by_frequency
    assert not as_kernel.by_frequency
    convolutions = 1 if get_method(method).linear else 2
    assert ours.input_macs == convolutions * shape.b * spectral_operations((shape.s, shape.s), shape.c, shape.c)
    assert ours.input_macs < share * as_kernel.input_macs
    numbers = side**2 if side <= 8 else 2 * side * (side // 2 + 1)
    spectrum = numbers * shape.c**2  # each a sum over the taps of the kernel
    assert ours.parameter_macs - as_kernel.parameter_macs == spectrum * shape.k**2
    # The spectrum takes the place of the kernel, which is kept where it is the parameter itself.
    more, kernel = ours.parameter_memory - as_kernel.parameter_memory, shape.c**2 * shape.k**2
    assert spectrum - kernel <= more < 1.01 * spectrum


def test_polar_factor_of_lot_keeps_less_than_two_unrolled_iterations() -> None:
    published = next(row for row in theory_table() if row.method == "lot" and row.source == "published")
    two_iterations = published.at(replace(SHAPE, t=2))["parameter_memory"]
    assert count_layer_costs("lot", SHAPE).parameter_memory < two_iterations


def test_expressions_are_arithmetic_only() -> None:
    assert evaluate("3*s**2*c**2/2 + b - k", SHAPE) == 3 * 256 * 1024 / 2 + 4 - 3
    for expression in ("__import__('os')", "c.real", "x*2", "c**", "[c]", "True if c else 1"):
        with pytest.raises(InvalidInputError):
            evaluate(expression, SHAPE)
    with pytest.raises(InvalidInputError):
        LayerShape(c=0)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("0", "-"),
        ("b*s**2*c**2*k**2", "C"),
        ("2*b*s**2*c**2 + 6*b*s**3*c", "2 b s² c² + 6 b s³ c"),
        ("5*b*s**2*c/2", "5 M/2"),
        ("b*s**2*c*t", "M t"),
        ("s**2*c**2*k**2", "s² c² k²"),
        ("c**2*k**2 + s**2*c", "P + s² c"),
        ("c**2*k**21", "c² k²¹"),
    ],
)
def test_pretty(expression: str, text: str) -> None:
    assert pretty(expression) == text
