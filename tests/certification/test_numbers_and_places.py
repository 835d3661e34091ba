"""Numbers that do not survive in the program's type, places that are counted from the end, proofs of other products.

Each test holds the attack that a careless bound loses to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from plain_models import Calls
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification import Certifier, UnknownLipschitzConstant, certify, lipschitz_bound
from onelip.certification.operations import RuleError, registered
from onelip.certification.operations.numbers import survives
from onelip.errors import InvalidInputError, OnelipError
from onelip.layers import L2NormPool2d
from onelip.proofs.layer_bound import FLOAT32, FLOAT64

aten = torch.ops.aten


def stretched(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> float:
    """Norm of a linear map."""
    units = torch.eye(math.prod(shape)).reshape(-1, *shape)
    return float(torch.linalg.matrix_norm((function(units) - function(0 * units)).reshape(len(units), -1).double(), 2))


# Places


def rows_twice(start: Any) -> Callable[[Tensor], Tensor]:
    def taken(x: Tensor) -> Tensor:
        y = x.permute(1, 0, 2)
        return torch.cat([y.narrow(0, start, 2), y.narrow(0, 2, 2)]).permute(1, 0, 2)

    return taken


@pytest.mark.parametrize("start", [-2, np.int64(-2), torch.tensor(-2), 2])
def test_rows_that_are_taken_twice_count_twice_wherever_they_are_counted_from(start: Any) -> None:
    function = rows_twice(start)
    assert lipschitz_bound(Calls(function), (4, 3)) >= stretched(function, (4, 3)) * (1 - 1e-6)


def test_no_radius_of_rows_that_are_taken_twice_is_beaten() -> None:
    """The scores are sums of rows that are there twice: the answer changes at sqrt(2), and 2 was certified."""

    def scores(x: Tensor) -> Tensor:
        return F.linear(rows_twice(-2)(x).flatten(1), torch.tensor([[0.5], [-0.5]]).expand(2, 4))

    x = torch.tensor([[[0.0], [0.0], [1.0], [1.0]]])
    assert not scores(0 * x).any()  # a tie, at the distance sqrt(2)
    assert 1.4 < float(certify(Calls(scores), x).radii) <= math.sqrt(2)


MINUS_TWO: Any = np.int64(-2)  # torch takes numbers of numpy and tensors, which its types do not say
MINUS_ONE: Any = np.int64(-1)
ONE: Any = np.int64(1)
TWO: Any = np.int64(2)
TENSOR: Any = torch.tensor(2)
PLACES: dict[str, Callable[[Tensor], Tensor]] = {
    "numpy dim": lambda x: x.sum(MINUS_ONE),
    "tensor dim": lambda x: x.sum(TENSOR),
    "negative dims": lambda x: x.sum((-1, -2)),
    "numpy window": lambda x: F.avg_pool1d(x, TWO),
    "narrow by keywords": lambda x: x.narrow(dim=-2, start=-3, length=2),
    "numpy narrow": lambda x: x.narrow(ONE, MINUS_TWO, TWO),
    "select inside": lambda x: x.permute(1, 0, 2).select(0, -1),
    "slice inside": lambda x: aten.slice(x.permute(1, 0, 2), 0, -3, 100).permute(1, 0, 2),
    "true": lambda x: x[:, True],
    "none": lambda x: x[:, None, ..., None],
    "three dimensions by T": lambda x: x.T.permute(2, 1, 0),
    "nothing": lambda x: x[:, :0].sum(1),
    "nothing and all": lambda x: torch.cat([x[:, :0] + 1, x], 1),
    "nothing multiplied": lambda x: torch.cat([x[:, :0] * torch.ones(3), x / 1], 1),
    "nothing divided": lambda x: torch.cat([x[:, :0] / torch.ones(0, 1), x], 1),
    "no features": lambda x: F.linear(x[..., :0], torch.zeros(2, 0), torch.ones(2)),
    "a matrix without entries": lambda x: torch.cat([torch.zeros(2, 0) @ x[:, :0], x], 1),
    "the larger of nothing": lambda x: torch.cat([torch.maximum(x[:, :0], torch.ones(0, 3)), x], 1),
    "norm of nothing": lambda x: torch.linalg.vector_norm(x[:, :0], dim=1),
    "one number": lambda x: x.sum((1, 2)),
    "one head": lambda x: F.linear(x.flatten(1), torch.ones(1, 12)).squeeze(-1),
    "constant in the shape of x": lambda x: x + torch.ones(len(x) * 12).view_as(x),
    "constant like x": lambda x: x + torch.ones(len(x), 12).reshape_as(x),
}


@pytest.mark.filterwarnings("ignore:The use of `x.T`")
@pytest.mark.parametrize("name", PLACES)
def test_whatever_way_a_place_is_named(name: str) -> None:
    function = PLACES[name]
    truth, bound = stretched(function, (4, 3)), lipschitz_bound(Calls(function), (4, 3))
    assert truth * (1 - 1e-6) <= bound <= max(1.0, truth) * (1 + 1e-6)


@pytest.mark.parametrize("function", [lambda x: x.sum(5), lambda x: x.permute(1, 0, 2).narrow(0, -5, 2)])
def test_places_out_of_range_are_the_models_own_mistake(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InvalidInputError, match=r"the model fails on inputs .*range"):
        lipschitz_bound(Calls(function), (4, 3))


def test_a_mean_of_nothing_and_a_mask_over_the_batch_are_refused() -> None:
    with pytest.raises(UnknownLipschitzConstant, match="no entries"):
        lipschitz_bound(Calls(lambda x: x[:, :0].mean(1)), (4,))
    with pytest.raises(UnknownLipschitzConstant, match="out of the batch"):
        lipschitz_bound(Calls(lambda x: x[..., torch.ones(len(x), 4, dtype=torch.bool)]), (4,))


def test_a_rule_that_fails_is_no_mistake_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: Any, input: Any) -> Any:
        raise IndexError("list index out of range")

    monkeypatch.setitem(registered._OPERATIONS, torch.relu, registered.Operation("relu", broken, False))
    with pytest.raises(RuleError, match=r"relu.* line \d+\) failed .*bug of onelip"):
        lipschitz_bound(Calls(torch.relu), (4,))


def test_a_broken_certificate_is_an_error_of_onelip() -> None:
    from onelip.certification import BrokenCertificateError

    assert issubclass(BrokenCertificateError, OnelipError)


# Proofs


def test_a_proof_is_of_one_product_alone() -> None:
    """D^T x and x D share a matrix: what is rounded in one is not what is rounded in the other."""
    matrix = torch.zeros(8, 8)
    matrix[0] = 1.0
    x = torch.zeros(1, 8, 8)
    x[0, :, 0] = 1e4 * torch.randn(8)

    def rounded(function: Callable[[Tensor], Tensor]) -> list[float]:
        scores = nn.Sequential(Calls(function), nn.Flatten(), nn.Linear(64, 2)).eval()
        certifier = Certifier(scores, (8, 8), arithmetic="float32")
        graph = certifier._proven.exact(registered_arguments(x), FLOAT32).graph
        return [float(node.measured.errors) for node in graph.nodes if node.measured is not None]

    alone = rounded(lambda x: (matrix @ x) + 0)
    both = rounded(lambda x: (matrix @ (x @ matrix.mT) * 0) + (matrix @ x))
    assert len(both) == len(alone) + 1  # of x D^T alone: the others are products from the left
    first, second = torch.linalg.qr(torch.randn(16, 16))[0], torch.randn(4, 16, 16)
    certify(nn.Sequential(Calls(lambda x: first @ (x @ first.mT)), nn.Flatten(), nn.Linear(256, 2)).eval(), second)


def registered_arguments(x: Tensor) -> Any:
    from onelip.certification.call_arguments import Arguments

    return Arguments.of(x.double())


@pytest.mark.parametrize("shift", [torch.full((1,), 1e4), torch.tensor(1e4)])
def test_one_bias_for_all_outputs_is_rounded_at_each(shift: Tensor) -> None:
    weight = torch.randn(400, 4) * 1e-3
    model = Calls(lambda x: torch.addmm(shift, x, weight.T))
    graph = Certifier(nn.Sequential(model, nn.Linear(400, 2)).eval(), (4,), arithmetic="float32").graph
    (made,) = [node.rounding(FLOAT32).constant for node in graph.nodes if node.place.kind == "addmm" and node.rounding]
    assert made >= 1e4 * math.sqrt(400) * FLOAT32.unit_roundoff


# Numbers


@pytest.mark.parametrize("scale", [-1.0, math.nan])
def test_an_exponential_that_grows_is_refused(scale: float) -> None:
    """elu(x, input_scale=-1) is e^-x - 1 below zero, without a largest slope."""
    with pytest.raises(UnknownLipschitzConstant, match="input_scale"):
        lipschitz_bound(Calls(lambda x: aten.elu(x, 1.0, 1.0, scale)), (4,))


@pytest.mark.parametrize("threshold", [-1.0, 0.1, 5.0, 10.0])
def test_a_softplus_that_jumps_has_no_constant(threshold: float) -> None:
    below = torch.tensor([[threshold]])
    above = torch.nextafter(below, below + 1)
    function = Calls(lambda x: F.softplus(x, 1.0, threshold))
    assert float((function(below) - function(above)).abs() / (above - below)) > 1.5
    with pytest.raises(UnknownLipschitzConstant, match="jumps"):
        lipschitz_bound(function, (1,))


HEAD = torch.tensor([[1.0, 0.0], [0.0, 1.0]])

LOST: dict[str, Callable[[Tensor], Tensor]] = {
    "a factor that is infinite": lambda x: x * 3.5e38,
    "a tensor that is infinite": lambda x: x * torch.tensor(3.5e38, dtype=torch.float64),
    "a divisor that may be zero": lambda x: x / 1e-38,
    "divisors that may be zero": lambda x: x / torch.tensor([1.0, 1e-39]),
    "a variance that may be zero": lambda x: F.batch_norm(x, torch.zeros(2), torch.zeros(2), eps=1e-42),
    "behind a head": lambda x: (x * 1e-30) @ HEAD * 3.5e38,
    "divided behind a head": lambda x: (x * 1e-30) @ HEAD / 1e-39,
}


@pytest.mark.parametrize("name", LOST)
def test_numbers_that_do_not_survive_in_float32_leave_no_radius(name: str) -> None:
    x = torch.tensor([[0.75, 0.25]]) * torch.tensor([[1.0], [1e-9], [1e-12], [1e-20]])
    assert not certify(Calls(LOST[name]), x, arithmetic="float32").radii.any()


def test_scores_that_overflow_before_they_are_made_small_leave_no_radius() -> None:
    model = Calls(lambda x: (x * 1e36) @ (HEAD * 1e3) * 1e-30)
    x = torch.tensor([[0.75, 0.25]])
    assert torch.isinf(model(x)).any()
    assert not certify(model, x, arithmetic="float32").radii.any()


def test_the_radius_of_an_infinite_factor_was_beaten() -> None:
    """0 times infinity is no number, and argmax takes no number for the largest."""
    model = Calls(lambda x: x * 3.5e38)
    near = torch.tensor([[0.75e-9, 0.0]])
    assert model(near).argmax() == 1
    assert not certify(model, torch.tensor([[0.75e-9, 0.1e-9]]), arithmetic="float32").radii.any()


@pytest.mark.parametrize(("number", "kept"), [(0.0, (1, 1)), (3e38, (1, 1)), (-1.2e-38, (1, 1)), (1e-39, (0, 1))])
def test_which_numbers_survive(number: float, kept: tuple[int, int]) -> None:
    for arithmetic, expected in zip((FLOAT32, FLOAT64), kept, strict=True):
        assert survives(number, arithmetic) == survives(torch.tensor([1.0, number]).double(), arithmetic) == expected
    assert not survives(math.nan, FLOAT64)
    assert not survives((1.0, 3.5e38), FLOAT32)
    assert certify(Calls(lambda x: x * 3e38 * 1e-30), torch.tensor([[3e-10, 0.0]]), arithmetic="float32").radii.all()


SQUARES: dict[str, Callable[[Tensor], Tensor]] = {
    "vector_norm": lambda x: torch.linalg.vector_norm(x.reshape(-1, 2, 2), dim=2),
    "norm": lambda x: x.reshape(-1, 2, 2).norm(dim=2),
    "lp_pool": lambda x: F.lp_pool1d(x[:, None], 2.0, 2)[:, 0],
    "L2NormPool2d": lambda x: L2NormPool2d((1, 2))(x.reshape(-1, 2, 1, 2)).flatten(1),
    "its eps": lambda x: L2NormPool2d((1, 2), eps=1e39)(x.reshape(-1, 2, 1, 2)).flatten(1),
    "weight after deviation": lambda x: F.batch_norm(
        x * 1e19, torch.zeros(4), torch.full((4,), 1e-37), torch.full((4,), 1e-30), eps=1e-37
    ),
}


@pytest.mark.parametrize("name", SQUARES)
def test_what_overflows_on_the_way_to_a_result_leaves_no_radius(name: str) -> None:
    """Two rows of entries near 1e19, whose squares are infinite although the norms are not."""
    x = torch.tensor([[1.9e19, 0.0, 1.8e19, 1.0]])
    model = Calls(SQUARES[name])
    assert not certify(model, x, arithmetic="float32").radii.any()
    assert certify(model, x).radii.all()  # in exact arithmetic


def test_a_softplus_that_overflows_on_the_way_leaves_no_radius() -> None:
    model = Calls(lambda x: F.softplus(x, 1.0, 200.0))
    assert torch.isinf(model(torch.tensor([[100.0]]))).all()
    assert not certify(model, torch.tensor([[100.0, 1.0]]), arithmetic="float32").radii.any()
    assert certify(model, torch.tensor([[30.0, 29.0]]), arithmetic="float32").radii.all()


# The program is checked at other inputs every time


class Gated(nn.Module):
    """Another program beyond a limit, which a tracer does not see: it is told apart by the type of the input."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        if type(x) is Tensor and bool((x[-1].abs() > self.limit).any()):
            return 3 * x
        return x.clone()


