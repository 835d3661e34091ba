"""The traps of existing implementations that concern layers, by their number in methods.md.

Traps 10, 12, 13, 14 and 16 concern certificates: `test_trap_NN_...` in test_certification_bounds.py and
test_certification_certificates.py.
"""

from __future__ import annotations

import math

import pytest
import torch
from jacobians import circular_norm, distance_from_isometry, jacobian, norm_at
from torch import nn
from torch.nn import functional as F

from onelip.layers import (
    CPLConv2d,
    ECOConv2d,
    LipschitzLayer,
    LOTConv2d,
    SLLConv2d,
    SOCConv2d,
    create_conv,
    create_linear,
    list_methods,
)
from onelip.layers.operators import Operator
from onelip.linalg.norm_estimates import estimate_matrix_norm

LIPSCHITZ = [method.key for method in list_methods() if method.guarantee != "none"]
each_method = pytest.mark.parametrize("key", LIPSCHITZ)
SHAPES = {"conv": (3, 5, 4), "linear": (5,)}
each_kind = pytest.mark.parametrize("kind", SHAPES)
EPS = 1e-9


def create(key: str, kind: str, *, bias: bool = True, dtype: torch.dtype = torch.float64) -> LipschitzLayer:
    """A small layer from and to SHAPES[kind]."""
    if kind == "conv":
        return create_conv(key, 3, 3, 3, bias=bias, dtype=dtype)
    return create_linear(key, 5, 5, bias=bias, dtype=dtype)


