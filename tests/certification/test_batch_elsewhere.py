"""Values whose batch is no longer the first dimension, or one with others: bounds hold, mixing is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_models import Calls
from torch import Tensor, nn
from torch.nn import functional as F

from onelip import certify, lipschitz_bound
from onelip.errors import UnknownLipschitzConstant

torch.manual_seed(0)
MATRIX = torch.randn(3, 2)
KERNEL = torch.randn(3, 1, 2, 2)

APART: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    # functions of inputs (4, 2), and how loose the bound may be
    "rows of all inputs": (lambda x: F.linear(x.reshape(-1, 2), MATRIX.to(x)).reshape(len(x), 12), 1.001),
    "images of all inputs": (
        lambda x: F.conv2d(x.reshape(-1, 1, 2, 2), KERNEL.to(x)).view(len(x), 2, 3).amax(1),
        2.0,
    ),
    "rows in two steps": (
        lambda x: F.pad(x.view(-1, 2), (0, 1)).tanh().view(-1, 6).softmax(1).view(len(x), -1),
        2.5,
    ),
    "norms of rows": (lambda x: F.layer_norm(x.flatten(0, 1), (2,), eps=1.0).unflatten(0, (-1, 4)).flatten(1), 1.5),
    "rows that are taken twice": (lambda x: x.reshape(-1, 2)[:, [0, 0, 1]].reshape(len(x), 12), 1.001),
    "swish of rows": (lambda x: (lambda r: r * torch.sigmoid(2 * r))(x.reshape(-1, 2)).reshape(len(x), 8), 1.001),
    "leaky rows and their maxima": (
        lambda x: (lambda r: torch.cat([torch.maximum(r, -r), torch.minimum(r, -r)], 1))(x.reshape(-1, 2)).view(-1, 16),
        1.001,
    ),
    "time first": (lambda x: torch.stack([F.linear(step, MATRIX.to(x)) for step in x.transpose(0, 1)]).sum(0), 2.001),
    "softmax over time": (lambda x: x.transpose(0, 1).softmax(0).permute(1, 0, 2).flatten(1), 1.5),
    "places of time": (lambda x: torch.cat([x.transpose(0, 1)[-1], x.transpose(0, 1)[1:3].sum(0)], 1), 1.5),
    "sorted over time": (lambda x: x.transpose(0, 1).sort(0).values[0], 1.5),
    "a mean of models": (lambda x: torch.stack([x[:, 0], 2 * x[:, 1], x[:, 2]]).mean(0), 1.5),
    "a median of models": (lambda x: torch.stack([x[:, 0], x[:, 1], 3 * x[:, 0]], 0).median(0)[0], 1.5),
    "one number": (lambda x: x.reshape(-1, 2).norm(dim=1).view(len(x), 4), 1.001),
}


@pytest.mark.parametrize("name", APART)
def test_no_jacobian_exceeds_the_bound(name: str) -> None:
    function, loose = APART[name]
    bound = lipschitz_bound(Calls(function), (4, 2))
    points = [size * torch.randn(1, 4, 2, dtype=torch.float64) for size in (0.0, 0.1, 0.3, 1.0, 1.0, 3.0) * 20]
    jacobians = [torch.autograd.functional.jacobian(function, x).reshape(-1, 8) for x in points]
    steepest = max(float(torch.linalg.matrix_norm(jacobian, 2)) for jacobian in jacobians)
    assert steepest <= bound * (1 + 1e-9)
    assert bound <= steepest * loose


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e4, 1e15])
def test_float32_programs_are_within_the_proven_error(name: str, size: float) -> None:
    """certify compares the program with the exact function."""
    for batch in (1, 2, 5):
        certify(Calls(APART[name][0]), size * torch.randn(batch, 4, 2), arithmetic="float32")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(-1, 2).softmax(0).reshape(x.shape),
        lambda x: (x.reshape(-1, 2) - x.reshape(-1, 2).mean(0)).reshape(x.shape),
        lambda x: x.reshape(-1, 2)[: len(x)],
        lambda x: x.reshape(-1, 2).flip(0).reshape(x.shape),
        lambda x: x.reshape(-1, 2).T.reshape(len(x), 8),
        lambda x: x.reshape(-1, 2),
        lambda x: x.reshape(2, -1, 2).sum(0),
        lambda x: x.transpose(0, 1).reshape(len(x), 8),
        lambda x: x.transpose(0, 1).sum(1),
        lambda x: x.transpose(0, 1).softmax(1).transpose(0, 1),
        lambda x: x.transpose(0, 1)[:, 0],
        lambda x: x.transpose(0, 1) * torch.ones(len(x), 1),
        lambda x: torch.stack([x, x]).mean(1),
        lambda x: torch.stack([x, x]).reshape(len(x), -1),
        lambda x: torch.cat([x, x]).reshape(len(x), -1),
        lambda x: x + x.reshape(-1, 2).mean(1)[: len(x), None, None],
        lambda x: torch.matmul(x[:, :2].tanh().transpose(0, 1), x[:, :2].sigmoid().transpose(0, 1)).transpose(0, 1),
        lambda x: torch.cat([x[:, :2].permute(1, 0, 2), x[:, :2].permute(1, 2, 0)]).sum(0),
    ],
)
def test_what_mixes_the_inputs_is_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UnknownLipschitzConstant):
        lipschitz_bound(Calls(function), (4, 2))


class Sequence(nn.Module):
    """A recurrent layer of torch's on bounded steps."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        first: Any = self.layer.batch_first
        values, state = self.layer(x.tanh() if first else x.tanh().transpose(0, 1))
        state = state[0] if isinstance(state, tuple) else state
        return torch.cat([values[:, -1] if first else values[-1], state[0]], 1)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize(
    "options", [{"batch_first": True}, {"num_layers": 2}, {"bidirectional": True, "bias": False}], ids=str
)
def test_recurrent_layers(kind: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = Sequence(kind(2, 3, **options)).eval()
    bound = lipschitz_bound(model, (4, 2))
    certify(model, torch.randn(3, 4, 2), arithmetic="float32")
    model.double()
    jacobian: Any = torch.autograd.functional.jacobian(model, torch.randn(1, 4, 2, dtype=torch.float64))
    assert float(torch.linalg.matrix_norm(jacobian.reshape(-1, 8), 2)) <= bound


def test_products_of_two_bounded_values_in_letters() -> None:
    def mixed(x: Tensor) -> Tensor:
        weights = torch.einsum("btd,bsd->bts", x.tanh(), x.sigmoid()).softmax(-1)
        return torch.einsum("bts,bsd->bdt", weights, x.clamp(-1, 1)).flatten(1)

    bound = lipschitz_bound(Calls(mixed), (4, 2))
    certify(Calls(mixed), torch.randn(3, 4, 2), arithmetic="float32")
    jacobian: Any = torch.autograd.functional.jacobian(mixed, torch.randn(1, 4, 2, dtype=torch.float64))
    assert float(torch.linalg.matrix_norm(jacobian.reshape(-1, 8), 2)) <= bound
    with pytest.raises(UnknownLipschitzConstant):
        lipschitz_bound(Calls(lambda x: torch.einsum("btd,bsd->bts", x, x.sigmoid())), (4, 2))


class Continued(nn.Module):
    """A recurrent layer with an initial state whose product with the weights cancels."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.layer, self.state = kind(2, 64, **options), nn.Parameter(1e4 * torch.randn(64))
        state = self.state.detach().double()
        with torch.no_grad():
            weight = self.layer.weight_hh_l0
            weight -= torch.outer(weight.double() @ state / state.square().sum(), state).float()

    def forward(self, x: Tensor) -> Tensor:
        state = self.state.expand(1, len(x), -1).contiguous()
        long = isinstance(self.layer, nn.LSTM)
        return self.layer(x.transpose(0, 1), (state, torch.zeros_like(state)) if long else state)[0][0]


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_initial_states_are_multiplied_in_the_arithmetic_of_the_program(kind: Any) -> None:
    torch.manual_seed(0)
    model = Continued(kind, **({"nonlinearity": "relu"} if kind is nn.RNN else {})).eval()
    for batch in (2, 5, 17):
        certify(model, torch.randn(batch, 1, 2), arithmetic="float32")


def test_initial_states_that_differ_between_the_inputs_are_refused() -> None:
    layer = nn.GRU(2, 3, batch_first=True).eval()

    def by_place(x: Tensor) -> Tensor:
        return layer(x.tanh(), torch.arange(3.0 * len(x)).reshape(1, len(x), 3))[0][:, -1]

    with pytest.raises(UnknownLipschitzConstant):
        lipschitz_bound(Calls(by_place), (4, 2))
    with pytest.raises(UnknownLipschitzConstant):
        certify(Calls(by_place), torch.randn(5, 4, 2))


def test_attention_with_weights_that_are_constants_is_refused() -> None:
    query, key = torch.randn(2, 1, 3, 4)
    with pytest.raises(UnknownLipschitzConstant):
        lipschitz_bound(Calls(lambda x: F.scaled_dot_product_attention(query, key, x.tanh())), (3, 4))


def test_mixing_that_only_longer_batches_show_is_refused() -> None:
    """The model is traced on two inputs, of which these are two steps: there, and for one input, nothing moves."""

    def sorted_steps(x: Tensor) -> Tensor:
        steps = x.view(x.shape[1], len(x), -1).sum(2)  # meant as x.transpose(0, 1)
        return steps.sort(1).values.reshape(len(x), -1).mean(1, keepdim=True)

    with pytest.raises(UnknownLipschitzConstant, match="number of inputs"):
        lipschitz_bound(Calls(sorted_steps), (2, 3))
