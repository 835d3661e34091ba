"""Bounds that users register, and constants of functions whose inputs are bounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from jacobians import norm_at
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification import Argument, Bound, UnknownLipschitzConstant, certify, lipschitz_bound, register_bound
from onelip.certification.operations import registered
from onelip.certification.proven_model import trace
from onelip.conversion import convert
from onelip.errors import InvalidInputError
from onelip.layers import MaxMin


class Calls(nn.Module):
    """A layer, and a function of its scores."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(6, 6), function
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


@pytest.fixture
def sinc() -> Iterator[Callable[[Tensor], Tensor]]:
    """torch.sinc, of which onelip knows nothing before and after."""
    registered._OPERATIONS.pop(torch.sinc, None)
    yield torch.sinc
    registered._OPERATIONS.pop(torch.sinc, None)


def test_a_registered_function_is_certified_and_converted(sinc: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UnknownLipschitzConstant, match="sinc"):
        lipschitz_bound(Calls(sinc), (6,))
    assert convert(Calls(sinc), "aol").conversion.failures

    @register_bound(sinc)
    def sinc_bound(x: Argument) -> Bound:
        return Bound(lipschitz=1.3705, offset=math.sqrt(x.entries), ulps=64, range=(-0.3, 1.0), entrywise=True)

    assert lipschitz_bound(Calls(sinc), (6,)) == pytest.approx(1.3705, rel=1e-6)
    assert certify(Calls(sinc), torch.randn(3, 6), arithmetic="float32").radii.shape == (3,)
    assert not convert(Calls(sinc), "aol").conversion.failures
    assert lipschitz_bound(Calls(lambda x: torch.log(sinc(x) + 1)), (6,)) < 1.4 / 0.69

    register_bound(sinc)(lambda x: replace(sinc_bound(x), convert=lambda: MaxMin(-1)))
    converted = convert(Calls(sinc), "aol")
    assert any(isinstance(module, MaxMin) for module in converted.modules())
    assert lipschitz_bound(converted, (6,)) <= 1 + 1e-5


FALSE: list[tuple[Bound, str]] = [
    (Bound(0.5, math.sqrt(12.0), 64.0), "pair of points"),
    (Bound(1.3705, 0.1, 64.0), "norm"),
    (Bound(1.3705, 20.0, 64.0, (0.0, 1.0)), "range"),
    (Bound(1.3705, 20.0, 0.001), "rounding error"),
]


@pytest.mark.parametrize(("bound", "word"), FALSE)
def test_a_false_bound_is_refused_when_it_is_registered(
    bound: Bound, word: str, sinc: Callable[[Tensor], Tensor]
) -> None:
    with pytest.raises(InvalidInputError, match=word):
        register_bound(sinc)(lambda x: bound)
    with pytest.raises(UnknownLipschitzConstant):
        lipschitz_bound(Calls(sinc), (6,))


def test_a_bound_that_cannot_be_checked_is_refused(sinc: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InvalidInputError, match="checked nowhere"):
        register_bound(sinc)(lambda x: "never")


BOUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda x: torch.exp(torch.tanh(x)),
    "gauss": lambda x: torch.exp(-(x.clamp(-3, 2) ** 2)),
    "expm1": lambda x: torch.expm1(-x.abs()),
    "cube": lambda x: torch.sigmoid(x) ** 3,
    "power of negatives": lambda x: x.clamp(-2, 1) ** 3,
    "square": lambda x: (1 - 2 * torch.sigmoid(x)).square(),
    "root": lambda x: torch.sqrt(x.relu() + 0.5),
    "root of a norm": lambda x: torch.sqrt(torch.linalg.vector_norm(x, dim=1, keepdim=True) + 0.5),
    "inverse root": lambda x: torch.rsqrt(x.abs().mean(1, keepdim=True) + 1),
    "logarithm": lambda x: torch.log(torch.maximum(torch.sigmoid(x), torch.sigmoid(-x)) + 0.1),
    "log1p": lambda x: torch.log1p(x.abs()),
    "softsign by hand": lambda x: 1 / (1 + x.abs()),
    "reciprocal": lambda x: torch.reciprocal(torch.sin(x) - 1.5),
    "moved": lambda x: torch.exp(torch.cat([x.tanh(), -x.sigmoid()], 1).flip(1)[:, 2:8]),
    "softmax": lambda x: F.softmax(3 * x, 1),
    "module": nn.Softmax(-1),
    "log_softmax": lambda x: F.log_softmax(x, dim=1),
    "logsumexp": lambda x: torch.logsumexp(x, (1,), keepdim=True),
    "cumsum": lambda x: x.cumsum(1),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_functions_of_bounded_values(name: str) -> None:
    torch.manual_seed(0)
    model = Calls(BOUNDED[name]).eval()
    bound, wide = lipschitz_bound(model, (6,)), Calls(BOUNDED[name]).double()
    for scale in (0.01, 0.3, 1.0, 3.0, 30.0):
        assert norm_at(wide, (scale * torch.randn(6, dtype=torch.float64)).requires_grad_()) <= bound
        x, y = scale * torch.randn(2, 64, 6, dtype=torch.float64)
        assert bool(((wide(x) - wide(y)).norm(dim=1) <= bound * (x - y).norm(dim=1)).all())
    if model(torch.zeros(1, 6)).shape[1] > 1:
        for scale in (1e-30, 1e-3, 1.0, 1e3, 1e10):  # within the proven error, or this raises
            certify(model, scale * torch.randn(16, 6), arithmetic="float32")


UNBOUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "below only": lambda x: torch.exp(x.relu()),
    "a constant in the place of a bound": lambda x: torch.exp(F.pad(x.tanh(), (0, 1), value=100.0)),
    "root at zero": lambda x: torch.sqrt(x.relu()),
    "across zero": lambda x: 1 / x.tanh(),
    "square": torch.square,
    "inverse power": lambda x: x.tanh() ** -1.0,
    "softmax over the batch": lambda x: F.softmax(x, 0),
    "cumsum over the batch": lambda x: torch.cumsum(x, -2),
    "power of values": lambda x: x.sigmoid() ** x.sigmoid(),
    "infinite shift": lambda x: torch.square(x.relu() - math.inf),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_what_is_bounded_on_no_side_that_matters_is_refused(name: str) -> None:
    with pytest.raises(UnknownLipschitzConstant):
        lipschitz_bound(Calls(UNBOUNDED[name]).eval(), (6,))


def test_values_that_rounding_takes_out_of_their_range_leave_no_radius() -> None:
    """1e10 + tanh(x) - 1e10 is in [-1, 1] in exact arithmetic; the float32 program gets 0 and 1024."""
    model = Calls(lambda x: torch.exp((x.tanh() + 1e10) - 1e10)).eval()
    (node,) = [node for node in trace(model, (6,)).nodes if node.place.kind == "exp"]
    assert node.margin < 1
    assert not certify(model, torch.randn(8, 6), arithmetic="float32").radii.any()
    assert certify(model, torch.randn(8, 6)).radii.any()


def test_a_number_that_is_infinite_in_float32_leaves_no_radius() -> None:
    model = Calls(lambda x: torch.full((), 3.5e38, dtype=torch.float64).item() / (x.abs() + 1e30))
    assert not certify(model, torch.randn(4, 6), arithmetic="float32").radii.any()
