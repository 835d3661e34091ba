"""What the papers say about single methods: parameter counts, orthogonality of rectangular layers, special cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from jacobians import distance_from_isometry, jacobian
from torch import nn
from torch.nn import functional as F

from onelip.layers import (
    AOLConv2d,
    BCOPConv2d,
    ECOConv2d,
    LOTConv2d,
    SandwichConv2d,
    SandwichLinear,
    SOCConv2d,
    SOCLinear,
    create_conv,
    create_linear,
)
from onelip.layers.methods.soc import unit_skew_kernel


def weights(layer: nn.Module) -> int:
    return sum(p.numel() for name, p in layer.named_parameters() if name != "bias")


def image(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_bcop_has_k_c_squared_weights(kernel: int) -> None:
    assert weights(BCOPConv2d(8, 8, kernel)) == kernel * 8**2


def test_sandwich_has_about_twice_the_weights() -> None:
    assert weights(SandwichConv2d(8, 8, 3)) == 2 * weights(AOLConv2d(8, 8, 3))


@pytest.mark.parametrize("key", ["aol", "lot"])
def test_square_layers_start_as_the_identity(key: str) -> None:
    x = image(2, 4, 5, 5)
    layer = create_conv(key, 4, 4, 3, dtype=torch.float64).eval()
    torch.testing.assert_close(layer(x), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("key", ["bcop", "cayley", "lot", "soc", "bjorck", "oni", "eco"])
def test_linear_layers_have_orthonormal_rows_or_columns(key: str) -> None:
    for inputs, outputs in [(5, 5), (7, 4), (4, 7)]:
        matrix = jacobian(create_linear(key, inputs, outputs, dtype=torch.float64).eval(), image(inputs))
        assert distance_from_isometry(matrix if outputs >= inputs else matrix.mT) < 1e-12


@pytest.mark.parametrize("key", ["bcop", "cayley", "lot", "eco"])
@pytest.mark.parametrize(("inputs", "outputs"), [(3, 5), (5, 3)])
def test_rectangular_convolutions_keep_all_they_can(key: str, inputs: int, outputs: int) -> None:
    layer = create_conv(key, inputs, outputs, 3, dtype=torch.float64).eval()
    matrix = jacobian(layer, image(inputs, 6, 6))
    assert distance_from_isometry(matrix if outputs > inputs else matrix.mT) < 1e-12


@pytest.mark.parametrize("key", ["bjorck", "oni"])
def test_unrolled_kernels_are_exact_for_one_tap(key: str) -> None:
    layer = create_conv(key, 4, 4, 1, dtype=torch.float64).eval()
    assert distance_from_isometry(jacobian(layer, image(4, 3, 3))) < 1e-12


def test_soc_computes_the_same_in_frequency_and_as_a_series() -> None:
    frequency = SOCConv2d(3, 5, 3, dtype=torch.float64).eval()
    series = SOCConv2d(3, 5, 3, algorithm="series", eval_terms=20, dtype=torch.float64).eval()
    series.load_state_dict(frequency.state_dict())
    x = image(2, 3, 6, 5)
    torch.testing.assert_close(frequency(x), series(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [(4, 4), (3, 5), (2, 2), (1, 4)])
@pytest.mark.parametrize("algorithm", ["frequency", "series"])
def test_soc_is_the_exponential_of_a_dense_skew_operator(algorithm: Any, size: tuple[int, int]) -> None:
    """scipy's exponential of the whole matrix that the normalised kernel stands for on the torus."""
    layer = SOCConv2d(3, 3, 3, algorithm=algorithm, eval_terms=20, init="normal", dtype=torch.float64).eval()
    generator = jacobian(_circular(unit_skew_kernel(layer.weight.detach())), image(3, *size))
    torch.testing.assert_close(generator, -generator.T, rtol=0, atol=1e-14)
    assert torch.linalg.matrix_norm(generator, 2) > 0.1
    expected = torch.from_numpy(scipy.linalg.expm(generator.numpy()))
    torch.testing.assert_close(jacobian(layer, image(3, *size)), expected, rtol=0, atol=1e-12)


