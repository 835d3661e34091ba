"""Centering and pooling: bounds against exact Jacobians, rounding against float64, the meaning of each layer."""

from __future__ import annotations

import math

import pytest
import torch
from jacobians import jacobian, norm_at
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import (
    AdaptiveL2NormPool2d,
    BatchCentering,
    BatchLipNorm,
    L2NormPool2d,
    LayerCentering,
    ScaledAdaptiveAvgPool2d,
    ScaledAvgPool2d,
    ScaledMaxPool2d,
)
from onelip.proofs.layer_bound import FLOAT32

SHAPE = (4, 6, 4)


def trained(layer: nn.Module, spread: float = 3.0) -> nn.Module:
    """Running statistics of a few wide batches, and a bias."""
    for _ in range(5):
        layer.train()(spread * torch.randn(16, *SHAPE) + torch.arange(4.0).reshape(4, 1, 1))
    for bias in layer.parameters():
        nn.init.normal_(bias)
    return layer.eval()


LAYERS = {
    "batch centering": lambda: trained(BatchCentering(4)),
    "batch centering without bias": lambda: trained(BatchCentering(4, None, affine=False)),
    "batch lip norm": lambda: trained(BatchLipNorm(4)),
    "narrow batch lip norm": lambda: trained(BatchLipNorm(4), 0.1),
    "layer centering": LayerCentering,
    "layer centering of pixels": lambda: LayerCentering((-2, -1)),
    "scaled average": lambda: ScaledAvgPool2d((3, 2)),
    "scaled global average": lambda: ScaledAdaptiveAvgPool2d(1),
    "max of overlapping windows": lambda: ScaledMaxPool2d(3, 2, 1),
    "max of windows": lambda: ScaledMaxPool2d(2),
    "norm of windows": lambda: L2NormPool2d(2),
    "norm of a given number of windows": lambda: AdaptiveL2NormPool2d((3, 1)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_bound_is_above_the_jacobian_and_tight(name: str) -> None:
    layer = LAYERS[name]()
    x = torch.randn(SHAPE, dtype=torch.float64)
    bound = layer.bound(SHAPE)
    true = norm_at(layer.double(), x)
    assert true <= bound.lipschitz * (1 + 1e-12) <= 1 + 1e-6  # the Jacobian's norm is rounded too
    assert bound.lipschitz <= true * (1 + 1e-6) or " windows" in name  # those are not linear: tight somewhere else
    assert float(layer(torch.zeros(1, *SHAPE, dtype=torch.float64)).detach().norm()) <= bound.offset * (1 + 1e-12)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e6])
def test_rounding_is_within_its_bound(name: str, scale: float) -> None:
    layer = LAYERS[name]()
    x = scale * torch.randn(8, *SHAPE)
    error, limit = (layer(x).double() - layer.double()(x.double())).flatten(1).norm(dim=1), layer.bound(SHAPE)
    assert limit.rounding is not None
    rounding = limit.rounding(FLOAT32)
    allowed = rounding.slope * x.double().flatten(1).norm(dim=1) + rounding.constant
    assert bool((error <= allowed).all())


def test_scaled_average_is_orthogonal_and_plain_average_is_not() -> None:
    x = torch.randn(SHAPE, dtype=torch.float64)
    rows = jacobian(ScaledAvgPool2d(2), x)
    assert torch.allclose(rows @ rows.mT, torch.eye(len(rows), dtype=torch.float64))
    assert norm_at(nn.AvgPool2d(2), x) == pytest.approx(0.5)


def test_batch_centering_centres_in_training_and_remembers() -> None:
    layer = BatchCentering(4, None, affine=False)
    batches = torch.randn(3, 16, *SHAPE) + 5
    for batch in batches:
        assert float(layer(batch).mean((0, 2, 3)).abs().max()) < 1e-5
    assert torch.allclose(layer.running_mean, batches.mean((0, 1, 3, 4)), atol=1e-5)
    x = torch.randn(2, *SHAPE)
    assert torch.allclose(layer.eval()(x), x - layer.running_mean.reshape(4, 1, 1))


def test_batch_lip_norm_divides_by_the_widest_channel_only_where_it_is_wide() -> None:
    wide, narrow = LAYERS["batch lip norm"](), LAYERS["narrow batch lip norm"]()
    assert wide.bound(SHAPE).lipschitz < 0.9
    assert narrow.bound(SHAPE).lipschitz == pytest.approx(1.0)


def test_the_constant_of_overlapping_maxima_is_reached() -> None:
    """One large pixel that is the maximum of four windows moves all four."""
    x = torch.zeros(1, 5, 5, dtype=torch.float64)
    x[0, 1, 1] = 5.0
    assert norm_at(nn.MaxPool2d(3, 2, 1), x) == pytest.approx(2.0)
    assert norm_at(ScaledMaxPool2d(3, 2, 1), x) == pytest.approx(1.0)


def test_norm_pooling_is_the_norm_and_smooth_at_zero() -> None:
    x = torch.randn(1, 1, 2, 2, dtype=torch.float64)
    assert float(L2NormPool2d(2, eps=0.0)(x)) == pytest.approx(float(x.norm()))
    assert torch.equal(AdaptiveL2NormPool2d(1)(x), L2NormPool2d(2)(x))
    zero = torch.zeros(1, 1, 2, 2, requires_grad=True)
    L2NormPool2d(2)(zero).sum().backward()
    assert zero.grad is not None
    assert math.isfinite(float(zero.grad.norm()))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: ScaledAvgPool2d(0), "kernel_size"),
        (lambda: ScaledAvgPool2d(4)(torch.zeros(1, 1, 6, 6)), "divide"),
        (lambda: L2NormPool2d(2, eps=-1.0), "eps"),
        (lambda: AdaptiveL2NormPool2d(4)(torch.zeros(1, 1, 6, 6)), "AdaptiveL2NormPool2d: an image of 6 x 6"),
        (lambda: BatchCentering(0), "num_features"),
        (lambda: BatchCentering(4)(torch.zeros(2, 3)), "4"),
        (lambda: LayerCentering(()), "dims"),
    ],
)
def test_bad_arguments_are_named(make, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        make()
