"""AOL scales: the definition, soundness against exact norms for every scale of weights, gradients."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from onelip.fast import autocorrelation
from onelip.linalg.rescaling import aol_kernel_scale, aol_scale, rescaled_isometry

SCALES = [0.0, 1e-30, 1e-12, 1.0, 1e12, 1e30]


def _kernel_row_sums(kernel: Tensor) -> Tensor:
    """The definition, written out: one loop per index."""
    _, in_channels, height, width = kernel.shape
    sums = torch.zeros(in_channels, dtype=kernel.dtype)
    for j in range(in_channels):
        for i in range(in_channels):
            for dy in range(1 - height, height):
                for dx in range(1 - width, width):
                    value = 0.0
                    for y in range(max(0, -dy), min(height, height - dy)):
                        for x in range(max(0, -dx), min(width, width - dx)):
                            value += float(kernel[:, j, y, x] @ kernel[:, i, y + dy, x + dx])
                    sums[j] += abs(value)
    return sums


def _dense(kernel: Tensor, size: tuple[int, int], padding_mode: str) -> Tensor:
    """Matrix of the 'same' convolution: the images of all unit impulses."""
    channels = kernel.shape[1]
    impulses = torch.eye(channels * size[0] * size[1], dtype=kernel.dtype).reshape(-1, channels, *size)
    rows, columns = kernel.shape[-2] // 2, kernel.shape[-1] // 2
    mode = "circular" if padding_mode == "circular" else "constant"
    return F.conv2d(F.pad(impulses, (columns, columns, rows, rows), mode=mode), kernel).flatten(1).T


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (2, 3, 5, 5), (1, 1)])
def test_matrix_scale_is_the_definition_and_sound(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=dtype)
    scale = aol_scale(matrix)
    torch.testing.assert_close(scale, (matrix.mH @ matrix).abs().sum(-1) ** -0.5)
    assert torch.linalg.matrix_norm(matrix * scale.unsqueeze(-2), ord=2).max() <= 1 + 1e-5


def test_orthogonal_columns_are_normalised_exactly() -> None:
    """AOL is tight for orthogonal columns: they come out with unit norm, so no epsilon weakens it."""
    torch.manual_seed(1)
    basis = torch.linalg.qr(torch.randn(6, 4, dtype=torch.float64))[0]
    torch.testing.assert_close(3 * basis * aol_scale(3 * basis), basis)
    diagonal = torch.diag(torch.tensor([1e-30, 1.0, 3.0, 1e30]))
    torch.testing.assert_close(diagonal * aol_scale(diagonal), torch.eye(4))


@pytest.mark.parametrize("scale", SCALES)
def test_matrices_of_any_scale(scale: float) -> None:
    torch.manual_seed(2)
    for columns in (torch.ones(5), torch.tensor([1.0, 1e-8, 0.0, 1.0, 1e-4])):
        matrix = (torch.randn(7, 5) * columns * scale).requires_grad_()
        rescaled = matrix * aol_scale(matrix)
        rescaled.sum().backward()
        assert torch.isfinite(rescaled).all()
        assert torch.linalg.matrix_norm(rescaled.detach().double(), ord=2) <= 1 + 1e-6
        assert not rescaled[:, columns * scale == 0].any()
        assert matrix.grad is not None
        assert torch.isfinite(matrix.grad).all()
        if scale != 0:
            unit = aol_scale(matrix.detach().double())
            torch.testing.assert_close(aol_scale(matrix)[columns > 0].double(), unit[columns > 0], rtol=1e-4, atol=0)


@pytest.mark.parametrize("limit", [0, 64 * 64])
@pytest.mark.parametrize("shape", [(4, 3, 3, 3), (3, 4, 1, 1), (2, 3, 5, 3), (3, 2, 1, 3)])
def test_kernel_scale_is_the_definition(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], limit: int) -> None:
    """Both formulations: the limit decides which one runs."""
    monkeypatch.setattr(autocorrelation, "CONVOLUTION_UP_TO", limit)
    torch.manual_seed(3)
    kernel = torch.randn(2, 2, *shape, dtype=torch.float64)
    scale = aol_kernel_scale(kernel)
    for i in range(2):
        for j in range(2):
            torch.testing.assert_close(scale[i, j], _kernel_row_sums(kernel[i, j]) ** -0.5)


@pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 4), (3, 3)])
def test_rescaled_convolutions_are_contractions_on_every_image_size(size: tuple[int, int], padding_mode: str) -> None:
    torch.manual_seed(4)
    for _ in range(5):
        kernel = torch.randn(4, 3, 3, 3, dtype=torch.float64)
        rescaled = kernel * aol_kernel_scale(kernel)[:, None, None]
        norm = torch.linalg.matrix_norm(_dense(rescaled, size, padding_mode), ord=2)
        assert norm <= 1 + 1e-12


def _unrolled_isometry(*shape: int) -> Tensor:
    """Random kernels whose out x (in k k) matrices have orthonormal rows, or columns where there are fewer."""
    matrices = torch.randn(*shape[:-3], shape[-3] * shape[-2] * shape[-1], dtype=torch.float64)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    return (left @ right).reshape(shape)


@pytest.mark.parametrize("shape", [(4, 3, 3, 3), (2, 4, 5, 5), (30, 2, 3, 3), (3, 5, 1, 1)])
def test_rescaled_isometries_are_divided_by_the_smaller_of_two_bounds(shape: tuple[int, ...]) -> None:
    torch.manual_seed(8)
    kernels = _unrolled_isometry(2, *shape)
    rescaled = rescaled_isometry(kernels)
    for kernel, actual in zip(kernels, rescaled, strict=True):
        bound = min(float(_kernel_row_sums(kernel).max()) ** 0.5, shape[-1])
        torch.testing.assert_close(actual, kernel / bound if shape[-1] > 1 else kernel, rtol=1e-12, atol=0)
        for padding_mode in ("circular", "zeros"):
            assert torch.linalg.matrix_norm(_dense(actual, (6, 5), padding_mode), ord=2) <= 1 + 1e-12


def test_each_of_the_two_bounds_is_exact_somewhere() -> None:
    """AOL's for one orthogonal tap, which loses nothing; k where all taps point the same way."""
    torch.manual_seed(9)
    one_tap = torch.zeros(4, 4, 3, 3, dtype=torch.float64)
    one_tap[:, :, 1, 1] = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0]
    torch.testing.assert_close(rescaled_isometry(one_tap), one_tap, rtol=0, atol=1e-12)
    constant = torch.full((1, 1, 3, 3), 1 / 3, dtype=torch.float64)
    torch.testing.assert_close(rescaled_isometry(constant), constant / 3, rtol=1e-12, atol=0)
    assert torch.linalg.matrix_norm(_dense(constant, (5, 5), "circular"), ord=2) == pytest.approx(3)


