"""Proven Lipschitz bounds of layers and models: above exact Jacobians, close to them, and never guessed."""

from __future__ import annotations

import copy
import math
from typing import Any, Literal, TypeVar

import pytest
import torch
from jacobians import norm_at
from torch import Tensor, nn

from onelip.certification import (
    Normalise,
    Residual,
    UnknownLipschitzConstant,
    explain,
    lipschitz_bound,
    lipschitz_table,
)
from onelip.certification.leaves import in_float64
from onelip.errors import InvalidInputError
from onelip.fusing import fuse
from onelip.layers import MaxMin, create_conv, create_linear, list_methods
from onelip.layers.methods.aol import AOLConv2d, AOLLinear
from onelip.layers.methods.soc import SOCConv2d
from onelip.layers.operators import Kernel, Operator
from onelip.models import ConvNet
from onelip.proofs.exponential_series import series_norm_bound, squared_modulus

METHODS = [method.key for method in list_methods()]
SOUND = [method.key for method in list_methods() if method.guarantee != "none"]
ROUNDING = 1 + 1e-13
"""What the tests' own float64 Jacobians and SVDs may be off by."""
LINEAR = [method.key for method in list_methods() if method.linear]


Module = TypeVar("Module", bound=nn.Module)


def stirred(module: Module) -> Module:
    """Weights away from their starting values, in evaluation mode."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module.eval()


def worst_norm(module: nn.Module, shape: tuple[int, ...], points: int = 4) -> float:
    """Largest norm of exact Jacobians of the deployed weights, in float64, at several points."""
    deployed = in_float64(module)
    return max(norm_at(deployed, torch.randn(shape, dtype=torch.float64)) for _ in range(points))


CONVS = [
    (3, 3, {"kernel_size": 3}),
    (2, 5, {"kernel_size": 3, "bias": False}),
    (5, 2, {"kernel_size": 1}),
    (2, 4, {"kernel_size": 3, "stride": 2}),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("inputs", "outputs", "options"), CONVS)
@pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
def test_convolutions(method: str, inputs: int, outputs: int, options: dict[str, Any], padding_mode: str) -> None:
    layer = stirred(create_conv(method, inputs, outputs, padding_mode=padding_mode, **options))
    size = (5, 6)
    truth, bound = worst_norm(layer, (inputs, *size)), layer.lipschitz_bound(size)
    assert truth <= bound * ROUNDING
    if method in SOUND:
        assert bound <= 1 + 5e-6
    if method in LINEAR and padding_mode == "circular" and not (method == "eco" and options["kernel_size"] == 3):
        # Where a spectral layer cuts channels off, the rounding of its DFT is all that is lost.
        assert bound <= truth * (1 + 1e-5) or size[0] % options.get("stride", 1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 4), (3, 6), (6, 3)])
def test_linear_layers(method: str, inputs: int, outputs: int) -> None:
    layer = stirred(create_linear(method, inputs, outputs))
    truth, bound = worst_norm(layer, (inputs,)), layer.lipschitz_bound()
    assert truth / ROUNDING <= bound <= (1 + 5e-6 if method in SOUND else truth * (1 + 1e-6))
    if method in LINEAR:
        assert bound <= truth * (1 + 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_fused_models(method: str) -> None:
    """The plain modules that a network fuses to have bounds of their own, which agree."""
    model = stirred(ConvNet(method, None, 3, input_size=8, width=4))
    fused = fuse(model)
    assert lipschitz_bound(fused, (3, 8, 8)) == pytest.approx(lipschitz_bound(model), rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_models(method: str) -> None:
    model = stirred(ConvNet(method, None, 3, input_size=8, width=4))
    bound = lipschitz_bound(model)
    assert worst_norm(model, (3, 8, 8)) <= bound * ROUNDING
    if method in SOUND:
        assert bound <= 1 + 1e-4


def test_product_of_jacobians() -> None:
    """The product of the layers' exact norms is what the table holds."""
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    rows = lipschitz_table(model, (4,))
    norms = [float(torch.linalg.matrix_norm(model[i].weight.detach().double(), 2)) for i in (0, 2)]  # pyright: ignore
    assert [row.lipschitz for row in rows] == pytest.approx([norms[0], 1.0, norms[1]], rel=1e-8)
    assert rows[-1].product == pytest.approx(norms[0] * norms[1], rel=1e-8)
    assert rows[-1].product >= norms[0] * norms[1]
    assert [row.path for row in rows] == ["0", "1", "2"]
    assert rows[-1].output_shape == (3,)


