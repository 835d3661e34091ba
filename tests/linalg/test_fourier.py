"""Frequency-domain convolutions against direct ones, numpy's FFT and dense Jacobians."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch
from jacobians import distance_from_isometry
from torch import Tensor
from torch.nn import functional as F

from onelip.fast.fourier_products import PLAIN_LOOPS
from onelip.linalg.fourier import (
    from_frequency,
    half_width,
    has_one_matrix,
    kernel_to_frequency,
    kernel_to_parts,
    multiply_frequencies,
    pack,
    packed_to_kernel,
    real_dft,
    real_frequencies,
    split_whole,
    to_frequency,
    torus_blocks,
    torus_of,
    unpack,
)

SIZES = [(8, 8), (5, 7), (4, 7), (7, 4), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (3, 2), (1, 6), (2, 1), (9, 9)]
each_size = pytest.mark.parametrize("size", SIZES, ids=str)
each_kernel = pytest.mark.parametrize("side", [1, 3, 5, 7])


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Circular convolution by explicit indexing, for every size."""
    pad = kernel.shape[-1] // 2
    rows = torch.arange(-pad, x.shape[-2] + pad) % x.shape[-2]
    columns = torch.arange(-pad, x.shape[-1] + pad) % x.shape[-1]
    return F.conv2d(x[..., rows, :][..., columns], kernel)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@each_size
@each_kernel
def test_product_of_frequencies_is_the_convolution(size: tuple[int, int], side: int) -> None:
    x, kernel = normal(2, 3, *size), normal(4, 3, side, side)
    dft = real_dft(size, torch.float64)
    matrices = pack(torus_blocks(kernel, size))
    y = from_frequency(multiply_frequencies(to_frequency(x, dft), matrices), size, dft)
    torch.testing.assert_close(y, convolve(x, kernel), rtol=0, atol=1e-12)
    assert torus_of(dft) == size
    whole = size[0] == size[1] <= 8
    assert matrices.shape == ((size[0] * size[1], 3, 4) if whole else (2, size[0] * half_width(size[1]), 3, 4))


@each_size
def test_transform_is_an_isometry_with_its_transpose_as_inverse(size: tuple[int, int]) -> None:
    dft = real_dft(size, torch.float64)
    pixels = size[0] * size[1]
    basis = torch.eye(pixels, dtype=torch.float64).reshape(pixels, 1, *size)
    matrix = to_frequency(basis, dft).squeeze(-1).flatten(0, -2)  # (frequencies, pixels)
    assert distance_from_isometry(matrix) < 1e-14
    if has_one_matrix(size):
        assert distance_from_isometry(matrix.T) < 1e-14, "nothing is kept twice"
    torch.testing.assert_close(from_frequency(to_frequency(basis, dft), size, dft), basis, rtol=0, atol=1e-14)


def half_spectrum(values: Tensor, size: tuple[int, int]) -> np.ndarray:
    """Either form of frequencies (.., b, c) as numpy's rfft2 has them, (h, w', b, c), in the order defined."""
    if not has_one_matrix(size):
        return torch.complex(values[0], values[1]).unflatten(0, (size[0], half_width(size[1]))).numpy()
    side = size[0]
    result = np.full((side, half_width(side), *values.shape[-2:]), np.nan, dtype=complex)
    real, (re, im) = split_whole(values)
    own = [(u, v) for u in range(side) for v in range(side) if (2 * u) % side == 0 and (2 * v) % side == 0]
    assert len(own) == len(real) == real_frequencies(side * side)
    for (u, v), value in zip(own, real, strict=True):
        result[u, v] = value
    pairs = [(u, v) for u in range(side) for v in range(side) if (u, v) < (-u % side, -v % side)]
    for (u, v), value in zip(pairs, torch.complex(re, im).numpy(), strict=True):
        if v < half_width(side):
            result[u, v] = value
        if -v % side < half_width(side):
            result[-u % side, -v % side] = value.conj()
    assert not np.isnan(result).any()
    return result


