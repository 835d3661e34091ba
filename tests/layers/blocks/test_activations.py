from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from onelip.errors import InvalidInputError
from onelip.layers import Abs, GroupSort, Householder, MaxMin


def random_householder(channels: int) -> Householder:
    module = Householder(channels, dtype=torch.float64)
    nn.init.uniform_(module.angle, -math.pi, math.pi)
    return module


ACTIVATIONS = {
    "maxmin": MaxMin(),
    "groupsort2": GroupSort(2),
    "groupsort4": GroupSort(4),
    "groupsort8": GroupSort(8),
    "householder": random_householder(8),
    "abs": Abs(),
}
LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "hwbc": lambda x: x.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1),
}


def plain_max_min(x: Tensor, dim: int = 1) -> Tensor:
    first, second = x.chunk(2, dim)
    return torch.cat([torch.maximum(first, second), torch.minimum(first, second)], dim)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_jacobian_is_orthogonal(name: str) -> None:
    activation = ACTIVATIONS[name]
    x = torch.randn(1, 8, 2, 2, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(activation, x).reshape(x.numel(), x.numel())
    torch.testing.assert_close(jacobian.T @ jacobian, torch.eye(x.numel(), dtype=x.dtype))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_distances_never_grow(name: str) -> None:
    """Also across the places where the activation has a kink: pairs at distances from 1e-3 to 10."""
    activation = ACTIVATIONS[name]
    x = torch.randn(2000, 8, dtype=torch.float64)
    y = x + torch.randn_like(x) * 10 ** torch.empty(2000, 1, dtype=torch.float64).uniform_(-3, 1)
    ratio = (activation(x) - activation(y)).norm(dim=1) / (x - y).norm(dim=1)
    assert ratio.max() <= 1 + 1e-12
    assert activation.bound(tuple(x[0].shape)).lipschitz == 1.0


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradcheck(name: str) -> None:
    x = torch.randn(2, 8, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ACTIVATIONS[name], (x,))
    assert torch.autograd.gradgradcheck(ACTIVATIONS[name], (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_max_min_equals_its_definition_and_keeps_the_layout(layout: str, dtype: torch.dtype) -> None:
    x = LAYOUTS[layout](torch.randn(3, 6, 5, 4).to(dtype)).requires_grad_()
    reference = x.detach().clone().requires_grad_()
    grad = LAYOUTS[layout](torch.randn(3, 6, 5, 4).to(dtype))
    y = MaxMin()(x)
    y.backward(grad)
    plain_max_min(reference).backward(grad)
    assert torch.equal(y, plain_max_min(reference))
    assert y.stride() == x.stride()
    # Equal numbers in float16 are not rare, and the plain gradient averages there.
    differs = (x[:, :3] != x[:, 3:]).repeat(1, 2, 1, 1)
    assert x.grad is not None
    assert reference.grad is not None
    assert torch.equal(x.grad[differs], reference.grad[differs])


@pytest.mark.parametrize(("shape", "dim"), [((6,), 0), ((2, 6), -1), ((2, 3, 6), 2), ((6, 3, 2), 0)])
def test_max_min_along_any_dimension(shape: tuple[int, ...], dim: int) -> None:
    x = torch.randn(shape)
    assert torch.equal(MaxMin(dim)(x), plain_max_min(x, dim))
    assert torch.equal(GroupSort(2, dim)(x), plain_max_min(x, dim))


def max_min_by_torch_func(x: Tensor, grad: Tensor) -> Tensor:
    return torch.func.vjp(MaxMin(), x)[1](grad)[0]


def max_min_by_autograd(x: Tensor, grad: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(MaxMin()(x), x, grad)[0]


@pytest.mark.parametrize("gradient", [max_min_by_autograd, max_min_by_torch_func])
def test_ties_route_each_gradient_to_exactly_one_input(gradient: Callable[[Tensor, Tensor], Tensor]) -> None:
    x = torch.tensor([[1.0, 2.0, 0.0, 1.0, 2.0, 0.0]])
    grad = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    assert torch.equal(gradient(x, grad), grad)


def test_max_min_keeps_only_a_mask_for_the_backward_pass() -> None:
    x = torch.randn(4, 8, 6, 6, requires_grad=True)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        MaxMin()(x)
    assert [(t.dtype, t.numel()) for t in saved] == [(torch.bool, x.numel() // 2)]


def test_max_min_does_not_touch_its_input_or_the_gradient() -> None:
    x = torch.randn(2, 4, 3)
    grad = torch.randn(2, 4, 3)
    copies = x.clone(), grad.clone()
    max_min_by_autograd(x, grad)
    assert torch.equal(x, copies[0])
    assert torch.equal(grad, copies[1])


@pytest.mark.parametrize("name", ["maxmin", "groupsort4", "householder", "abs"])
def test_compile_export_and_torch_func(name: str) -> None:
    activation = ACTIVATIONS[name]
    x = torch.randn(3, 8, 4, dtype=torch.float64, requires_grad=True)
    expected = activation(x)
    (grad,) = torch.autograd.grad(expected.square().sum(), x)
    compiled = torch.compile(activation, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(compiled, expected)
    assert torch.equal(torch.autograd.grad(compiled.square().sum(), x)[0], grad)
    exported = torch.export.export(activation.eval(), (x.detach(),)).module()
    assert torch.equal(exported(x.detach()), expected)
    per_sample = torch.func.vmap(torch.func.grad(lambda one: activation(one[None]).square().sum()))(x.detach())
    torch.testing.assert_close(per_sample, grad)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_without_data(name: str) -> None:
    if name != "householder":
        assert ACTIVATIONS[name](torch.empty(2, 8, 3, device="meta")).shape == (2, 8, 3)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert ACTIVATIONS[name](torch.empty(2, 8, 3, dtype=torch.float64)).shape == (2, 8, 3)
    assert Householder(8, device="meta")(torch.empty(2, 8, 3, device="meta")).shape == (2, 8, 3)


@pytest.mark.parametrize("activation", [MaxMin(), GroupSort(4), Householder(8), Abs()])
def test_autocast_keeps_low_precision(activation: nn.Module) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert activation(torch.randn(2, 8).bfloat16()).dtype == torch.bfloat16


def test_group_sort_against_brute_force() -> None:
    x = torch.randn(5, 12)
    y = GroupSort(3)(x)
    for sample in range(5):
        for group in range(4):
            expected = sorted(x[sample, group::4].tolist(), reverse=True)
            assert y[sample, group::4].tolist() == expected


def test_householder_starts_as_max_min_and_learns() -> None:
    module = Householder(6, dtype=torch.float64)
    x = torch.randn(50, 6, 4, dtype=torch.float64)
    torch.testing.assert_close(module(x), plain_max_min(x))
    module(x)[:, 0].square().sum().backward()
    assert module.angle.grad is not None
    assert module.angle.grad[0] != 0


def test_householder_reflects_across_its_line() -> None:
    module = Householder(2, dtype=torch.float64)
    nn.init.constant_(module.angle, math.pi / 3)  # the line at 30 degrees
    half = math.pi / 6
    below = torch.tensor([[math.cos(half - 0.2), math.sin(half - 0.2)]], dtype=torch.float64)
    above = torch.tensor([[math.cos(half + 0.2), math.sin(half + 0.2)]], dtype=torch.float64)
    torch.testing.assert_close(module(below), below)
    torch.testing.assert_close(module(above), below)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: MaxMin()(torch.randn(2, 5)), "MaxMin needs a multiple of 2 channels in dimension 1, got 5"),
        (lambda: GroupSort(3)(torch.randn(2, 8)), "GroupSort needs a multiple of 3 channels in dimension 1, got 8"),
        (lambda: GroupSort(1), "group_size=1 must be an integer of at least 2"),
        (
            lambda: GroupSort(2.0),  # type: ignore[arg-type]
            "group_size=2.0 must be an integer of at least 2",
        ),
        (lambda: Householder(5), "channels=5 must be a positive even integer"),
        (lambda: Householder(0), "channels=0 must be a positive even integer"),
        (lambda: Householder(4)(torch.randn(2, 6)), "got an input of 6 channels in dimension 1"),
    ],
)
def test_bad_input(use: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        use()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
