"""Proven norms: never below the truth, and close to it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from onelip.proofs.proven import gamma, magnitude_norm_bound, norm_bound, vector_norm_bound
from onelip.proofs.proven_convolution import (
    Convolution,
    convolution_magnitude_bound,
    convolution_norm_bound,
    output_size,
    torus_norm_bound,
)


def exact_norm(matrix: torch.Tensor) -> Any:
    """Largest singular value in 50 digits."""
    with mpmath.workdps(50):
        return max(mpmath.svd_r(mpmath.matrix(matrix.double().tolist()), compute_uv=False))


def operator_of(convolution: nn.Module, shape: tuple[int, int, int]) -> torch.Tensor:
    """The dense matrix of a linear module without bias."""
    basis = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    with torch.no_grad():
        return convolution(basis).flatten(1).mT


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 2), (2, 6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bound_is_above_the_norm_in_50_digits(shape: tuple[int, int], dtype: torch.dtype) -> None:
    for _ in range(5):
        matrix = torch.randn(shape, dtype=dtype)
        bound, truth = mpmath.mpf(norm_bound(matrix)), exact_norm(matrix)
        assert truth <= bound <= truth * (1 + mpmath.mpf(1e-9))


def test_float64_svd_rounds_below_the_truth_where_the_bound_does_not() -> None:
    """The reason for all this: the norm of a computed SVD may be too small."""
    too_small = 0
    for _ in range(40):
        matrix = torch.randn(6, 6, dtype=torch.float64)
        truth = exact_norm(matrix)
        too_small += mpmath.mpf(float(torch.linalg.matrix_norm(matrix, 2))) < truth
        assert mpmath.mpf(norm_bound(matrix)) >= truth
    assert too_small > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.complex64])
def test_bound_of_a_batch_is_tight(dtype: torch.dtype) -> None:
    matrices = torch.randn(7, 40, 30, dtype=dtype)
    truth = float(torch.linalg.matrix_norm(matrices.to(torch.complex128), 2).amax())
    assert truth <= norm_bound(matrices) <= truth * (1 + 1e-9)
    assert truth <= norm_bound(matrices.mT) <= truth * (1 + 1e-9)


def test_orthogonal_float32_matrix_is_barely_above_one() -> None:
    matrix = torch.linalg.qr(torch.randn(256, 256))[0]
    assert 1 <= norm_bound(matrix) < 1 + 1e-6


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-30, 1e30, 1e150, 1e300])
def test_any_scale(scale: float) -> None:
    matrix = torch.randn(8, 8, dtype=torch.float64)
    truth = float(torch.linalg.matrix_norm(matrix, 2)) * scale
    assert truth <= norm_bound(matrix * scale) * (1 + 1e-15) <= truth * (1 + 1e-9)


def test_rank_one_and_repeated_singular_values() -> None:
    vector = torch.randn(20, 1, dtype=torch.float64)
    truth = float(vector.square().sum())
    assert truth * (1 - 1e-15) <= norm_bound(vector @ vector.mT) <= truth * (1 + 1e-9)
    assert 1 <= norm_bound(torch.eye(50)) <= 1 + 1e-9


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_finite_is_no_bound(value: float) -> None:
    matrix = torch.eye(3)
    matrix[0, 1] = value
    assert norm_bound(matrix) == math.inf
    assert norm_bound(torch.complex(torch.eye(3), matrix)) == math.inf
    assert magnitude_norm_bound(matrix) == math.inf
    assert vector_norm_bound(matrix) == math.inf


def test_error_is_added() -> None:
    assert norm_bound(torch.eye(4), error=0.5) >= 1.5


@given(st.integers(1, 2**20), st.sampled_from([2.0**-53, 2.0**-24]))
def test_gamma_is_rounded_up(terms: int, unit: float) -> None:
    product = terms * Fraction(unit)
    assert Fraction(gamma(terms, unit)) >= product / (1 - product)


def test_gamma_of_too_many_terms_is_infinite() -> None:
    assert gamma(2**24, 2.0**-24) == math.inf


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6))
def test_magnitude_bound(rows: int, columns: int, seed: int) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).relu()
    truth = float(torch.linalg.matrix_norm(matrix.double(), 2))
    assert truth <= magnitude_norm_bound(-matrix) * (1 + 1e-15)
    assert magnitude_norm_bound(matrix) <= 1.3 * truth + 1e-12


def test_magnitude_bound_is_tight_for_positive_matrices() -> None:
    matrix = torch.rand(3, 30, 40)
    truth = float(torch.linalg.matrix_norm(matrix.double(), 2).amax())
    assert truth <= magnitude_norm_bound(matrix) <= 1.001 * truth


def test_vector_norm_bound() -> None:
    vector = torch.randn(1000)
    exact = sum(Fraction(float(v)) ** 2 for v in vector)
    assert Fraction(vector_norm_bound(vector)) ** 2 >= exact
    assert vector_norm_bound(vector) <= math.sqrt(exact) * (1 + 1e-9)
    assert vector_norm_bound(torch.zeros(3)) == 0


def test_cosines_are_as_accurate_as_the_proof_assumes() -> None:
    """The angles and cosines of `torus_norm_bound`, against 40 digits, on tori up to 67."""
    worst = mpmath.mpf(0)
    with mpmath.workdps(40):
        for length in (3, 7, 12, 32, 67):
            steps = torch.arange(length)
            angles = (steps[:, None] * steps % length).double() * (2 * math.pi / length)
            total = angles + angles.flip(0)
            for f in range(0, length, 5):
                for d in range(0, length, 3):
                    turns = mpmath.mpf(int(f * d % length) + int((length - 1 - f) * d % length)) / length
                    exact = mpmath.cos(2 * mpmath.pi * turns), mpmath.sin(2 * mpmath.pi * turns)
                    computed = float(total[f, d].cos()), float(total[f, d].sin())
                    worst = max(worst, *(abs(mpmath.mpf(c) - e) for c, e in zip(computed, exact, strict=True)))
    assert worst < 64 * 2.0**-53


@pytest.mark.parametrize("torus", [(1, 1), (2, 3), (5, 5), (4, 8)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (1, 3), (5, 3)])
def test_torus_norm_against_the_dense_operator(torus: tuple[int, int], kernel: tuple[int, int]) -> None:
    weight = torch.randn(3, 2, *kernel, dtype=torch.float64)
    rows, columns = torch.arange(torus[0]), torch.arange(torus[1])

    def circular(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(len(x), 3, *torus, dtype=x.dtype)
        for i in range(kernel[0]):
            for j in range(kernel[1]):
                moved = x[:, :, (rows + i) % torus[0]][:, :, :, (columns + j) % torus[1]]
                y += torch.einsum("oi,bihw->bohw", weight[:, :, i, j], moved)
        return y

    basis = torch.eye(2 * torus[0] * torus[1], dtype=torch.float64).reshape(-1, 2, *torus)
    truth = float(torch.linalg.matrix_norm(circular(basis).flatten(1), 2))
    assert truth * (1 - 1e-14) <= torus_norm_bound(weight, torus) <= truth * (1 + 1e-9)


convolutions = st.fixed_dictionaries(
    {
        "kernel_size": st.tuples(st.integers(1, 4), st.integers(1, 4)),
        "stride": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "dilation": st.tuples(st.integers(1, 2), st.integers(1, 2)),
        "padding": st.tuples(st.integers(0, 3), st.integers(0, 3)),
        "padding_mode": st.sampled_from(["zeros", "circular", "reflect", "replicate"]),
        "groups": st.sampled_from([1, 2]),
    }
)


@given(convolutions, st.tuples(st.integers(4, 7), st.integers(4, 7)))
def test_any_convolution_of_torch(options: dict, size: tuple[int, int]) -> None:
    """Stride, dilation, padding of every mode, groups: the bound is above the dense operator's norm."""
    module = nn.Conv2d(2, 4, bias=False, dtype=torch.float64, **options)
    rows, columns = options["padding"]
    convolution = Convolution(
        module.weight,
        options["stride"],
        options["dilation"],
        ((rows, rows), (columns, columns)),
        module.padding_mode,
        module.groups,
    )
    if min(output_size(convolution, size)) < 1:
        return
    matrix = operator_of(module, (2, *size))
    assert tuple(module(torch.zeros(1, 2, *size, dtype=torch.float64)).shape[-2:]) == output_size(convolution, size)
    truth = float(torch.linalg.matrix_norm(matrix, 2))
    bound = convolution_norm_bound(convolution, size)
    assert truth * (1 - 1e-13) <= bound
    if options["padding_mode"] in ("zeros", "circular"):
        assert bound <= 3 * truth
    assert float(torch.linalg.matrix_norm(matrix.abs(), 2)) * (1 - 1e-13) <= convolution_magnitude_bound(
        convolution, size
    )


