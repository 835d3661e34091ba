"""Row sums of an autocorrelation: the shorter form against the definition in float64, its gradient, what it keeps."""

import pytest
import torch
from torch import Tensor

from onelip.fast import autocorrelation
from onelip.linalg.rescaling import _row_sums, aol_kernel_scale


def _reference(kernel: Tensor, scale: Tensor) -> Tensor:
    """The sums in float64 by all 25 offsets of a kernel padded with zeros."""
    taps = torch.nn.functional.pad(kernel.double() / scale.double()[..., None, :, None, None], (2, 2, 2, 2))
    total = torch.zeros(scale.shape, dtype=torch.float64)
    for dy in range(5):
        for dx in range(5):
            moved, still = taps[..., dy : dy + 3, dx : dx + 3], taps[..., 2:5, 2:5]
            product = torch.einsum("...ojyx,...oiyx->...ji", still, moved)
            total = total + (product.abs() @ scale.double().unsqueeze(-1)).squeeze(-1)
    return total


def _sums_and_gradient(kernel: Tensor, scale: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
    leaf = kernel.clone().requires_grad_()
    sums = _row_sums(leaf, scale)
    sums.backward(cotangent)
    assert leaf.grad is not None
    return sums.detach(), leaf.grad


@pytest.mark.parametrize("shape", [(8, 8), (2, 6, 9), (9, 6)])
@pytest.mark.parametrize("short_from", [1, 1000])
def test_sums_and_gradients_of_either_form(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], short_from: int
) -> None:
    monkeypatch.setattr(autocorrelation, "SHORT_FROM", short_from)
    torch.manual_seed(0)
    kernel, scale = torch.randn(*shape, 3, 3), torch.rand(*shape[:-2], shape[-1]) + 0.5
    cotangent = torch.randn_like(scale)
    sums, gradient = _sums_and_gradient(kernel, scale, cotangent)
    leaf = kernel.double().requires_grad_()
    expected = _reference(leaf, scale)
    (expected_gradient,) = torch.autograd.grad(expected, leaf, cotangent.double())
    assert ((sums - expected.detach()).abs() <= 1e-6 * expected.detach()).all()
    assert (gradient - expected_gradient).norm() <= 2e-6 * expected_gradient.norm()


def test_the_short_form_is_taken_for_float32_kernels_of_3_x_3_alone() -> None:
    kernel = torch.empty(1, autocorrelation.SHORT_FROM, autocorrelation.SHORT_FROM, 3, 3)
    assert autocorrelation._has_short_form(kernel)
    for other in (kernel.double(), kernel[:, 1:], kernel[:, :, 1:], kernel[..., 1:], kernel[..., 1:, :]):
        assert not autocorrelation._has_short_form(other)


def test_what_cancels_stays_zero_in_the_short_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Magnitudes of zero have no slope: rounding noise in their place would move the taps of an identity."""
    monkeypatch.setattr(autocorrelation, "SHORT_FROM", 1)
    kernel = torch.zeros(6, 6, 3, 3)
    kernel[..., 1, 1] = torch.eye(6)
    sums, gradient = _sums_and_gradient(kernel, torch.ones(6), torch.ones(6))
    assert torch.equal(sums, torch.ones(6))
    assert torch.equal(gradient, 2 * kernel)


@pytest.mark.parametrize("short_from", [1, 1000])
def test_second_derivatives(monkeypatch: pytest.MonkeyPatch, short_from: int) -> None:
    monkeypatch.setattr(autocorrelation, "SHORT_FROM", short_from)
    torch.manual_seed(1)
    kernel, direction = torch.randn(4, 4, 3, 3), torch.randn(4, 4, 3, 3)

    def along(kernel: Tensor) -> Tensor:
        leaf = kernel.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(
            _row_sums(leaf, torch.ones(4, dtype=leaf.dtype)).sum(), leaf, create_graph=True
        )
        return torch.autograd.grad((gradient * direction.to(kernel.dtype)).sum(), leaf)[0]

    expected = along(kernel.double())
    assert (along(kernel) - expected).norm() <= 1e-5 * expected.norm()


def test_one_byte_per_entry_and_offset_is_kept() -> None:
    kept: list[Tensor] = []
    kernel = torch.randn(2, 80, 80, 3, 3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        aol_kernel_scale(kernel)
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    storages.pop(kernel.untyped_storage().data_ptr())
    assert sum(storages.values()) <= 1.05 * 13 * 2 * 80 * 80
