"""Counted multiply-accumulates: each formula against its definition, and networks against their layers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from onelip.layers import create_conv
from onelip.linalg.polar import polar_factor
from onelip.measurement import MacCounter, Workload, count_layer, count_macs, count_network
from onelip.measurement.macs import UncountedOperatorError
from onelip.measurement.meta import without_memory

N, M, BATCH = 12, 5, 3


def _matrix(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    return torch.eye(max(rows, columns), dtype=dtype)[:rows, :columns].expand(BATCH, -1, -1).clone()


CUBIC: dict[str, tuple[Callable[[Tensor, Tensor], object], float]] = {
    "product": (lambda a, b: a @ b, N * N * M),
    "added product": (lambda a, b: torch.baddbmm(b, a, b), N * N * M),
    "matrix and vector": (lambda a, b: a[0] @ b[0, :, 0], N * N / BATCH),
    "solve": (torch.linalg.solve, N**3 / 3 + N * N * M),
    "inverse": (lambda a, b: torch.linalg.inv(a), N**3),
    "lu": (lambda a, b: torch.linalg.lu_factor(a), N**3 / 3),
    "cholesky": (lambda a, b: torch.linalg.cholesky(a), N**3 / 6),
    "triangular": (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), N * N * M / 2),
    "eigenvectors": (lambda a, b: torch.linalg.eigh(a), 4.5 * N**3),
    "qr": (lambda a, b: torch.linalg.qr(a), 4 / 3 * N**3),
}


@pytest.mark.parametrize("name", CUBIC)
def test_real_and_complex_matrix_functions(name: str) -> None:
    action, expected = CUBIC[name]
    for dtype, factor in ((torch.float64, 1), (torch.complex128, 4)):
        a, b = _matrix(N, N, dtype), _matrix(N, M, dtype)
        assert count_macs(lambda: action(a, b)) == pytest.approx(factor * BATCH * expected, abs=1)  # noqa: B023


def test_fourier_transforms() -> None:
    x = torch.ones(3, 16, 8)
    points = 128
    assert count_macs(lambda: torch.fft.fft2(x.to(torch.complex64))) == 3 * 2 * points * math.log2(points)
    assert count_macs(lambda: torch.fft.rfft2(x)) == 3 * points * math.log2(points)
    half = torch.fft.rfft2(x)
    assert count_macs(lambda: torch.fft.irfft2(half, s=(16, 8))) == 3 * points * math.log2(points)


def test_an_operator_without_a_formula_is_refused() -> None:
    with pytest.raises(UncountedOperatorError, match="matrix_exp"):
        count_macs(lambda: torch.linalg.matrix_exp(torch.eye(3)))


def test_convolution_and_its_backward_pass() -> None:
    conv, x = nn.Conv2d(4, 6, 3, padding=1), torch.ones(2, 4, 8, 8, requires_grad=True)
    forward = 2 * 64 * 4 * 6 * 9
    assert count_macs(lambda: conv(x)) == forward
    assert count_macs(lambda: conv(x).sum().backward()) == 3 * forward


def test_work_inside_custom_autograd_functions_is_counted() -> None:
    matrix = torch.eye(8, requires_grad=True)
    with MacCounter() as counter:
        result = polar_factor(matrix)
    forward = counter.total
    assert forward >= 10 * 8**3
    with MacCounter() as counter:
        result.sum().backward()
    assert counter.by_operator()["_linalg_eigh"] == round(4.5 * 8**3)


def test_transform_and_apply_are_counted_apart() -> None:
    layer = create_conv("aol", 8, 8, 3)
    small, large = (count_layer(layer, torch.rand(b, 8, 6, 6)) for b in (2, 4))
    assert small.input == 2 * 36 * 8 * 8 * 9
    assert large.input == 2 * small.input
    assert large.parameters == small.parameters > 8**3


def test_meta_tensors_give_the_same_counts() -> None:
    for method in ("cayley", "lot", "soc", "sll"):
        real = count_layer(create_conv(method, 6, 6, 3), torch.rand(2, 6, 8, 8))
        with without_memory():
            assert count_layer(create_conv(method, 6, 6, 3), torch.rand(2, 6, 8, 8)) == real


def test_plain_network() -> None:
    plain, reference = (count_network(Workload(method, batch_size=4)) for method in ("standard", "reference"))
    assert plain.parameters == reference.parameters == 0
    assert plain.input == reference.input == reference.inference == plain.inference
    # 26 convolutions and the linear layer, from the widths 16, 16 ... 256 on 32, 32 ... 2 pixels
    blocks = sum(5 * 9 * (16 * 2**i) ** 2 * (32 // 2**i) ** 2 for i in range(4))
    assert reference.input == 4 * (32 * 32 * 16**2 + blocks + 5 * 256**2 * 4 + 512**2)
    assert 2.5 < reference.training_step / reference.input <= 3


def test_cached_inference_does_no_parameter_transformation() -> None:
    counts = count_network(Workload("oni", batch_size=2))
    assert counts.inference == counts.input
    # The backward pass of the polar factor is cheaper than its iteration, that of a product twice as costly.
    assert counts.training_step > counts.parameters + 2.5 * counts.input
