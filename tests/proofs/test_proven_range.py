"""Proven norms at the ends of the range of numbers, against rational arithmetic; failing routines; memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onelip.bench.measurement.memory import LiveTensors
from onelip.proofs import proof_cost, proven, proven_blocks
from onelip.proofs.linear_bounds import matrix_bound
from onelip.proofs.proof_cost import convolution_proof_cost, norm_proof_cost
from onelip.proofs.proven import magnitude_norm_bound, norm_bound, vector_norm_bound
from onelip.proofs.proven_convolution import (
    Convolution,
    convolution_magnitude_bound,
    convolution_norm_bound,
    torus_norm_bound,
)

Rows = list[list[Fraction]]


def is_norm_bound(rows: Rows, bound: float) -> bool:
    """Whether b^2 I - A^T A is positive semi-definite, by elimination in rational numbers."""
    if bound == math.inf:
        return True
    side = len(rows[0])
    rest = [
        [Fraction(bound) ** 2 * (i == j) - sum(row[i] * row[j] for row in rows) for j in range(side)]
        for i in range(side)
    ]
    for k in range(side):
        if rest[k][k] < 0 or (rest[k][k] == 0 and any(rest[k][k:])):
            return False
        for i in range(k + 1, side if rest[k][k] else 0):
            for j in range(k + 1, side):
                rest[i][j] -= rest[i][k] * rest[k][j] / rest[k][k]
    return True


def rational(matrix: Tensor) -> Rows:
    return [[Fraction(value) for value in row] for row in matrix.tolist()]


@st.composite
def matrices(draw: Any) -> Tensor:
    """Matrices of any numbers of a type: zeros, denormal ones, the largest."""
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    width, dtype = draw(st.sampled_from([(64, torch.float64), (32, torch.float32)]))
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)
    values = draw(st.lists(numbers, min_size=rows * columns, max_size=rows * columns))
    shift = draw(st.sampled_from([1.0, 1.0, 1e-154, 1e-300]))
    return torch.tensor(values, dtype=dtype).reshape(rows, columns) * shift


@given(matrices())
@settings(max_examples=300)
def test_bounds_of_any_numbers(matrix: Tensor) -> None:
    exact = rational(matrix)
    assert is_norm_bound(exact, norm_bound(matrix))
    magnitudes = [[abs(value) for value in row] for row in exact]
    assert is_norm_bound(magnitudes, magnitude_norm_bound(matrix))
    assert is_norm_bound([[value] for row in exact for value in row], vector_norm_bound(matrix))


@pytest.fixture
def flushed() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("flushed")
@pytest.mark.parametrize(("dtype", "smallest"), [(torch.float64, 2.0**-1074), (torch.float32, 2.0**-149)])
@pytest.mark.parametrize("multiple", [1, 3, 2**20 + 1])
def test_bounds_of_flushed_numbers(dtype: torch.dtype, smallest: float, multiple: int) -> None:
    """The numbers are there though the processor reads zeros: rational arithmetic would not see them, so it is told."""
    bits = torch.int64 if dtype == torch.float64 else torch.int32
    matrix = torch.full((2, 2), multiple, dtype=bits).view(dtype)
    with_flush = [norm_bound(matrix), magnitude_norm_bound(matrix), vector_norm_bound(matrix)]
    with_flush.append(torus_norm_bound(matrix[None, :, None].expand(1, 2, 3, 2).contiguous(), (4, 4)))
    torch.set_flush_denormal(False)
    truth = 2 * multiple * Fraction(smallest)
    assert all(Fraction(bound) >= truth for bound in with_flush)
    assert min(with_flush) > 0
    assert max(with_flush) < 1e-30


@pytest.mark.parametrize("scale", [2.0**-1060, 1e-308, 1e-200, 1e-154, 1e-120, 1e120, 1e154, 2.0**1020])
@pytest.mark.parametrize("shape", [(2, 3, 1, 2), (2, 2, 2, 2)])
def test_convolutions_of_any_scale(scale: float, shape: tuple[int, ...]) -> None:
    kernel = torch.randint(-3, 4, shape).double()
    kernel[0, 0, 0, 0] = 3.0
    at_one = Convolution(kernel, padding=((1, 1), (1, 1)))
    scaled = at_one._replace(kernel=kernel * scale)
    for bound in (convolution_norm_bound, convolution_magnitude_bound):
        truth = Fraction(bound(at_one, (4, 4))) * Fraction(scale)  # above the truth by 1e-9
        given_bound = bound(scaled, (4, 4))
        assert given_bound == math.inf if truth > 2**1024 else Fraction(given_bound) >= truth * Fraction(1 - 1e-8)
        if 1e-290 < scale < 1e290:
            assert Fraction(given_bound) <= truth * Fraction(1 + 1e-8)


def test_no_weight_is_too_large() -> None:
    largest = torch.finfo(torch.float64).max
    assert largest <= norm_bound(torch.tensor([[largest]], dtype=torch.float64))
    assert norm_bound(torch.full((2, 2), largest, dtype=torch.float64)) == math.inf
    assert math.isfinite(norm_bound(torch.full((9, 9), torch.finfo(torch.float32).max)))


def broken_eigenvalues(*_: Any, **__: Any) -> Tensor:
    return torch.tensor(math.nan)


def no_convergence(*_: Any, **__: Any) -> Tensor:
    raise torch.linalg.LinAlgError("did not converge")


def zeros(*_: Any, **__: Any) -> Tensor:
    return torch.zeros(1)


@pytest.mark.parametrize("routine", [broken_eigenvalues, no_convergence, zeros])
def test_a_failing_eigenvalue_routine_gives_the_frobenius_norm(
    routine: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = torch.randn(4, 3, dtype=torch.float64)
    monkeypatch.setattr(torch.linalg, "eigvalsh", routine)
    assert is_norm_bound(rational(matrix), norm_bound(matrix))
    assert norm_bound(matrix) == pytest.approx(float(matrix.norm()))


def test_a_failing_factorisation_gives_the_frobenius_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.randn(4, 3, dtype=torch.float64)
    monkeypatch.setattr(
        torch.linalg, "cholesky_ex", lambda a, upper: (torch.full_like(a, math.nan), torch.zeros(a.shape[0]))
    )
    assert norm_bound(matrix) == pytest.approx(float(matrix.norm()))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (proven, proof_cost):
        monkeypatch.setattr(module, "BATCH_ENTRIES", 3)
    for module in (proven_blocks, proof_cost):
        monkeypatch.setattr(module, "BLOCK_ENTRIES", 200)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("shape", [(40, 30), (20, 50), (30, 30)])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_blocks_give_the_same_bound(shape: tuple[int, int], scale: float) -> None:
    matrix = torch.randn(shape, dtype=torch.float64)
    truth = float(torch.linalg.matrix_norm(matrix, 2)) * scale
    assert truth <= norm_bound(matrix * scale) * (1 + 1e-15) <= truth * (1 + 1e-6)


@pytest.mark.usefixtures("small_blocks")
@given(matrix=matrices())
@settings(max_examples=50)
def test_blocks_of_any_numbers(matrix: Tensor) -> None:
    assert is_norm_bound(rational(matrix), norm_bound(matrix))


@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_numbers_that_are_not_finite() -> None:
    for value in (math.nan, math.inf, -math.inf):
        matrix = torch.eye(5)
        matrix[1, 2] = value
        assert norm_bound(matrix) == math.inf


def peak_memory(function: Callable[[], object], source: Tensor) -> int:
    with LiveTensors() as live:
        live.add((source,))
        before = live.current
        live.reset_peak()
        function()
        return live.peak - before


@pytest.mark.parametrize(("shape", "dtype"), [((5, 40, 30), torch.float32), ((2, 30, 40), torch.complex64)])
def test_predicted_memory_suffices(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = torch.randn(shape, dtype=dtype)
    used, predicted = peak_memory(lambda: norm_bound(matrix), matrix), norm_proof_cost(shape, dtype.is_complex)
    assert 0.3 * predicted.memory < used <= predicted.memory


@pytest.mark.usefixtures("small_blocks")
def test_predicted_memory_of_blocks_suffices() -> None:
    """Two matrices in float64, whatever is proven; of the other three, LAPACK takes one and the certificate two."""
    matrix, entries = torch.randn(100, 100), 100 * 100
    for prove in (norm_bound, lambda matrix: matrix_bound(matrix, None)):
        used = peak_memory(lambda prove=prove: prove(matrix), matrix)
        assert 16 * entries <= used <= norm_proof_cost(matrix.shape).memory - 24 * entries


def test_the_largest_proof_fits_in_eleven_gigabytes() -> None:
    assert norm_proof_cost((16_384, 16_384)).memory < 11e9
    assert norm_proof_cost((16_384, 16_384)).operations > 2 * 16_384**3


@pytest.mark.parametrize("stride", [1, 2])
def test_predicted_memory_of_convolutions_suffices(stride: int) -> None:
    convolution = Convolution(torch.randn(8, 8, 3, 3), (stride, stride), padding=((1, 1), (1, 1)))
    used = peak_memory(lambda: convolution_norm_bound(convolution, (6, 6)), convolution.kernel)
    assert used <= convolution_proof_cost(convolution, (6, 6)).memory