def image(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


def test_trap_01_cpl_evaluates_with_an_upper_bound_where_a_power_iteration_falls_short() -> None:
    """The bias keeps all units active, so that the Jacobian is I - 2 W^T W / s^2: expansive as soon as s < ||W||."""
    layer = CPLConv2d(8, 8, 3, dtype=torch.float64, init="xavier").eval()
    nn.init.constant_(layer.get_parameter("bias"), 100.0)
    true_norm = float(circular_norm(layer.weight.detach(), (6, 6)))
    dense = jacobian(_convolution(layer.weight), image(8, 6, 6))
    estimate, _ = estimate_matrix_norm(dense, torch.randn(dense.shape[1], dtype=torch.float64))
    assert estimate < true_norm * (1 - 1e-4)
    assert math.sqrt(2) / float(layer.operator((6, 6)).tensors()["root"][0]) >= true_norm * (1 - 1e-14)
    x = image(8, 6, 6)
    assert norm_at(layer, x) <= 1 + EPS
    proven = layer.operator((6, 6))
    naive = proven.with_tensors({**proven.tensors(), "kernel": layer.weight.detach() * math.sqrt(2) / float(estimate)})
    with torch.no_grad():
        naive_layer = _Apply(layer, naive)
    assert norm_at(naive_layer, x) > 1 + 1e-4


@each_method
@each_kind
@pytest.mark.parametrize("scale", [1e-20, 1e-12, 0.0, 1e12])
def test_trap_02_an_epsilon_may_only_shrink(key: str, kind: str, scale: float) -> None:
    layer = create(key, kind, bias=False, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(scale * torch.randn_like(parameter))
    x = torch.randn(SHAPES[kind])
    assert layer(x).isfinite().all()
    assert norm_at(layer, x) <= 1 + 1e-5


@each_method
@each_kind
def test_trap_03_weights_redrawn_after_construction(key: str, kind: str) -> None:
    layer = create(key, kind)
    layer.eval()(image(1, *SHAPES[kind]))
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=50.0)
    assert norm_at(layer, image(*SHAPES[kind])) <= 1 + EPS


@each_method
@each_kind
def test_trap_04_evaluation_sees_the_last_step(key: str, kind: str) -> None:
    layer = create(key, kind)
    x = image(2, *SHAPES[kind])
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(2):
        layer.train()
        (layer(x) * torch.randn_like(x)).sum().backward()
        optimiser.step()
        twin = create(key, kind)
        twin.load_state_dict(layer.state_dict())
        assert torch.equal(layer.eval()(x), twin.eval()(x))


@each_method
@each_kind
def test_trap_05_no_parameter_appears_in_forward(key: str, kind: str) -> None:
    layer = create(key, kind)
    names, buffers = set(dict(layer.named_parameters())), set(dict(layer.named_buffers()))
    for shape in (SHAPES[kind], (3, 8, 8) if kind == "conv" else (7, 5)):
        layer.train()(image(1, *shape))
        layer.eval()(image(1, *shape))
    assert set(dict(layer.named_parameters())) == names
    assert set(dict(layer.named_buffers())) == buffers
    create(key, kind).load_state_dict(layer.state_dict(), strict=True)


@each_method
def test_trap_06_no_argument_is_ignored(key: str) -> None:
    x = torch.randn(1, 3, 8, 8)
    assert create_conv(key, 3, 5, 3, stride=2)(x).shape == (1, 5, 4, 4)
    assert create_conv(key, 3, 5, 3, bias=False).bias is None
    modes = create_conv(key, 3, 3, 3).padding_modes
    if "zeros" in modes:
        circular = create_conv(key, 3, 3, 3, init="normal" if key != "bcop" else "orthogonal")
        zeros = create_conv(key, 3, 3, 3, padding_mode="zeros")
        zeros.load_state_dict(circular.state_dict())
        assert not torch.allclose(circular.eval()(x), zeros.eval()(x), atol=1e-4)
    else:
        with pytest.raises(ValueError, match="padding_mode"):
            create_conv(key, 3, 3, 3, padding_mode="zeros")


@each_method
def test_trap_06_no_argument_of_a_linear_layer_is_ignored(key: str) -> None:
    for inputs, outputs in [(3, 5), (5, 3)]:
        assert create_linear(key, inputs, outputs)(torch.randn(2, inputs)).shape == (2, outputs)
    assert create_linear(key, 3, 5).bias is not None
    assert create_linear(key, 3, 5, bias=False).bias is None
    starts = [create_linear(key, 4, 4, init=init, bias=False).eval()(torch.eye(4)) for init in ("xavier", "identity")]
    assert not torch.allclose(*starts, atol=1e-2)
    assert create_linear(key, 3, 5, dtype=torch.float64)(image(2, 3)).dtype == torch.float64


@each_method
@pytest.mark.parametrize("size", [(5, 5), (7, 4), (1, 9)])
def test_trap_07_odd_sizes_keep_their_shape(key: str, size: tuple[int, int]) -> None:
    layer = create_conv(key, 2, 2, 3, dtype=torch.float64).eval()
    assert layer(image(1, 2, *size)).shape == (1, 2, *size)
    assert norm_at(layer, image(2, *size)) <= 1 + EPS


@pytest.mark.parametrize("size", [6, 7, 8, 9])
def test_trap_08_eco_where_its_kernel_does_not_divide_the_image(size: int) -> None:
    layer = ECOConv2d(4, 4, 3, dtype=torch.float64, init="normal").eval()
    matrix = jacobian(layer, image(4, size, size))
    assert torch.linalg.matrix_norm(matrix, 2) <= 1 + EPS
    if size % 3 == 0:
        assert distance_from_isometry(matrix) <= 1e-12


@each_method
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_trap_09_padding_that_expands_is_refused(key: str, mode: str) -> None:
    with pytest.raises(ValueError, match="padding_mode"):
        create_conv(key, 3, 3, 3, padding_mode=mode)


def test_trap_11_a_small_torus_under_estimates_the_norm() -> None:
    """CPL must look at the torus of its own image: the norm on 3 x 3 is too small for 12 x 12."""
    layer = CPLConv2d(2, 2, 3, dtype=torch.float64, bias=False).eval()
    norms = []
    for _ in range(20):
        nn.init.normal_(layer.weight)
        kernel = layer.weight.detach()
        small, large = float(circular_norm(kernel, (3, 3))), float(circular_norm(kernel, (12, 12)))
        norms.append(small / large)
        assert math.sqrt(2) / float(layer.operator((12, 12)).tensors()["root"][0]) >= large * (1 - 1e-12)
    assert min(norms) < 0.95


@pytest.mark.parametrize("terms", [1, 2, 5, 6, 9, 10])
def test_trap_15_expansive_truncations_are_refused(terms: int) -> None:
    modulus = abs(sum((1j) ** j / math.factorial(j) for j in range(terms + 1)))
    assert modulus > 1
    with pytest.raises(ValueError, match="expand"):
        SOCConv2d(4, 4, 3, padding_mode="zeros", eval_terms=terms)


@pytest.mark.parametrize("terms", [3, 4, 7, 8, 12])
@pytest.mark.parametrize("mode", ["circular", "zeros"])
def test_trap_15_accepted_truncations_contract_in_training(terms: int, mode: str) -> None:
    layer = SOCConv2d(3, 3, 3, algorithm="series", padding_mode=mode, train_terms=terms, dtype=torch.float64)  # pyright: ignore[reportArgumentType]
    assert norm_at(layer, image(3, 5, 5)) <= 1 + EPS
    assert distance_from_isometry(jacobian(layer.eval(), image(3, 5, 5))) <= 1e-8


def test_trap_17_the_diagonal_of_sll_learns() -> None:
    layer = SLLConv2d(4, 4, 3, dtype=torch.float64, init="xavier")
    (layer(image(2, 4, 5, 5)) * image(2, 4, 5, 5)).sum().backward()
    gradient = layer.q.grad
    assert gradient is not None
    assert gradient.abs().min() > 1e-6


def test_lot_stays_orthogonal_where_the_kernel_is_badly_conditioned() -> None:
    layer = LOTConv2d(4, 4, 3, dtype=torch.float64, init="normal").eval()
    with torch.no_grad():
        layer.weight[0] *= 1e-3
    assert distance_from_isometry(jacobian(layer, image(4, 4, 4))) <= 1e-8


class _Apply(nn.Module):
    """A layer with other transformed parameters than its own."""

    def __init__(self, layer: CPLConv2d, transformed: Operator) -> None:
        super().__init__()
        self.layer, self.transformed = layer, transformed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer.apply_to(x, self.transformed)


def _convolution(kernel: torch.Tensor) -> nn.Module:
    class Convolution(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), kernel.detach())

    return Convolution()
