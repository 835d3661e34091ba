"""Weights of ordinary layers under a method's transformation: exact norms, gradients, what torch does with them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from jacobians import norm_at
from torch import nn
from torch.nn.utils.parametrize import remove_parametrizations

from onelip import certify, lipschitz_bound
from onelip.errors import InvalidInputError
from onelip.layers import BjorckLinear, MaxMin, parametrize

CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain": (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 5, 6)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), (4, 5, 5)),
    "even, strided": (lambda: nn.Conv2d(2, 4, (4, 2), stride=2), (2, 6, 6)),
    "dilated, circular": (lambda: nn.Conv2d(2, 2, 3, padding=2, dilation=2, padding_mode="circular"), (2, 6, 6)),
    "signals": (lambda: nn.Conv1d(2, 3, 3, stride=2), (2, 9)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 4, 2, 1, groups=2), (4, 3, 3)),
    "transposed signals": (lambda: nn.ConvTranspose1d(3, 2, 3, 2), (3, 5)),
}


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("method", ["aol", "bcop", "bjorck", "cholesky", "lot", "oni", "spectral"])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_matrices_have_norm_at_most_1(shape: tuple[int, int], method: str, scale: float) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(shape[1], shape[0]).double()
    with torch.no_grad():
        linear.weight.copy_(scale * torch.randn(shape))
    parametrize(linear, method).eval()
    values = torch.linalg.svdvals(linear.weight.detach())
    assert float(values[0]) <= 1 + 1e-7
    assert float(values[0]) > 0.5
    if method in ("bcop", "bjorck", "lot"):
        assert torch.allclose(values, torch.ones_like(values), atol=1e-6)


@pytest.mark.parametrize("method", ["aol", "bjorck", "oni"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_have_norm_at_most_1(case: str, method: str) -> None:
    torch.manual_seed(0)
    make, shape = CONVOLUTIONS[case]
    conv = make().double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(3 * torch.randn_like(parameter))
    x = torch.randn(shape, dtype=torch.float64)
    assert norm_at(conv, x) > 1
    norm = norm_at(parametrize(conv, method).eval(), x)
    assert 0.1 < norm <= 1 + 1e-9
    bound = lipschitz_bound(conv, shape)
    assert norm <= bound * (1 + 1e-12) <= 1 + 1e-6
    model = nn.Sequential(conv, MaxMin() if case == "transposed" else nn.ReLU(), nn.Flatten()).float()
    assert bool((certify(model, torch.randn(3, *shape)).radii >= 0).all())


def test_gradients_reach_the_free_weight_and_steps_change_it() -> None:
    torch.manual_seed(0)
    linear = parametrize(nn.Linear(4, 3, dtype=torch.float64), "bjorck")
    constraint = linear.get_submodule("parametrizations.weight.0").eval()
    assert torch.autograd.gradcheck(constraint, torch.randn(3, 4, dtype=torch.float64, requires_grad=True))
    assert sorted(linear.state_dict()) == ["bias", "parametrizations.weight.original"]
    before, x = linear.weight.detach().clone(), torch.randn(8, 4, dtype=torch.float64)
    optimiser = torch.optim.SGD(linear.parameters(), 0.1)
    linear.train()(x).square().sum().backward()
    optimiser.step()
    assert not torch.allclose(linear.weight, before)
    assert float(torch.linalg.matrix_norm(linear.weight, 2).detach()) <= 1 + 1e-6


def test_it_is_the_transformation_of_the_layer_and_can_be_taken_off() -> None:
    torch.manual_seed(0)
    linear, layer = nn.Linear(5, 5), BjorckLinear(5, 5)
    assert layer.bias is not None
    with torch.no_grad():
        layer.weight.copy_(linear.weight)
        layer.bias.copy_(linear.bias)
    parametrize(linear, "bjorck").eval()
    x = torch.randn(3, 5)
    with torch.no_grad():
        expected = layer.eval()(x)
        assert torch.allclose(linear(x), expected, atol=1e-6)
        assert torch.allclose(copy.deepcopy(linear)(x), expected, atol=1e-6)
        remove_parametrizations(linear, "weight")
        assert type(linear) is nn.Linear
        assert torch.allclose(linear(x), expected, atol=1e-6)


def test_any_matrix_of_any_module() -> None:
    attention = nn.MultiheadAttention(4, 1)
    parametrize(attention, "aol", "in_proj_weight")
    assert float(torch.linalg.matrix_norm(attention.in_proj_weight, 2).detach()) <= 1 + 1e-6


def test_refusals_are_one_line() -> None:
    bad: list[tuple[Callable[[], object], str]] = [
        (lambda: parametrize(nn.Linear(3, 3), "cayley"), "cayley does not transform a matrix alone, use aol"),
        (lambda: parametrize(nn.Linear(3, 3), "stiefel"), "stiefel does not transform a matrix alone"),
        (lambda: parametrize(nn.Conv2d(3, 3, 3), "bcop"), "bcop does not transform a kernel alone, use aol"),
        (lambda: parametrize(nn.Conv2d(3, 3, 3, padding_mode="reflect"), "aol"), "'zeros' or 'circular'"),
        (lambda: parametrize(nn.Conv3d(3, 3, 3), "aol"), r"\(3, 3, 3, 3, 3\): a matrix can be constrained"),
        (lambda: parametrize(nn.ReLU(), "aol"), "ReLU has no parameter 'weight'"),
        (lambda: parametrize(parametrize(nn.Linear(3, 3)), "aol"), "free to be constrained"),
        (lambda: parametrize(nn.Linear(3, 3), "aoll"), "there is no method 'aoll'"),
    ]
    for call, words in bad:
        with pytest.raises(InvalidInputError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
