"""Convolutions of volumes: torch's function, the exact Jacobian, and the sums that the constant rests on."""

from __future__ import annotations

import itertools
import math
from typing import Any, cast

import pytest
import torch
from jacobians import norm_at
from layer_contract import GROUND_TRUTH, GUARANTEED, assert_close, perturb
from torch import Tensor, nn

from onelip import certify, convert, lipschitz_bound
from onelip.errors import InvalidInputError
from onelip.layers import AOLConv3d, create_conv3d
from onelip.layers.residual import ResidualMap
from onelip.layers.volume_kernel import VolumeKernel

SHAPE = (4, 3, 4, 5)
OPTIONS: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": (2, 3, 1), "groups": 2},
    {"kernel_size": 3, "stride": (1, 2, 2), "padding": 1, "lipschitz": 0.5},
    {"kernel_size": 2, "dilation": (1, 2, 1), "padding": (0, 1, 2)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("key", ["aol", "bjorck", "cpl", "oni", "sll", "spectral"])
def test_the_exact_norm_is_below_the_proven_bound(key: str, options: dict[str, Any]) -> None:
    layer = create_conv3d(key, 4, 6, **options, dtype=torch.float64)
    perturb(layer)
    bound, limit = layer.eval().bound(SHAPE).lipschitz, options.get("lipschitz", 1.0)
    x = torch.randn(SHAPE, dtype=torch.float64)
    assert norm_at(layer, x) <= bound * GROUND_TRUTH
    assert bound <= limit * GUARANTEED[torch.float64]
    fused = layer.fuse(SHAPE[1:])
    assert_close(fused(x[None]), layer(x[None]), 1e-12)
    assert_close(layer(x), layer(x[None])[0], 1e-12)
    assert lipschitz_bound(fused, SHAPE) == pytest.approx(bound, rel=1e-9)
    layer.train()(x[None]).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in layer.parameters())
    if "padding" in options:
        numbers = {name: value for name, value in options.items() if name != "lipschitz"}
        assert layer(x).shape == nn.Conv3d(4, 6, **numbers, dtype=torch.float64)(x).shape