@pytest.mark.parametrize("limit", [0, 64 * 64])
@pytest.mark.parametrize("scale", SCALES)
def test_kernels_of_any_scale(monkeypatch: pytest.MonkeyPatch, scale: float, limit: int) -> None:
    monkeypatch.setattr(autocorrelation, "CONVOLUTION_UP_TO", limit)
    torch.manual_seed(5)
    channels = torch.tensor([1.0, 0.0, 1e-8, 1.0])[:, None, None]
    kernel = (torch.randn(3, 4, 3, 3) * channels * scale).requires_grad_()
    rescaled = kernel * aol_kernel_scale(kernel)[:, None, None]
    rescaled.sum().backward()
    assert kernel.grad is not None
    assert torch.isfinite(kernel.grad).all()
    norm = torch.linalg.matrix_norm(_dense(rescaled.detach().double(), (6, 6), "circular"), ord=2)
    assert norm <= 1 + 1e-6
    assert (norm > 0.1) == (scale > 0)


@pytest.mark.parametrize("limit", [0, 64 * 64])
def test_gradients(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(autocorrelation, "CONVOLUTION_UP_TO", limit)
    torch.manual_seed(6)
    kernel = torch.randn(2, 2, 3, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(aol_kernel_scale, (kernel,))
    for dtype in (torch.float64, torch.complex128):
        matrix = torch.randn(2, 4, 3, dtype=dtype, requires_grad=True)
        assert torch.autograd.gradcheck(aol_scale, (matrix,))
    assert torch.autograd.gradcheck(rescaled_isometry, (_unrolled_isometry(2, 2, 3, 3, 3).requires_grad_(),))


@pytest.mark.parametrize("function", [aol_scale, aol_kernel_scale])
def test_compiles_to_one_graph(function: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(7)
    torch._dynamo.reset()
    x = torch.randn(2, 4, 3, 3, 3, requires_grad=True)
    actual = torch.compile(function, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(actual, function(x))
    actual.sum().backward()
