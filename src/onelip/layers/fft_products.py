"""Convolutions by frequency as accelerators train them: the library's FFT and one complex product per frequency.

With X^(f) the orthonormal real FFT of x, y^(f) = X^(f) M^(f) is one batched product in place of the four real ones that
CPUs are better at, and each FFT is one kernel. The transform F is an isometry onto its image if the columns of the
half spectrum that stand for two frequencies count twice (weights w). The adjoint of x -> F^(-1) M F x is then
g -> F^(-1) M^H F g, and the gradient for M is w X^H G.

Its rounding is not proven: evaluation, and with it every certificate, uses the matrices of `Frequencies`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onelip.layers.operators import TrainingOperator, check_size, embedded
from onelip.linalg.constants import cached_constant
from onelip.linalg.devices import is_cpu, is_xla
from onelip.linalg.fourier import Size, half_width, kernel_to_frequency
from onelip.linalg.tensor_modes import run, wants_plain_operations


def trains_by_fft(training: bool, device: torch.device) -> bool:
    """Whether a layer that acts on frequencies does so by the FFTs of this file; XLA has none."""
    return training and not is_cpu(device) and not is_xla(device)


def half_spectrum(kernel: Tensor, torus: Size, part: slice | None = None) -> Tensor:
    """Complex matrices (..., h * (w // 2 + 1), out, in) of the convolution, as `kernel_to_frequency` has them.

    One product with the phases of the taps, whose two parts lie side by side; or those of some frequencies alone.
    """

    def make(device: torch.device) -> Tensor:
        taps = torch.eye(kernel.shape[-2] * kernel.shape[-1], dtype=kernel.dtype, device=device)
        phases = kernel_to_frequency(taps.reshape(-1, 1, *kernel.shape[-2:]), torus)  # (h, w', taps, 1)
        return torch.view_as_real(phases.flatten(0, 1).squeeze(-1).mT.contiguous()).flatten(-2)

    key = "tap phases", torus, tuple(kernel.shape[-2:]), kernel.dtype
    phases = cached_constant(key, kernel.device, make)
    phases = phases if part is None else phases[:, 2 * part.start : 2 * part.stop]
    parts = torch.mm(kernel.reshape(-1, phases.shape[0]), phases)
    matrices = torch.view_as_complex(parts.unflatten(-1, (-1, 2))).unflatten(0, kernel.shape[:-2])
    return matrices.movedim(-1, -3).contiguous()


def spectrum_to_kernel(matrices: Tensor, sides: Size) -> Tensor:
    """Inverse of `half_spectrum` for a kernel that fills the torus: (..., f, out, in) to (..., out, in, h, w).

    The parts of the half spectrum are P x for the taps x, and the inverse is P^T with weights over h w.
    """

    def make(device: torch.device) -> Tensor:
        real = matrices.real.dtype
        taps = torch.eye(sides[0] * sides[1], dtype=real, device=device)
        phases = half_spectrum(taps.reshape(-1, 1, *sides), sides).squeeze(-1)  # (f, taps)
        weights = spectrum_weights(torch.Size(sides), phases)[:, 0] / (sides[0] * sides[1])
        return torch.view_as_real(weights * phases).transpose(1, 2).flatten(0, 1).contiguous()  # (f parts, taps)

    phases = cached_constant(("inverse phases", sides, matrices.dtype), matrices.device, make)
    parts = torch.view_as_real(matrices.movedim(-3, -1).resolve_conj()).flatten(-2)
    return torch.mm(parts.reshape(-1, parts.shape[-1]), phases).reshape(*parts.shape[:-1], *sides)


@dataclass(frozen=True)
class FourierProduct(TrainingOperator):
    """x -> F^(-1) M F x + b in training, for images of one size on a torus; `spectrum` are `parts_of` (f, in, out)."""

    linear_in = "spectrum"

    spectrum: Tensor
    torus: Size
    image: Size

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """FFT, one product, inverse FFT."""
        check_size(x, self.image)
        y = fourier_product(embedded(x, self.torus), self.spectrum)[..., : x.shape[-2], : x.shape[-1]]
        return y if bias is None else y + bias[:, None, None]


def fourier_product(x: Tensor, spectrum: Tensor) -> Tensor:
    """Images (b, i, h, w) times (f, i, o), given by parts, at every frequency of their torus; in float32 or better."""
    if spectrum.dtype in (torch.float16, torch.bfloat16):
        spectrum = spectrum.float()  # narrow types have no FFT of every length
    x, matrices = x.to(spectrum.dtype), torch.view_as_complex(spectrum)
    if wants_plain_operations():
        return from_frequencies(to_frequencies(x) @ matrices, x.shape[-2:])
    return run(_FourierProduct, x, matrices)


def parts_of(matrices: Tensor) -> Tensor:
    """Complex matrices (..., out, in) as real numbers (..., in, out, 2), which may change their type as all others."""
    return torch.view_as_real(matrices.mT.resolve_conj())


def to_frequencies(x: Tensor) -> Tensor:
    """(b, c, h, w) to (f, b, c)."""
    return torch.fft.rfft2(x, norm="ortho").flatten(2).permute(2, 0, 1).contiguous()


def from_frequencies(y: Tensor, torus: torch.Size) -> Tensor:
    """(f, b, c) to (b, c, h, w)."""
    spectrum = y.permute(1, 2, 0).unflatten(-1, (torus[0], half_width(torus[1])))
    return torch.fft.irfft2(spectrum, s=(torus[0], torus[1]), norm="ortho")


def spectrum_weights(torus: torch.Size, like: Tensor) -> Tensor:
    """(f, 1, 1): 2 for the columns of the half spectrum that stand for two frequencies, 1 for the others."""

    def make(device: torch.device) -> Tensor:
        weights = torch.full((torus[0], half_width(torus[1])), 2.0, dtype=like.real.dtype, device=device)
        weights[:, 0] = 1
        if torus[1] % 2 == 0:
            weights[:, -1] = 1
        return weights.reshape(-1, 1, 1)

    return cached_constant(("half spectrum", tuple(torus), like.real.dtype), like.device, make)


class _FourierProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, spectrum: Tensor) -> Tensor:
        ctx.save_for_backward(x, spectrum)
        return from_frequencies(torch.bmm(to_frequencies(x), spectrum), x.shape[-2:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (x, spectrum), torus = ctx.saved_tensors, gradients[0].shape[-2:]
        g, (input_wants, spectrum_wants) = to_frequencies(gradients[0]), ctx.needs_input_grad
        # In this order x and the gradient of x need no memory at the same time.
        to_spectrum = spectrum_weights(torus, g) * torch.bmm(to_frequencies(x).mH, g) if spectrum_wants else None
        return from_frequencies(torch.bmm(g, spectrum.mH), torus) if input_wants else None, to_spectrum