@each_size
def test_transform_agrees_with_numpy(size: tuple[int, int]) -> None:
    """Up to the factor sqrt(2) of frequencies that stand for two."""
    image = normal(1, 1, *size)
    ours = half_spectrum(to_frequency(image, real_dft(size, torch.float64)), size)[..., 0, 0]
    height, width = size
    weights = np.full((height, half_width(width)), np.sqrt(2))
    for column in {0, width // 2} if width % 2 == 0 else {0}:
        weights[:, column] = 1
        if has_one_matrix(size):
            alone = [0, height // 2] if height % 2 == 0 else [0]
            weights[[row for row in range(height) if row not in alone], column] = np.sqrt(2)
    expected = np.fft.rfft2(image[0, 0].numpy(), norm="ortho") * weights
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-13)


@each_size
@each_kernel
def test_singular_values_are_those_of_the_dense_matrix(size: tuple[int, int], side: int) -> None:
    kernel = normal(2, 3, side, side)
    pixels = size[0] * size[1]
    basis = torch.eye(3 * pixels, dtype=torch.float64).reshape(-1, 3, *size)
    dense = convolve(basis, kernel).flatten(1)
    largest = torch.linalg.svdvals(kernel_to_frequency(kernel, size)).max()
    torch.testing.assert_close(largest, torch.linalg.matrix_norm(dense, 2), rtol=1e-12, atol=0)


@each_size
def test_kernels_come_back(size: tuple[int, int]) -> None:
    matrices = kernel_to_parts(normal(5, 2, 3, 3, 3), size)
    kernel = packed_to_kernel(matrices, size)
    assert kernel.shape == (5, 2, 3, *size)
    torch.testing.assert_close(kernel_to_parts(kernel, size), matrices, rtol=0, atol=1e-13)


@pytest.mark.parametrize("side", [1, 3, 5, 9])
def test_a_kernel_that_fills_the_torus_comes_back_tap_by_tap(side: int) -> None:
    kernel = normal(2, 3, side, side)
    returned = packed_to_kernel(kernel_to_parts(kernel, (side, side)), (side, side))
    torch.testing.assert_close(returned, kernel, rtol=0, atol=1e-14)


@each_size
def test_layouts_are_inverse_to_each_other(size: tuple[int, int]) -> None:
    blocks = torus_blocks(normal(2, 4, 3, 3, 3), size)
    returned = unpack(pack(blocks), size)
    assert len(returned) == len(blocks)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(returned, blocks, strict=True))


@each_size
def test_blocks_are_the_independent_frequencies(size: tuple[int, int]) -> None:
    blocks = torus_blocks(normal(4, 3, 3, 3), size)
    assert all(block.shape[-2:] == (4, 3) for block in blocks)
    counts = [block.shape[-3] * (2 if block.is_complex() else 1) for block in blocks]
    assert sum(counts) == (size[0] * size[1] if has_one_matrix(size) else 2 * size[0] * half_width(size[1]))