sides = st.tuples(st.integers(0, 5), st.integers(0, 5))


@given(
    st.tuples(sides, sides),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.integers(0, 2**32 - 1),
)
def test_zeros_on_each_side(padding: Any, kernel: Any, stride: Any, dilation: Any, size: Any, seed: int) -> None:
    """The torus of the padded image, and that of the kernel's own period, if no output reads the image from behind."""
    weight = torch.randn(1, 1, *kernel, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    convolution = Convolution(weight, stride, dilation, padding)
    if min(output_size(convolution, size)) < 1:
        return
    basis = torch.eye(size[0] * size[1], dtype=torch.float64).reshape(-1, 1, *size)
    padded = F.pad(basis, (*padding[1], *padding[0]))
    matrix = F.conv2d(padded, weight, stride=stride, dilation=dilation).flatten(1)
    truth = float(torch.linalg.matrix_norm(matrix, 2))
    assert truth * (1 - 1e-13) <= convolution_norm_bound(convolution, size)


def test_zero_padding_is_not_much_looser() -> None:
    module = nn.Conv2d(4, 4, 3, padding=1, bias=False, dtype=torch.float64)
    truth = float(torch.linalg.matrix_norm(operator_of(module, (4, 12, 12)), 2))
    bound = convolution_norm_bound(Convolution(module.weight, padding=((1, 1), (1, 1))), (12, 12))
    assert truth <= bound <= 1.05 * truth


def test_groups_take_the_maximum() -> None:
    """Trap 10: not the product of the groups' norms."""
    weight = torch.zeros(4, 1, 1, 1)
    weight[:, 0, 0, 0] = torch.tensor([0.5, 2.0, 3.0, 0.1])
    assert 3 <= convolution_norm_bound(Convolution(weight, groups=4), (5, 5)) <= 3 + 1e-8


def test_small_torus_underestimates() -> None:
    """Trap 11: the norm on a torus of the kernel's size is not the norm on the image's."""
    weight = torch.tensor([[[[1.0, 0, 1.0], [0, 0, 0], [-1.0, 0, 1.0]]]])
    assert torus_norm_bound(weight, (3, 3)) < 0.99 * torus_norm_bound(weight, (16, 16))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_copying_paddings_are_no_contractions(mode: Literal["reflect", "replicate"]) -> None:
    """Trap 9: with these paddings, a kernel whose circular convolution has norm 1 expands."""
    weight = torch.full((1, 1, 3, 3), 1 / 9, dtype=torch.float64)
    padded = Convolution(weight, padding=((1, 1), (1, 1)), mode=mode)
    circular = Convolution(weight, padding=((1, 1), (1, 1)), mode="circular")
    module = nn.Conv2d(1, 1, 3, padding=1, padding_mode=mode, bias=False, dtype=torch.float64)
    module.weight.data = weight
    truth = float(torch.linalg.matrix_norm(operator_of(module, (1, 6, 6)), 2))
    assert convolution_norm_bound(circular, (6, 6)) < 1 + 1e-9
    assert truth <= convolution_norm_bound(padded, (6, 6))
    assert convolution_norm_bound(padded, (6, 6)) > 1.01