def test_soc_linear_is_the_exponential_of_its_skew_part() -> None:
    layer = SOCLinear(5, 5, init="normal", bias=False, dtype=torch.float64).eval()
    skew = layer.weight.detach() - layer.weight.detach().T
    matrix = jacobian(layer, image(5))
    logarithm = torch.from_numpy(np.real(scipy.linalg.logm(matrix.numpy())))
    factor = (logarithm * skew).sum() / skew.square().sum()
    torch.testing.assert_close(logarithm, factor * skew, rtol=0, atol=1e-10)
    assert 0.8 < torch.linalg.matrix_norm(logarithm, 2) <= 1 + 1e-9


@pytest.mark.parametrize(("inputs", "outputs"), [(7, 2), (2, 7), (1, 3), (3, 1)])
def test_soc_linear_is_orthogonal_without_a_square(inputs: int, outputs: int) -> None:
    layer = SOCLinear(inputs, outputs, init="normal", dtype=torch.float64).eval()
    assert sum(parameter.numel() for parameter in layer.parameters()) == inputs * outputs + outputs
    values = torch.linalg.svdvals(jacobian(layer, image(inputs)))
    torch.testing.assert_close(values, torch.ones_like(values), rtol=0, atol=1e-12)


def _circular(kernel: torch.Tensor) -> nn.Module:
    """The circular convolution with this kernel, by explicit indices so that it may wrap around small images."""

    class Circular(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, columns = (torch.arange(-1, side + 1) % side for side in x.shape[-2:])
            return F.conv2d(x[..., rows, :][..., columns], kernel)

    return Circular()


def test_soc_with_zero_padding_is_orthogonal() -> None:
    layer = SOCConv2d(4, 4, 3, padding_mode="zeros", dtype=torch.float64, eval_terms=20).eval()
    assert distance_from_isometry(jacobian(layer, image(4, 5, 5))) < 1e-12


def test_lot_is_the_polar_factor_of_the_convolution() -> None:
    """Frequency by frequency, and as one dense matrix: the same."""
    layer = LOTConv2d(3, 3, 3, dtype=torch.float64, init="normal", bias=False).eval()
    plain = create_conv("standard", 3, 3, 3, dtype=torch.float64, bias=False).eval()
    plain.load_state_dict(layer.state_dict())
    dense = jacobian(plain, image(3, 4, 4))
    u, _, vh = torch.linalg.svd(dense)
    torch.testing.assert_close(jacobian(layer, image(3, 4, 4)), u @ vh, rtol=0, atol=1e-9)


def test_gradients_do_not_vanish_through_sandwich_layers() -> None:
    """The published start halves the gradient's energy in every layer; ours does not."""

    def input_gradient(init: str) -> float:
        layers = [SandwichLinear(32, 32, init=init) for _ in range(12)]
        x = torch.randn(64, 32, requires_grad=True)
        y = nn.Sequential(*layers)(x)
        (gradient,) = torch.autograd.grad((y * torch.randn_like(y)).sum(), x)
        return float(gradient.square().mean())

    assert input_gradient("auto") > 0.1
    assert input_gradient("uniform") < 1e-3


@pytest.mark.parametrize("side", [1, 3, 5, 7])
@pytest.mark.parametrize("size", [(6, 6), (7, 5), (2, 9)])
def test_eco_with_zero_padding_is_a_plain_dilated_convolution(side: int, size: tuple[int, int]) -> None:
    layer = ECOConv2d(2, 3, side, padding_mode="zeros", init="normal", dtype=torch.float64).eval()
    fused = layer.fuse(size)
    assert isinstance(fused, torch.nn.Conv2d)
    assert fused.padding_mode == "zeros"
    x = torch.randn(2, 2, *size, dtype=torch.float64)
    assert torch.allclose(fused(x), layer(x), rtol=0, atol=1e-12)