@each_size
@each_kernel
def test_matrices_are_sums_over_taps(size: tuple[int, int], side: int) -> None:
    """`kernel_to_frequency` of a batch and `kernel_to_parts` against one loop per index."""
    kernel = normal(2, 3, 2, side, side)
    kept = half_width(size[1])
    expected = torch.zeros(2, size[0], kept, 3, 2, dtype=torch.complex128)
    for row in range(size[0]):
        for column in range(kept):
            for y in range(side):
                for x in range(side):
                    angle = row * (y - side // 2) / size[0] + column * (x - side // 2) / size[1]
                    expected[:, row, column] += kernel[..., y, x] * cmath.exp(2j * math.pi * angle)
    torch.testing.assert_close(kernel_to_frequency(kernel, size), expected, rtol=0, atol=1e-12)
    parts = kernel_to_parts(kernel, size)
    for alone, packed in zip(expected, parts, strict=True):
        as_numpy = half_spectrum(packed, size)  # (h, w', i, o)
        np.testing.assert_allclose(as_numpy, alone.mT.numpy(), rtol=0, atol=1e-12)
    torch.testing.assert_close(pack(torus_blocks(kernel, size)), parts, rtol=0, atol=1e-12)
    for alone, together in zip(kernel, parts, strict=True):
        torch.testing.assert_close(kernel_to_parts(alone, size), together, rtol=0, atol=1e-14)


@each_size
def test_bias_and_adjoint_of_the_product(size: tuple[int, int]) -> None:
    """Against the dense matrix of the convolution: its transpose, and a constant image added."""
    kernel, bias = normal(4, 3, 3, 3), normal(4)
    dft, matrices = real_dft(size, torch.float64), kernel_to_parts(kernel, size)
    x, z = normal(2, 3, *size), normal(2, 4, *size)
    at_zero = bias * math.sqrt(size[0] * size[1])
    y = from_frequency(multiply_frequencies(to_frequency(x, dft), matrices, at_zero), size, dft)
    torch.testing.assert_close(y, convolve(x, kernel) + bias[:, None, None], rtol=0, atol=1e-12)
    basis = torch.eye(3 * size[0] * size[1], dtype=torch.float64).reshape(-1, 3, *size)
    dense = convolve(basis, kernel).flatten(1)  # the rows are the images of the inputs: the transpose of the operator
    back = from_frequency(multiply_frequencies(to_frequency(z, dft), matrices, None, True), size, dft)
    torch.testing.assert_close(back.flatten(1), z.flatten(1) @ dense.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("lead", [(2, 4), (1,), (4,), (9,), (16,)], ids=str)
@pytest.mark.parametrize("loops", [0, PLAIN_LOOPS])
def test_gradients_of_the_product(
    lead: tuple[int, ...], adjoint: bool, loops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onelip.fast.fourier_products.PLAIN_LOOPS", loops)
    x, matrices = normal(*lead, 2, 3), normal(*lead, *((2, 3) if adjoint else (3, 2)))
    bias = normal(2)
    arguments = tuple(tensor.requires_grad_() for tensor in (x, matrices, bias))

    def function(x: Tensor, matrices: Tensor, bias: Tensor) -> Tensor:
        return multiply_frequencies(x, matrices, bias, adjoint)

    assert torch.autograd.gradcheck(function, arguments)
    assert torch.autograd.gradgradcheck(function, arguments)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("lead", [(2, 4), (1,), (4,), (9,), (16,)], ids=str)
@pytest.mark.parametrize("rows", [5, 80])
def test_plain_product_is_the_same(lead: tuple[int, ...], rows: int, adjoint: bool) -> None:
    """What compilers and torch.func get; few rows and many are multiplied in two ways."""
    assert (rows * 6 < PLAIN_LOOPS) == (rows == 5)
    x, matrices, bias = normal(*lead, rows, 3), normal(*lead, *((2, 3) if adjoint else (3, 2))), normal(2)
    expected = multiply_frequencies(x, matrices, bias, adjoint)
    plain = torch.func.vjp(lambda x: multiply_frequencies(x, matrices, bias, adjoint), x)[0]
    torch.testing.assert_close(plain, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("size", [(3, 4), (4, 3), (2, 2), (3, 3), (4, 4)], ids=str)
def test_gradients_of_the_changes_of_form(size: tuple[int, int]) -> None:
    kernel = normal(2, 2, 3, 3, 3).requires_grad_()
    for function in (kernel_to_frequency, kernel_to_parts, torus_blocks):
        assert torch.autograd.gradcheck(lambda k, change=function: change(k, size), (kernel,))
    matrices = kernel_to_parts(kernel.detach(), size).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: packed_to_kernel(m, size), (matrices,))


@pytest.mark.parametrize("size", [(3, 4), (4, 4)], ids=str)
def test_gradients(size: tuple[int, int]) -> None:
    dft = real_dft(size, torch.float64)

    def function(x: Tensor, kernel: Tensor) -> Tensor:
        matrices = pack(torus_blocks(kernel, size))
        return from_frequency(multiply_frequencies(to_frequency(x, dft), matrices), size, dft)

    x, kernel = normal(2, 2, *size).requires_grad_(), normal(3, 2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(function, (x, kernel))


@pytest.mark.parametrize("size", [(32, 32), (8, 8)], ids=str)
def test_float32_is_accurate_to_rounding(size: tuple[int, int]) -> None:
    x, kernel = normal(4, 8, *size), normal(8, 8, 3, 3)
    dft = real_dft(size, torch.float32)
    matrices = pack(torus_blocks(kernel.float(), size))
    y = from_frequency(multiply_frequencies(to_frequency(x.float(), dft), matrices), size, dft)
    expected = convolve(x, kernel)
    assert (y - expected).norm() < 2e-6 * expected.norm()