def matrix_of(operator: VolumeKernel, shape: tuple[int, ...]) -> Tensor:
    """The convolution as a matrix, column by column."""
    columns = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    return operator.apply(columns, None).detach().flatten(1).mT


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("key", ["cpl", "sll"])
def test_the_convolution_of_a_residual_layer_has_norm_sqrt_two(key: str, options: dict[str, Any]) -> None:
    """What the constant 1 rests on, wherever the slopes of relu are; and the adjoint is the transpose of the matrix."""
    layer = create_conv3d(key, 4, 6, **{**options, "lipschitz": 1.0, "groups": 1}, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.weight.normal_()
    core = layer.convolution_geometry.core_image(SHAPE[1:])
    residual = layer.transform(cast("Any", SHAPE[1:]))
    assert isinstance(residual, ResidualMap)
    operator = residual.weight
    assert isinstance(operator, VolumeKernel)
    shape = layer.core_in, *core
    matrix = matrix_of(operator, shape).detach()
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    assert 0.3 < norm <= math.sqrt(2) * (1 + 1e-9)
    assert norm > 1 or key == "sll"  # a Gram bound is nearly the norm of the torus, AOL's is not
    y = torch.randn(1, layer.core_out, *core, dtype=torch.float64)
    assert_close(operator.adjoint(y).detach().flatten(), matrix.mT @ y.flatten(), 1e-9)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_spectral_normalisation_meets_the_norm(options: dict[str, Any]) -> None:
    """Slices nearer to each other than the torus is long would show the norm at a few of the frequencies only."""
    layer = create_conv3d("spectral", 4, 6, **{**options, "lipschitz": 1.0, "groups": 1}, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.normal_()
    operator = layer.eval().transform(cast("Any", SHAPE[1:]))
    assert isinstance(operator, VolumeKernel)
    assert 0.6 < float(torch.linalg.matrix_norm(matrix_of(operator, SHAPE).detach(), 2)) <= 1 + 1e-9


def test_the_norm_is_found_where_neighbouring_slices_and_rows_have_opposite_signs() -> None:
    """The largest frequency of this kernel is (1/2, 1/2, 1/2): off the diagonal that slices right below see."""
    signs = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    kernel = signs[:, None, None] * signs[:, None] * signs
    for key in ("spectral", "cpl"):
        layer = create_conv3d(key, 1, 1, 3, bias=False, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(kernel[None, None])
        for _ in range(30):
            layer(torch.randn(1, 1, 6, 6, 6, dtype=torch.float64))  # power vectors find their direction
        trained = layer.transform(cast("Any", (6, 6, 6))).tensors()["kernel"].detach()
        proven = layer.eval().transform(cast("Any", (6, 6, 6))).tensors()["kernel"].detach()
        assert float((proven / trained).max()) == pytest.approx(1, rel=0.02)
        matrix = matrix_of(VolumeKernel(proven, (1, 1, 1), ((1, 1), (1, 1), (1, 1)), (1, 1, 1)), (1, 6, 6, 6))
        limit = 1.0 if key == "spectral" else math.sqrt(2)
        assert 0.7 * limit < float(torch.linalg.matrix_norm(matrix, 2)) <= limit * (1 + 1e-9)


def test_a_stride_is_constrained_on_blocks() -> None:
    """Patches of 2 x 2 x 2 voxels do not overlap: Bjorck's convolution is orthogonal, and needs no divisor."""
    layer = create_conv3d("bjorck", 2, 16, 2, stride=2, padding="valid", bias=False, dtype=torch.float64).eval()
    x = torch.randn(1, 2, 4, 4, 4, dtype=torch.float64)
    assert_close(layer(x).norm(), x.norm(), 1e-9)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("options", [{"padding": "same"}, {"stride": 2, "padding": (1, 0, 2), "groups": 2}], ids=str)
def test_the_baseline_is_the_convolution_of_torch(options: dict[str, Any]) -> None:
    layer, plain = create_conv3d("standard", 4, 6, (3, 2, 3), **options), nn.Conv3d(4, 6, (3, 2, 3), **options)
    with torch.no_grad():
        layer.weight.copy_(plain.weight.reshape(layer.weight.shape))
        assert plain.bias is not None
        plain.bias.zero_()
    x = torch.randn(2, 4, 6, 5, 7)
    assert_close(layer(x), plain(x), 1e-5)


@pytest.mark.parametrize("steps", [1, 2])
def test_no_two_offsets_fall_together(steps: int) -> None:
    """The scale is that of all offsets in three dimensions: (sum |G^p|)^(-1/2p) with the Gram matrix of a torus.

    Slices written one below the other without a distance would add up autocorrelations of different offsets, which may
    cancel: the norm then exceeds 1.
    """
    layer = AOLConv3d(2, 3, (2, 3, 2), steps=steps, bias=False, dtype=torch.float64)
    perturb(layer)
    torus = 5, 9, 5  # no offset of the square of the autocorrelation wraps around
    kernel = layer.weight.detach()
    matrix = torch.zeros(3, *torus, 2, *torus, dtype=torch.float64)
    for place in itertools.product(*(range(n) for n in torus)):
        for tap in itertools.product(*(range(k) for k in kernel.shape[2:])):
            read = tuple((p + t) % n for p, t, n in zip(place, tap, torus, strict=True))
            matrix[(slice(None), *place, slice(None), *read)] = kernel[(slice(None), slice(None), *tap)]
    columns = matrix.reshape(3 * 5 * 9 * 5, -1)
    power = 2 ** (steps - 1)
    sums = torch.linalg.matrix_power(columns.mT @ columns, power).abs().sum(1).reshape(2, -1)[:, 0]
    scaled = layer.eval().transform().tensors()["kernel"]
    assert_close(scaled, kernel * sums[:, None, None, None] ** (-0.5 / power), 1e-9)


@pytest.mark.parametrize("method", ["aol", "cpl", "sll", "spectral"])
def test_a_network_of_volumes_converts_and_certifies(method: str) -> None:
    plain = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 4, 2, stride=2), nn.Flatten())
    plain.append(nn.Linear(32, 3))
    model = convert(plain, method)
    assert not model.conversion.failures
    x = torch.randn(4, 1, 4, 4, 4)
    assert model(x).shape == plain(x).shape
    assert (certify(model, x).radii > 0).all()
    assert lipschitz_bound(model, (1, 4, 4, 4)) <= 1 + 1e-5


def test_refusals() -> None:
    with pytest.raises(InvalidInputError, match="lot has no convolution of volumes; use one of aol, bjorck, cpl"):
        create_conv3d("lot", 2, 2, 3)
    with pytest.raises(InvalidInputError, match="one or three positive integers"):
        create_conv3d("aol", 2, 2, (3, 3))
    with pytest.raises(InvalidInputError, match="a stride and a dilation along the same axis"):
        create_conv3d("cpl", 2, 2, 3, stride=2, dilation=3)
    with pytest.raises(InvalidInputError, match="pass input_size=\\(depth, height, width\\)"):
        create_conv3d("spectral", 2, 2, 3).fuse()
    with pytest.raises(InvalidInputError, match="use 'zeros'"):
        create_conv3d("aol", 2, 2, 3, padding_mode="circular")
    with pytest.raises(InvalidInputError, match="depth, height, width"):
        create_conv3d("aol", 2, 2, 3)(torch.zeros(1, 2, 8, 8, 3)[0, 0])
