"""DFTs along the rows by half of their matrix: against the whole matrix, in exact arithmetic, and their gradients."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.layers.operators import frequencies
from onelip.linalg.devices import pretend_device
from onelip.linalg.fourier import RealDFT, is_exactly_halved, may_be_halved, multiply_rows, real_dft
from onelip.proofs.layer_bound import FLOAT32, linear_bound
from onelip.proofs.linear_bounds import dft_norm_bound
from onelip.proofs.proven import magnitude_norm_bound, norm_bound

SIZES = [(16, 16), (32, 32), (34, 34), (2, 5), (4, 3), (12, 16)]
each_size = pytest.mark.parametrize("size", SIZES, ids=str)
each_way = pytest.mark.parametrize("transpose", [False, True])


def rows_of(size: tuple[int, int], dtype: torch.dtype = torch.float64) -> Tensor:
    return real_dft(size, dtype).rows


@each_size
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_second_half_of_the_positions_repeats_the_first_to_the_last_bit(
    size: tuple[int, int], dtype: torch.dtype
) -> None:
    rows = rows_of(size, dtype)
    assert may_be_halved(rows)
    assert is_exactly_halved(rows)
    # Entry by entry the definition, e^(-i t): the repair moved nothing by more than roundings.
    height = size[0]
    angles = (torch.arange(height)[:, None] * torch.arange(height) % height).double() * (2 * math.pi / height)
    cos, sin = angles.cos() / math.sqrt(height), angles.sin() / math.sqrt(height)
    real = torch.stack([cos, sin], -1).flatten(1)
    imag = torch.stack([-sin, cos], -1).flatten(1)
    torch.testing.assert_close(
        rows.double(), torch.cat([real, imag]), rtol=0, atol=8 * torch.finfo(dtype).eps / math.sqrt(height)
    )


def test_odd_lengths_have_no_halves() -> None:
    rows = rows_of((9, 8))
    assert not may_be_halved(rows)
    x = torch.randn(18, 5, dtype=torch.float64)
    torch.testing.assert_close(multiply_rows(rows, x), rows @ x, rtol=0, atol=1e-14)


@each_size
@each_way
def test_product_is_that_of_the_whole_matrix(size: tuple[int, int], transpose: bool) -> None:
    rows = rows_of(size)
    x = torch.randn(len(rows), 7, dtype=torch.float64)
    expected = (rows.mT if transpose else rows) @ x
    torch.testing.assert_close(multiply_rows(rows, x, transpose), expected, rtol=0, atol=1e-13)
    traced = torch.func.vjp(lambda x: multiply_rows(rows, x, transpose), x)[0]
    torch.testing.assert_close(traced, expected, rtol=0, atol=1e-13)
    with pretend_device("accelerator"):
        torch.testing.assert_close(multiply_rows(rows, x, transpose), expected, rtol=0, atol=1e-13)


@each_way
def test_gradients(transpose: bool) -> None:
    rows = rows_of((4, 3))
    x = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: multiply_rows(rows, x, transpose), (x,))
    assert torch.autograd.gradgradcheck(lambda x: multiply_rows(rows, x, transpose), (x,))


@each_way
@pytest.mark.parametrize("height", [2, 16, 32])
def test_rounding_is_within_the_bound_in_rational_arithmetic(height: int, transpose: bool) -> None:
    """The product of the float32 numbers in memory without any rounding, beside the one that float32 computes."""
    rows = rows_of((height, height + 1), torch.float32)
    matrix = rows.mT if transpose else rows
    bound = linear_bound(norm_bound(rows), magnitude_norm_bound(rows), terms=len(rows), outputs=len(rows))
    assert bound.rounding is not None
    error = bound.rounding(FLOAT32)
    torch.manual_seed(height)
    # the last column cancels where it can: large numbers of opposite sign in the two halves
    x = torch.randn(len(rows), 3)
    x[len(x) // 2 :, 2] = -x[: len(x) // 2, 2] * (1 + 2.0**-20)
    computed = multiply_rows(rows, x, transpose)
    for column in range(x.shape[1]):
        vector = [Fraction(float(value)) for value in x[:, column]]
        exact = [sum((Fraction(float(m)) * v for m, v in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]
        defect = [Fraction(float(c)) - e for c, e in zip(computed[:, column], exact, strict=True)]
        norm = math.sqrt(sum(v * v for v in vector))
        assert math.sqrt(sum(d * d for d in defect)) <= error.slope * norm + error.constant
        assert math.sqrt(sum(e * e for e in exact)) <= bound.lipschitz * norm


def test_a_matrix_without_equal_halves_has_no_bound() -> None:
    """The program reads half of the matrix: a bound of other numbers would be one of another layer."""
    dft = real_dft((16, 16), torch.float32)
    assert 1 - 1e-6 < dft_norm_bound(dft) < 1 + 1e-6
    changed = dft.rows.clone()
    changed[3, -1] *= 1.5
    with pytest.raises(InvalidInputError, match="fuse it again"):
        dft_norm_bound(RealDFT(dft.columns, changed))
    operator = frequencies(torch.zeros(2, 144, 2, 2), (16, 16))
    with pytest.raises(InvalidInputError, match="fuse it again"):
        operator.with_tensors({**operator.tensors(), "dft_rows": changed}).bound((2, 16, 16), None)