PLAIN: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), (2, 6, 6)),
    (nn.Conv2d(2, 3, 2, padding="same", dilation=2), (2, 5, 5)),
    (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (2, 5, 5)),
    (nn.Conv2d(2, 3, 3, padding=2, padding_mode="circular", stride=2), (2, 5, 5)),
    (nn.Linear(5, 4), (5,)),
    (nn.Linear(5, 4), (3, 5)),
    (nn.AvgPool2d(2), (2, 6, 6)),
    (nn.AvgPool2d(3, stride=1, padding=1), (2, 5, 5)),
    (nn.AdaptiveAvgPool2d(1), (2, 4, 6)),
    (nn.MaxPool2d(2), (2, 6, 6)),
    (nn.MaxPool2d(3, stride=1), (2, 5, 5)),
    (nn.PixelUnshuffle(2), (2, 4, 4)),
    (nn.Flatten(), (2, 3, 3)),
    (nn.LeakyReLU(-2.0), (4,)),
    (nn.Tanh(), (4,)),
    (nn.Sigmoid(), (4,)),
    (nn.ELU(2.0), (4,)),
    (nn.Dropout(0.5), (4,)),
    (Normalise([0.5, 0.4], [0.2, 0.25]), (2, 3, 3)),
    (nn.AvgPool2d(2, ceil_mode=True), (1, 5, 5)),
    (nn.AvgPool2d(3, padding=1, count_include_pad=False), (1, 5, 5)),
    (nn.AdaptiveAvgPool2d(2), (1, 5, 5)),
    (nn.MaxPool2d(2, dilation=2), (1, 5, 5)),
    (nn.GELU(), (4,)),
    (nn.BatchNorm1d(4), (4,)),
    (Residual(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), (4,)),
    (Residual(AOLLinear(4, 4)), (4,)),
]


@pytest.mark.parametrize(("module", "shape"), PLAIN, ids=lambda value: type(value).__name__)
def test_plain_modules(module: nn.Module, shape: tuple[int, ...]) -> None:
    module = copy.deepcopy(module).eval()
    truth, bound = worst_norm(module, shape, points=20), lipschitz_bound(module, shape)
    assert truth <= bound * (1 + 1e-14)
    assert bound <= 3.1 * truth


def test_trap_10_the_norm_of_a_grouped_convolution_is_the_largest_of_its_groups() -> None:
    """Norms 3 and 2: neither 6, the product, nor 2, that of the last group."""
    conv = nn.Conv2d(2, 2, 1, groups=2, bias=False).eval()
    conv.weight.data = torch.tensor([3.0, 2.0]).reshape(2, 1, 1, 1)
    assert lipschitz_bound(conv, (2, 4, 4)) == pytest.approx(3.0, rel=1e-6)
    conv = nn.Conv2d(4, 6, 3, padding=1, groups=2).eval()
    bound = lipschitz_bound(conv, (4, 6, 6))
    parts = [nn.Conv2d(2, 3, 3, padding=1) for _ in range(2)]
    for part, kernel in zip(parts, conv.weight.detach().chunk(2), strict=True):
        part.weight.data = kernel
    assert bound == pytest.approx(max(lipschitz_bound(part.eval(), (2, 6, 6)) for part in parts), rel=1e-9)
    assert worst_norm(conv, (4, 6, 6)) <= bound * ROUNDING


def test_trap_14_the_smallest_standard_deviation_scales_the_constant() -> None:
    model = nn.Sequential(Normalise([0.5] * 3, [0.2, 0.25, 0.3]), nn.Flatten())
    assert lipschitz_bound(model, (3, 4, 4)) == pytest.approx(5.0, rel=1e-6)
    assert lipschitz_bound(Normalise([0.5] * 3), (3, 4, 4)) == pytest.approx(1.0, rel=1e-8)
    with pytest.raises(InvalidInputError, match="positive numbers"):
        Normalise([0.5], [0.0])