def test_random_inputs_are_new_ones_and_some_are_near_those_to_certify() -> None:
    from onelip.certification.call_arguments import Arguments

    zeros, around = Arguments.of(torch.zeros(4, 3)), Arguments.of(torch.full((7, 3), 1e6))
    first, second = zeros.drawn(None).tensors[0], zeros.drawn(None).tensors[0]
    assert not torch.equal(first, second)
    near = zeros.drawn(around).tensors[0]
    assert not torch.equal(near[1], around.tensors[0][0].double())
    assert bool(near[1::2].mean() > 1e4)
    with pytest.raises((UnknownLipschitzConstant, OnelipError)):
        Certifier(Gated(1e5), torch.full((2, 3), 1e6))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_an_input_that_is_no_number_has_no_radius_and_refutes_nothing(value: float) -> None:
    x = torch.tensor([[value, 1.0], [2.0, 0.5]])
    for arithmetic in ("float64", "float32"):
        radii = certify(Calls(lambda x: x[:, None].squeeze(1)), x, arithmetic=arithmetic).radii  # pyright: ignore
        assert radii[0] == 0 < radii[1]


SMALL_AND_LARGE: dict[str, Callable[[Tensor], Tensor]] = {
    "side by side": lambda x: torch.cat([x * 1e-200, x * 1e-200], 1) * 1e200,
    "one after the other": lambda x: x * 1e-200 * 1e-200 * 1e200 * 1e200,
    "the larger": lambda x: torch.maximum(x * 1e-200, -x * 1e-200) * 1e200,
    "large beside small": lambda x: torch.cat([x * 1e200, x], 1) * 1e-200,
    "a sum": lambda x: (x * 1e-170 + x * 1e-170) * 1e170,
}


@pytest.mark.parametrize("name", SMALL_AND_LARGE)
def test_constants_whose_squares_are_no_floats(name: str) -> None:
    """Their squares were 0, and so was the constant, or no float, and nothing was said."""
    model = Calls(SMALL_AND_LARGE[name]).double()
    assert lipschitz_bound(model, (4,)) >= 1.0
