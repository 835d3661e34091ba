"""Counted multiply-accumulates: each formula against its definition, and networks against their layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip.bench.measurement import Measurement, measure
from onelip.bench.measurement.macs import MacCounter, NetworkMacs, UncountedOperatorError, count_layer, count_macs
from onelip.bench.measurement.memory import without_memory
from onelip.bench.measurement.operator_macs import FLOPS_PER_MAC
from onelip.bench.records import NetworkSpec
from onelip.layers import create_conv
from onelip.layers.frequency_choice import FREQUENCY_SHARE, WHOLE_SHARE, spectral_operations
from onelip.linalg.fourier import multiply_frequencies
from onelip.linalg.polar import polar_factor

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


WRITING: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], object], int]] = {
    "bmm(out=)": (lambda a, b, y: torch.bmm(a, b, out=y), BATCH),
    "mm(out=)": (lambda a, b, y: torch.mm(a[0], b[0], out=y[0]), 1),
    "baddbmm(out=)": (lambda a, b, y: torch.baddbmm(y, a, b, out=y), BATCH),
    "baddbmm_": (lambda a, b, y: y.baddbmm_(a, b, alpha=-1), BATCH),
    "addbmm_": (lambda a, b, y: y[0].addbmm_(a, b), BATCH),
    "addmm_": (lambda a, b, y: y[0].addmm_(a[0], b[0]), 1),
}


@pytest.mark.parametrize("name", WRITING)
def test_products_that_write_to_a_given_tensor(name: str) -> None:
    action, products = WRITING[name]
    for dtype, factor in ((torch.float64, 1), (torch.complex128, 4)):
        a, b, y = (_matrix(*shape, dtype) for shape in ((N, N), (N, M), (N, M)))
        assert count_macs(lambda: action(a, b, y)) == factor * products * N * N * M  # noqa: B023


def test_matrix_and_vector_in_place() -> None:
    assert count_macs(lambda: torch.ones(N).addmv_(torch.ones(N, M), torch.ones(M))) == N * M


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
    integers = torch.ones(32, 32, dtype=torch.int8)
    with pytest.raises(UncountedOperatorError, match="_int_mm"):
        count_macs(lambda: torch._int_mm(integers, integers))


def test_convolution_and_its_backward_pass() -> None:
    conv, x = nn.Conv2d(4, 6, 3, padding=1), torch.ones(2, 4, 8, 8, requires_grad=True)
    forward = 2 * 64 * 4 * 6 * 9
    assert count_macs(lambda: conv(x)) == forward
    assert count_macs(lambda: conv(x).sum().backward()) == 3 * forward


def by_operator(counter: MacCounter) -> dict[str, int]:
    return {
        operator.__name__: flops // FLOPS_PER_MAC for operator, flops in counter.get_flop_counts()["Global"].items()
    }


def test_work_inside_custom_autograd_functions_is_counted() -> None:
    matrix = torch.eye(8, requires_grad=True)
    with MacCounter() as counter:
        result = polar_factor(matrix)
    verification = 4 * 8**2 * 2  # of the eigenvectors, on two vectors
    assert by_operator(counter) == {"mm": 3 * 8**3 + verification, "_linalg_eigh": 4.5 * 8**3}, "in float64"
    with MacCounter() as counter:
        result.sum().backward()
    assert by_operator(counter) == {"mm": 5 * 8**3}, "the eigenvectors are known"


def test_real_and_complex_products_are_counted() -> None:
    """On 4 x 4 pixels 4 of the frequencies are real, and 6 more are complex."""
    x, matrices = torch.ones(16, 5, 3, requires_grad=True), torch.ones(16, 3, 2, requires_grad=True)
    forward = (4 + 4 * 6) * 5 * 3 * 2
    with MacCounter() as counter:
        y = multiply_frequencies(x, matrices)
    assert counter.total == forward
    assert count_macs(lambda: y.sum().backward()) == 2 * forward


@pytest.mark.parametrize(("batch", "halves"), [(4, ("bmm",)), (40, ("bmm", "baddbmm_"))])
def test_complex_products_in_parts_are_counted(batch: int, halves: tuple[str, ...]) -> None:
    """Of few rows both parts go together; of more, the second product is added to the first one."""
    frequencies, inputs, outputs = 7, 3, 5
    x, matrices = torch.ones(2, frequencies, batch, inputs), torch.ones(2, frequencies, inputs, outputs)
    x.requires_grad_()
    matrices.requires_grad_()
    forward = 4 * frequencies * batch * inputs * outputs
    with MacCounter() as counter:
        y = multiply_frequencies(x, matrices)
    assert by_operator(counter) == {name: forward // len(halves) for name in halves}
    assert count_macs(lambda: y.sum().backward()) == 2 * forward


def test_recomputed_work_is_counted_again() -> None:
    """Sandwich computes its activation a second time in the backward pass: one product and one inverse DFT."""
    layer, x = create_conv("sandwich", 8, 8, 3), torch.rand(2, 8, 6, 6, requires_grad=True)
    transformed = layer.transform((6, 6)).map(torch.Tensor.detach)
    forward = count_macs(lambda: layer.apply_to(x, transformed))
    dft, product = 2 * 8 * spectral_operations((6, 6), 1, 0), 2 * (4 + 4 * 16) * 8 * 8  # 4 real frequencies, 16 others
    assert forward == 4 * dft + 2 * product
    y = layer.apply_to(x, transformed)
    again = count_macs(lambda: y.sum().backward()) - forward  # without parameter gradients, backward is as forward
    assert again == dft + product


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
            counted = count_layer(create_conv(method, 6, 6, 3), torch.rand(2, 6, 8, 8))
        assert counted.input == real.input
        if method == "lot":  # counts a correction that only some matrices need
            assert real.parameters <= counted.parameters <= 1.25 * real.parameters
        else:
            assert counted.parameters == real.parameters


def _count(method: str, batch_size: int, **size: Any) -> NetworkMacs:
    metrics = measure(Measurement("macs", NetworkSpec(method=method, **size), batch_size))
    assert metrics.pop("fits")
    return NetworkMacs(**metrics)


def test_plain_network() -> None:
    plain, reference = (_count(method, 4) for method in ("standard", "reference"))
    # 26 convolutions and the linear layer, from the widths 16, 16 ... 256 on 32, 32 ... 2 pixels
    blocks = [(16 * 2**i, 32 // 2**i) for i in range(4)]
    others = 32 * 32 * 16**2 + 5 * 256**2 * 4 + 512**2
    spatial = {block: 9 * block[0] ** 2 * block[1] ** 2 for block in blocks}
    assert reference.parameters == 0
    assert reference.input == reference.inference == 4 * (others + 5 * sum(spatial.values()))
    assert 2.5 < reference.training_step / reference.input <= 3
    # Where the plain network acts on frequencies, it has fewer products, and a DFT of its kernels.
    spectral = {(width, side): spectral_operations((side, side), width, width) for width, side in blocks}
    shares = {block: WHOLE_SHARE if block[1] <= 8 else FREQUENCY_SHARE for block in blocks}
    chosen = [block for block in blocks if spectral[block] < shares[block] * spatial[block]]
    assert [block[1] for block in chosen] == [8, 4], "the small images with many channels"
    saved = sum(spatial[block] - spectral[block] for block in chosen)
    assert plain.input == plain.inference == reference.input - 4 * 5 * saved
    assert plain.parameters == 5 * sum(side**2 * 9 * width**2 for width, side in chosen)
    assert plain.training_step < reference.training_step


def test_cached_inference_does_no_parameter_transformation() -> None:
    counts = _count("oni", 2, width=4)
    assert counts.inference == counts.input
    # The backward pass of the polar factor is cheaper than its iteration, that of a product twice as costly.
    assert counts.training_step > counts.parameters + 2.5 * counts.input
