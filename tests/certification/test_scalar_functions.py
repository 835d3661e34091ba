"""Functions that are written with several operations: the bound is that of the whole, against float64 derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_models import Calls
from torch import Tensor, nn
from torch.nn import functional as F

from onelip import certify, lipschitz_bound
from onelip.errors import InvalidInputError, UnknownLipschitzConstant

torch.manual_seed(0)
BETA = torch.tensor([0.5, 1.0, 2.0, 3.0])


ENTRYWISE: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    # the function, and how loose its bound may be
    "swish": (lambda x: x * torch.sigmoid(1.5 * x), 1.001),
    "swish of channels": (lambda x: x * torch.sigmoid(BETA.to(x) * x), 1.001),
    "gelu": (lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), 1.001),
    "mish": (lambda x: x * torch.tanh(F.softplus(x)), 1.001),
    "hard swish": (lambda x: x * F.relu6(x + 3) / 6, 1.001),
    "snake": (lambda x: x + torch.sin(2 * x) ** 2 / 2, 1.6),
    "leaky": (lambda x: torch.where(x > 0, x, 0.1 * x), 1.001),
    "elu": (lambda x: torch.where(x > 0, x, torch.exp(x.clamp(max=0)) - 1), 1.001),
    "bend at 1.3": (lambda x: torch.where(x < 1.3, x, 0.5 * x + 0.65), 1.001),
    "gate by a comparison": (lambda x: x * (x > 0), 1.001),
    "root": (lambda x: torch.sqrt(x**2 + 1e-3), 1.02),
    "bell": (lambda x: torch.exp(-(x**2)), 1.001),
    "softsign": (lambda x: x / (1 + x.abs()), 1.001),
    "signed log": (lambda x: torch.sign(x) * torch.log1p(x.abs()), 1.001),
    "isru": (lambda x: x / torch.sqrt(1 + x * x), 1.001),
    "gamma": (lambda x: x**2 * torch.exp(-x.abs()), 1.001),
}


@pytest.mark.parametrize("name", ENTRYWISE)
def test_the_bound_of_the_whole_is_its_largest_slope(name: str) -> None:
    function, loose = ENTRYWISE[name]
    points = torch.cat([torch.linspace(-30, 30, 60001), torch.logspace(-12, 5, 2001), -torch.logspace(-12, 5, 2001)])
    x = points.double()[:, None].expand(-1, 4).clone().requires_grad_()
    (slopes,) = torch.autograd.grad(function(x).sum(), x)
    steepest = float(slopes.abs().amax())
    bound = lipschitz_bound(Calls(function), (4,))
    assert steepest * (1 - 1e-12) <= bound <= steepest * loose


@pytest.mark.parametrize("name", ENTRYWISE)
def test_float32_programs_are_within_the_proven_error(name: str) -> None:
    """certify compares the program with the exact function, and raises where rounding cannot explain a difference."""
    function, _ = ENTRYWISE[name]
    for size in (1e-20, 1e-4, 1.0, 10.0, 1e4, 1e8):
        assert bool(certify(Calls(function), size * torch.randn(20, 4), arithmetic="float32").radii.isfinite().all())


RADIAL: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt of a sum": lambda x: torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-2),
    "root mean square": lambda x: x.pow(2).mean(-1, keepdim=True).add(1e-2).sqrt(),
    "rms norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 0.1),
    "layer norm": lambda x: (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 0.1),
    "torch's layer norm": lambda x: F.layer_norm(x, (6,), eps=0.1),
    "unit ball": lambda x: x / x.norm(dim=-1, keepdim=True).clamp(min=1.0),
    "normalize": lambda x: F.normalize(x, dim=-1, eps=0.1),
    "generalised mean": lambda x: x.clamp(min=0.1).pow(3).mean(-1, keepdim=True).pow(1 / 3),
    "local response": lambda x: F.local_response_norm(x[:, :, None], 3, alpha=0.1)[..., 0],
    "centred": lambda x: x - x.mean(-1, keepdim=True),
    "deviation": lambda x: x.std(-1, keepdim=True),
    "order 1": lambda x: x.norm(p=1, dim=-1, keepdim=True),
    "order 3": lambda x: x.norm(p=3, dim=-1, keepdim=True),
    "median": lambda x: x.median(-1, keepdim=True).values,
    "quantile": lambda x: x.quantile(0.3, dim=-1, keepdim=True),
    "cummax": lambda x: x.cummax(-1).values,
    "cdist": lambda x: torch.cdist(x, torch.arange(18.0).reshape(3, 6).to(x) / 9),
    "log of two": lambda x: torch.logaddexp(x[:, :3], x[:, 3:]),
    "gate": lambda x: x[:, :3].tanh() * x[:, 3:].sigmoid(),
    "gate in front": lambda x: x[:, :3].sigmoid() * x[:, 3:].clamp(-2, 2),
    "softmin": lambda x: F.softmin(x, dim=-1),
}


@pytest.mark.parametrize("name", RADIAL)
def test_no_jacobian_exceeds_the_bound(name: str) -> None:
    function = RADIAL[name]
    bound, steepest = lipschitz_bound(Calls(function), (6,)), 0.0
    for size in (1e-3, 0.1, 0.3, 1.0, 3.0, 100.0):
        for _ in range(6):
            jacobian: Any = torch.autograd.functional.jacobian(function, size * torch.randn(1, 6).double())
            steepest = max(steepest, float(torch.linalg.matrix_norm(jacobian[0, :, 0], 2)))
    assert steepest <= bound * (1 + 1e-9)
    assert bound <= 4.5 * steepest
    for size in (1e-12, 1.0, 1e5):
        model = nn.Sequential(Calls(function), nn.Linear(int(function(torch.randn(2, 6)).shape[1]), 3))
        certify(model, size * torch.randn(5, 6), arithmetic="float32")


def _by_two_norms(x: Tensor, first: Any, second: Any) -> Tensor:
    """Norms along different dimensions do not cancel."""
    pairs = x.unflatten(1, (2, -1))
    grown = pairs * (1 + pairs.norm(dim=first, keepdim=True))
    return (grown / (1 + pairs.norm(dim=second, keepdim=True))).flatten(1)


@pytest.mark.parametrize(
    "function",
    [
        torch.square,
        torch.exp,
        torch.sign,
        lambda x: x + x**2,
        lambda x: x + (x > 0),
        lambda x: torch.maximum(x, 0 * x) - (x > 0),
        lambda x: (x > 0) * (x < 1) * x,
        lambda x: x * x.sum(1, keepdim=True),
        lambda x: (x * x).sum(1, keepdim=True),
        lambda x: torch.where(x > 0, x, x - 1e-3),
        lambda x: torch.where(x > 1, x, 2 * x),
        lambda x: x / x.norm(dim=1, keepdim=True),
        lambda x: _by_two_norms(x, 1, 2),
        lambda x: _by_two_norms(x, (1, 2), 2),
        lambda x: x.abs().sqrt(),
        lambda x: x[:, :2] * x[:, 2:].sigmoid(),
        lambda x: x * x.flip(1),
        lambda x: torch.sqrt((x * x).sum(1, keepdim=True)) * x,
    ],
)
def test_what_has_no_constant_is_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UnknownLipschitzConstant):
        lipschitz_bound(Calls(function), (4,))


@pytest.mark.parametrize("cell", [nn.RNNCell(4, 4), nn.GRUCell(4, 4), nn.LSTMCell(4, 4)])
def test_recurrent_cells_with_bounded_states(cell: nn.Module) -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, x: Tensor) -> Tensor:
            state: Any = None
            for step in x.tanh().unbind(1):
                state = self.cell(step, state)
            return state[0] if isinstance(state, tuple) else state

    model = Steps()
    bound = lipschitz_bound(model, (3, 4))
    jacobian: Any = torch.autograd.functional.jacobian(model.double(), torch.randn(1, 3, 4).double())
    assert float(torch.linalg.matrix_norm(jacobian.reshape(4, 12), 2)) <= bound < math.inf


def test_parts_of_what_a_model_returns() -> None:
    x = torch.randn(3, 4)
    plain, shapes = (
        nn.Linear(4, 3),
        {"logits": Calls(lambda t: {"logits": plain(t)}), 1: Calls(lambda t: (t, plain(t)))},
    )
    for output, model in shapes.items():
        model.add_module("plain", plain)
        assert torch.equal(certify(model, x, output=output).radii, certify(plain, x).radii)
        with pytest.raises(UnknownLipschitzConstant, match="output="):
            certify(model, x)
    with pytest.raises(InvalidInputError, match="is not in what the model returns"):
        certify(shapes["logits"], x, output="scores")


def test_one_number_with_a_threshold() -> None:
    model, x = nn.Linear(4, 1), torch.randn(6, 4)
    weight, bias = model.weight.detach().double(), model.bias.detach().double()
    exact = (x.double() @ weight[0] + bias - 0.2).abs() / weight.norm()
    certificate = certify(model, x, threshold=0.2)
    assert torch.equal(certificate.predictions, (model(x)[:, 0] > 0.2).long())
    rounding = 1e-6 * (x.norm(dim=1) + 1)  # of a score in float32, beside which a radius may be small
    assert bool((certificate.radii <= exact * (1 + 1e-12)).all())
    assert bool((certificate.radii >= exact - rounding).all())
    with pytest.raises(InvalidInputError, match="threshold"):
        certify(model, x)


def test_values_of_rising_functions_are_in_a_range() -> None:
    """1 / (elu(tanh) + 1.1) has a slope of at most 1 / (e^-1 + 0.1)^2."""
    bound = lipschitz_bound(Calls(lambda x: 1 / (F.elu(x.tanh()) + 1.1)), (4,))
    assert bound <= 1.01 / (math.exp(-1) + 0.1) ** 2
    assert lipschitz_bound(Calls(lambda x: torch.exp(F.leaky_relu(x.tanh(), 0.2))), (4,)) <= 1.01 * math.e
    with pytest.raises(UnknownLipschitzConstant):
        lipschitz_bound(Calls(lambda x: torch.exp(F.leaky_relu(x, -0.2))), (4,))