class Unknown(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * x


class ScaledLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class LoudSequential(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class LoudMaxMin(MaxMin):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Declared(nn.Module):
    lipschitz_constant = 3.0

    def forward(self, x: Tensor) -> Tensor:
        return 3 * x


class LouderThanDeclared(Declared):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class LoudAOL(AOLLinear):
    def apply_to(self, x: Tensor, operator: Operator) -> Tensor:
        return super().apply_to(x, operator).mul(2)


@pytest.mark.parametrize(
    ("module", "truth"),
    [
        (nn.Sequential(nn.ReLU(), nn.Sequential(Unknown())), 3.0),
        (LoudSequential(nn.ReLU()), 2.0),
        (LouderThanDeclared(), 6.0),
        (Residual(nn.LeakyReLU(2.0, inplace=True)), 4.0),
        (Residual(Unknown()), 4.0),
    ],
)
def test_a_forward_of_ones_own_is_looked_into(module: nn.Module, truth: float) -> None:
    assert lipschitz_bound(module.eval(), (4,)) == pytest.approx(truth, rel=1e-7)


@pytest.mark.parametrize("module", [ScaledLinear(4, 4), LoudAOL(4, 4)], ids=lambda module: type(module).__name__)
def test_a_subclass_that_computes_something_else_is_looked_into(module: nn.Module) -> None:
    module = stirred(module)
    assert worst_norm(module, (4,)) <= lipschitz_bound(module, (4,)) * ROUNDING
    assert lipschitz_bound(module, (4,)) <= worst_norm(module, (4,)) * (1 + 1e-6)


def test_a_maxmin_is_known_by_what_it_computes() -> None:
    assert lipschitz_bound(LoudMaxMin().eval(), (4,)) == pytest.approx(2.0, rel=1e-7)


def _doubled(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return 2 * output


def test_hooks_and_replaced_methods_are_seen() -> None:
    model = nn.Sequential(nn.Linear(3, 3)).eval()
    plain = lipschitz_bound(model, (3,))
    handle = model[0].register_forward_hook(_doubled)
    assert lipschitz_bound(model, (3,)) == pytest.approx(2 * plain, rel=1e-7)
    handle.remove()
    model[0].forward = lambda x: 5 * x  # pyright: ignore
    assert lipschitz_bound(model, (3,)) == pytest.approx(5.0, rel=1e-7)


def test_declared_constants() -> None:
    class Computed(nn.Module):
        def lipschitz_bound(self, input_shape: tuple[int, ...]) -> float:
            return math.sqrt(input_shape[0])

        def forward(self, x: Tensor) -> Tensor:
            return x.sum(1, keepdim=True)

    assert lipschitz_bound(nn.Sequential(Declared(), Computed()).eval(), (4,)) == pytest.approx(6.0)


@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_declarations_that_are_no_bounds(value: float) -> None:
    module = Unknown()
    module.lipschitz_constant = value  # pyright: ignore
    with pytest.raises(UnknownLipschitzConstant, match="no bound"):
        lipschitz_bound(module.eval(), (4,))


@pytest.mark.parametrize("method", SOUND)
def test_a_weight_tampered_with_after_caching_is_seen(method: str) -> None:
    """The bound is that of the tensors that forward uses, not of the parameters they were made from."""
    layer = stirred(create_conv(method, 4, 4, kernel_size=3))
    layer(torch.zeros(1, 4, 6, 6))
    before = layer.lipschitz_bound((6, 6))
    transformed = layer.operator((6, 6))
    tensors = transformed.tensors()
    name = next(n for n in ("kernel", "matrices", "inner") if n in tensors)
    tensors[name].mul_(10.0 if method == "sll" else 1.01)  # SLL's bound leaves room
    after = layer.lipschitz_bound((6, 6))
    assert after * ROUNDING >= worst_norm(layer, (4, 6, 6))
    assert after > before * 1.002


def test_a_power_iteration_in_place_of_the_bound_is_seen() -> None:
    """Trap 1: CPL with a norm that is 0.5 % short is not 1-Lipschitz, and its bound says so."""
    layer = stirred(create_conv("cpl", 4, 4, kernel_size=3))
    transformed = layer.operator((6, 6))
    transformed.tensors()["kernel"].mul_(1.005)
    assert layer.lipschitz_bound((6, 6)) > 1.005


@pytest.mark.parametrize("method", ["cpl", "sll"])
def test_a_residual_layer_whose_kernel_is_not_finite(method: str) -> None:
    layer = stirred(create_conv(method, 3, 3, kernel_size=3))
    layer.operator((5, 5)).tensors()["kernel"][0, 0, 0, 0] = math.nan
    assert layer.lipschitz_bound((5, 5)) == math.inf


def test_weights_that_are_not_finite() -> None:
    layer = nn.Linear(3, 3).eval()
    with torch.no_grad():
        layer.weight[0, 0] = math.nan
    assert lipschitz_bound(layer, (3,)) == math.inf


def test_training_mode_is_left_alone() -> None:
    model = nn.Sequential(AOLLinear(4, 4), nn.Dropout(0.5))
    model[0].train()
    assert lipschitz_bound(model, (4,)) <= 1 + 1e-6
    assert model[0].training
    assert model[1].training


def test_shapes_are_needed() -> None:
    with pytest.raises(InvalidInputError, match="input_shape"):
        lipschitz_bound(nn.Linear(3, 3))
    with pytest.raises(InvalidInputError, match="input_size"):
        AOLConv2d(3, 3, 3).lipschitz_bound()
    with pytest.raises(InvalidInputError, match="positive"):
        lipschitz_bound(nn.Linear(3, 3), (0,))


def test_a_new_method_gets_its_bound_from_its_family() -> None:
    class Halved(AOLConv2d):
        def transform_tensors(self, tensors: Any, request: Any) -> Kernel:
            return Kernel(super().transform_tensors(tensors, request).kernel / 2, self.padding_mode)

    assert Halved(3, 3, 3).lipschitz_bound((5, 5)) <= 0.5 + 1e-6


@pytest.mark.parametrize("terms", [3, 4, 5, 6, 8, 12])
@pytest.mark.parametrize("norm", [0.1, 1.0, 2.0, 3.5])
def test_series_of_the_exponential(terms: int, norm: float) -> None:
    """max |p(i t)| on a fine grid is below the bound, and the truncations that expand are found (trap 15)."""
    grid = torch.linspace(0, norm, 2000, dtype=torch.float64)
    values = sum((1j * grid) ** j / math.factorial(j) for j in range(terms + 1))
    assert isinstance(values, Tensor)
    truth = float(values.abs().amax())
    assert truth * (1 - 1e-14) <= series_norm_bound(terms, norm) <= truth * (1 + (1e-2 if norm <= 2 else 5e-2))
    if terms == 5 and norm == 1.0:
        assert series_norm_bound(terms, norm) > 1 + 5e-4
    squares = sum(float(c) * grid ** (2 * k) for k, c in enumerate(squared_modulus(terms)))
    assert torch.allclose(torch.as_tensor(squares), values.abs().square(), rtol=1e-10)


@pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
def test_soc_series_with_a_kernel_that_is_not_quite_skew(padding_mode: Literal["circular", "zeros"]) -> None:
    layer = stirred(SOCConv2d(3, 3, 3, padding_mode=padding_mode, algorithm="series"))
    assert layer.lipschitz_bound((5, 5)) <= 1 + 1e-6
    layer.operator((5, 5)).tensors()["generator"][0, 0, 1, 1] += 0.01
    assert 1.001 < worst_norm(layer, (3, 5, 5), 1) <= layer.lipschitz_bound((5, 5)) < 1.2


def test_activations_declare_themselves() -> None:
    assert lipschitz_bound(MaxMin(), (4, 3, 3)) == 1.0


def test_tables_fit_80_columns() -> None:
    deep: nn.Module = nn.Conv2d(3, 128, 3)
    for _ in range(20):
        deep = nn.Sequential(deep)
    model = nn.Sequential(deep, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).eval()
    for table in (str(lipschitz_table(model, (3, 32, 32))), str(explain(model, (3, 32, 32)))):
        assert max(map(len, table.splitlines())) <= 80
        assert "…" in table
