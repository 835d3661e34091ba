"""Norms against dense matrices: estimates never above, bounds never below."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from jacobians import circular_norm
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.linalg.norms import (
    conv_norm_bound,
    frobenius_norm,
    gram_norm_bound,
    scale_below_one,
)

SCALES = [0.0, 1e-30, 1e-12, 1.0, 1e12, 1e30]


def _dense(kernel: Tensor, size: tuple[int, int], padding_mode: str) -> Tensor:
    """Matrix of the 'same' convolution, entry by entry, so that kernels may wrap around the torus repeatedly."""
    out_channels, in_channels, kernel_height, kernel_width = kernel.shape
    height, width = size
    matrix = torch.zeros(out_channels, height, width, in_channels, height, width, dtype=kernel.dtype)
    for y in range(height):
        for x in range(width):
            for dy in range(kernel_height):
                for dx in range(kernel_width):
                    row, column = y + dy - kernel_height // 2, x + dx - kernel_width // 2
                    if padding_mode == "circular":
                        row, column = row % height, column % width
                    if 0 <= row < height and 0 <= column < width:
                        matrix[:, y, x, :, row, column] += kernel[:, :, dy, dx]
    return matrix.reshape(out_channels * height * width, -1)


def _norm(matrix: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(matrix, ord=2)


def test_dense_is_the_convolution() -> None:
    """The ground truth of this file is itself checked against F.conv2d."""
    torch.manual_seed(0)
    kernel, x = torch.randn(2, 3, 3, 5, dtype=torch.float64), torch.randn(1, 3, 4, 6, dtype=torch.float64)
    for padding_mode, mode in (("circular", "circular"), ("zeros", "constant")):
        expected = F.conv2d(F.pad(x, (2, 2, 1, 1), mode=mode), kernel).flatten()
        torch.testing.assert_close(_dense(kernel, (4, 6), padding_mode) @ x.flatten(), expected)


@settings(max_examples=60)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    steps=st.integers(0, 8),
    exponent=st.sampled_from([-100, -12, 0, 12, 100]),
    is_complex=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_gram_bound_from_above(rows: int, columns: int, steps: int, exponent: int, is_complex: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.complex128 if is_complex else torch.float64
    matrix = torch.randn(rows, columns, dtype=dtype, generator=generator) * 10.0**exponent
    sigma = float(_norm(matrix / 10.0**exponent)) * 10.0**exponent
    bound = float(gram_norm_bound(matrix, steps))
    assert sigma * (1 - 1e-13) <= bound <= sigma * min(rows, columns) ** (0.5 ** (steps + 1)) * (1 + 1e-13)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 4), (6, 6)])
@pytest.mark.parametrize("shape", [(3, 2, 3, 3), (2, 3, 5, 7), (2, 2, 1, 1)])
def test_bounds_of_convolutions_are_above(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    torch.manual_seed(5)
    kernel = torch.randn(2, *shape, dtype=torch.float64)
    exact = torch.stack([_norm(_dense(item, size, "circular")) for item in kernel])
    torch.testing.assert_close(circular_norm(kernel, size), exact)
    for iterations in (0, 1, 6):
        assert (conv_norm_bound(kernel, size, "circular", iterations) >= exact * (1 - 1e-13)).all()
    assert (conv_norm_bound(kernel, size, "circular", 6) <= exact * min(shape[:2]) ** (1 / 128) * (1 + 1e-13)).all()
    zeros = torch.stack([_norm(_dense(item, size, "zeros")) for item in kernel])
    assert (conv_norm_bound(kernel, size, "zeros") >= zeros * (1 - 1e-13)).all()


def test_trap_11_a_small_torus_underestimates_the_norm() -> None:
    torch.manual_seed(6)
    kernel = torch.randn(50, 2, 2, 3, 3, dtype=torch.float64)
    on_small, on_real = circular_norm(kernel, (3, 3)), circular_norm(kernel, (12, 12))
    assert (on_real / on_small).max() > 1.05
    assert (conv_norm_bound(kernel, (12, 12)) >= on_real * (1 - 1e-13)).all()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_any_scale_is_finite_with_finite_gradient(scale: float, dtype: torch.dtype) -> None:
    torch.manual_seed(8)
    base = torch.randn(3, 4, 4, dtype=dtype)
    matrix = (base * scale).requires_grad_()
    for function, truth in (
        (lambda m: gram_norm_bound(m, 8), _norm(base)),
        (frobenius_norm, torch.linalg.matrix_norm(base)),
    ):
        value = function(matrix)
        torch.testing.assert_close(value, truth * scale, rtol=5e-3, atol=0)
        (gradient,) = torch.autograd.grad(value.sum(), matrix)
        assert torch.isfinite(gradient.abs()).all()
        assert bool(gradient.any()) == (scale != 0)
    scaled = scale_below_one(matrix)
    assert _norm(scaled.detach()).max() <= 1 + 1e-6
    (gradient,) = torch.autograd.grad(scaled.abs().sum(), matrix)
    assert torch.isfinite(gradient.abs()).all()


@pytest.mark.parametrize("scale", SCALES)
def test_convolutions_of_any_scale(scale: float) -> None:
    torch.manual_seed(9)
    base = torch.randn(3, 2, 3, 3)
    kernel = (base * scale).requires_grad_()
    value = conv_norm_bound(kernel, (4, 4), "zeros")
    torch.testing.assert_close(value, conv_norm_bound(base, (4, 4), "zeros") * scale, rtol=1e-4, atol=0)
    (gradient,) = torch.autograd.grad(value, kernel)
    assert torch.isfinite(gradient).all()


CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "gram": lambda x: gram_norm_bound(x, 3),
    "gram_of_wide": lambda x: gram_norm_bound(x.flatten(-3), 3),
    "frobenius": frobenius_norm,
    "below_one": scale_below_one,
    "conv_norm_bound": lambda x: conv_norm_bound(x, (2, 3), "zeros", 2),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_compilation(name: str) -> None:
    torch.manual_seed(10)
    torch._dynamo.reset()
    x = torch.randn(2, 2, 3, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(CASES[name], (x,))
    actual = torch.compile(CASES[name], fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(actual, CASES[name](x))
    actual.sum().backward()


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 5, 3), (4, 4)])
@pytest.mark.parametrize("name", ["gram", "frobenius", "below_one"])
def test_complex_gradients(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(11)
    matrix = torch.randn(shape, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(CASES[name], (matrix,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(5, 5), (9, 4), (4, 9), (1, 1)])
def test_scaled_below_one_and_not_far_below(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """A multiple of the matrix, of norm between rank^(-1/8) and 1."""
    torch.manual_seed(13)
    matrix = torch.randn(shape, dtype=dtype)
    scaled = scale_below_one(matrix)
    norm = float(_norm(scaled))
    assert min(shape) ** (-1 / 8) * (1 - 1e-13) <= norm <= 1 + 1e-13
    torch.testing.assert_close(scaled * (_norm(matrix) / norm), matrix, rtol=1e-12, atol=0)


def test_bad_arguments() -> None:
    with pytest.raises(InvalidInputError, match="'circular' or 'zeros'"):
        conv_norm_bound(torch.zeros(1, 1, 3, 3), (4, 4), "reflect")
    with pytest.raises(InvalidInputError, match="odd"):
        conv_norm_bound(torch.zeros(1, 1, 2, 3), (4, 4), "zeros")
