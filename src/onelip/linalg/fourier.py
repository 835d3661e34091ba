"""Circular convolutions in the frequency domain, with the real FFT's half of the spectrum.

A circular convolution on an h x w torus acts on each frequency f alone, as a matrix K^(f) of out x in
channels. For real kernels K^(-f) is the conjugate of K^(f), so the frequencies (0..h-1) x (0..w//2) suffice.

Activations are transformed by two *real matrix products* rather than by an FFT routine: for the images of
interest (1 x 1 to 64 x 64) a small dense DFT runs at matmul speed, and with the data stored as
(h, w, batch, channel) the result lands as (frequency, batch, channel), exactly what the product with K^(f)
wants, without a copy. The matrices are scaled so that the transform is an isometry onto its image; its
inverse is then its transpose, and no rounding of a scale can make a layer expansive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.linalg.tracing import is_traced

Size = tuple[int, int]


class RealDFT(NamedTuple):
    """The isometric real DFT of h x w images, as two real matrices.

    `columns` has shape (p * (w//2+1), w): rows (part, frequency). `rows` has shape (p * h, p * h): it maps
    (position, part) to (part, frequency) and is orthogonal. There are p = 2 parts, real and imaginary, but p = 1
    where all frequencies are real.
    """

    columns: Tensor
    rows: Tensor


def is_real(size: Size) -> bool:
    """Whether all frequencies of the torus are real: e^(i pi f p) is +1 or -1 for up to two pixels a side."""
    return max(size) <= 2


def torus_of(dft: RealDFT) -> Size:
    """Height and width of the images that these matrices transform."""
    width = dft.columns.shape[-1]
    parts = dft.columns.shape[-2] // half_width(width)
    return dft.rows.shape[-1] // parts, width


def half_width(width: int) -> int:
    """Number of columns that the real FFT keeps."""
    return width // 2 + 1


def _phases(length: int, count: int, device: torch.device | None) -> Tensor:
    """Angles 2 pi (f p mod n) / n in float64, reduced as integers so that they are exact to the last bit."""
    frequency = torch.arange(count, device=device)
    position = torch.arange(length, device=device)
    return (frequency[:, None] * position % length).double() * (2 * math.pi / length)


def _cos_sin(angles: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine with exact zeros: sin(pi) = 1e-16 would fill the powers of real matrices with denormals."""
    cos, sin = angles.cos(), angles.sin()
    return torch.where(cos.abs() < 1e-15, 0.0, cos), torch.where(sin.abs() < 1e-15, 0.0, sin)


_Constants = TypeVar("_Constants")
_kept: dict[tuple[Any, ...], Any] = {}
_MOST_KEPT = 64


def _keep(key: tuple[Any, ...], make: Callable[[], _Constants]) -> _Constants:
    """Constant matrices, made once per size: making them takes longer than using them on small networks.

    Compilers make them anew (they fold constants themselves); in inference mode they are made as normal tensors, which
    training can use later.
    """
    if torch.compiler.is_compiling():
        return make()
    if key not in _kept:
        while len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)))
        with torch.inference_mode(False), torch.no_grad():
            _kept[key] = make()
    return _kept[key]


def real_dft(size: Size, dtype: torch.dtype, device: torch.device | None = None) -> RealDFT:
    """The matrices of the isometric real DFT on an h x w torus; do not write to them.

    Columns that stand for two conjugate frequencies carry a factor sqrt(2), so that the half spectrum holds
    all of the energy.
    """
    return _keep(("dft", size, dtype, device), lambda: _make_dft(size, dtype, device))


def _make_dft(size: Size, dtype: torch.dtype, device: torch.device | None) -> RealDFT:
    height, width = size
    kept = half_width(width)
    angles = _phases(width, kept, device)
    twice = torch.full((kept, 1), math.sqrt(2 / width), dtype=torch.float64, device=device)
    twice[0] = math.sqrt(1 / width)
    if width % 2 == 0:
        twice[-1] = math.sqrt(1 / width)
    cos, sin = _cos_sin(angles)
    columns = twice * cos if is_real(size) else torch.cat([twice * cos, -twice * sin])
    cos, sin = _cos_sin(_phases(height, height, device))
    if is_real(size):
        return RealDFT(columns.to(dtype), (cos / math.sqrt(height)).to(dtype))
    # e^(-i t) (re + i im) = (re cos + im sin) + i (im cos - re sin)
    real_part = torch.stack([cos, sin], dim=-1).reshape(height, 2 * height)
    imag_part = torch.stack([-sin, cos], dim=-1).reshape(height, 2 * height)
    rows = torch.cat([real_part, imag_part]) / math.sqrt(height)
    return RealDFT(columns.to(dtype), rows.to(dtype))


def pixels_outermost(x_bchw: Tensor) -> Tensor:
    """The images stored as (h, w, b, c), as the DFT reads and writes them; a copy only where they are not."""
    return x_bchw.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)


def to_frequency(x_bchw: Tensor, dft: RealDFT) -> Tensor:
    """Images (b, c, h, w) to frequencies (p, h * (w//2+1), b, c), the p = 2 or 1 parts apart."""
    batch, channels, height, width = x_bchw.shape
    kept = half_width(width)
    x_hwn = x_bchw.permute(2, 3, 0, 1).reshape(height, width, batch * channels)
    x_columns = torch.matmul(dft.columns, x_hwn)  # (h, p * kept, n)
    x_rows = torch.matmul(dft.rows, x_columns.reshape(-1, kept * batch * channels))
    return x_rows.reshape(-1, height * kept, batch, channels)


def from_frequency(y: Tensor, size: Size, dft: RealDFT) -> Tensor:
    """Inverse of `to_frequency`: (p, f, b, c) to images (b, c, h, w), stored as (h, w, b, c)."""
    height, width = size
    parts, _, batch, channels = y.shape
    kept = half_width(width)
    y_rows = torch.matmul(dft.rows.mT, y.reshape(parts * height, kept * batch * channels))
    y_hwn = torch.matmul(dft.columns.mT, y_rows.reshape(height, parts * kept, batch * channels))
    return y_hwn.reshape(height, width, batch, channels).permute(2, 3, 0, 1)


def multiply_frequencies(x: Tensor, matrices: Tensor, bias: Tensor | None = None, adjoint: bool = False) -> Tensor:
    """Product per frequency in real arithmetic: x (p, f, b, i) times matrices (p, f, i, o), complex for p = 2.

    `matrices` are the transposed K^(f), so that a row of x meets them from the left; `adjoint` multiplies by their
    conjugate transposes instead. `bias` (o,) is added at the frequency 0: that is a constant image.
    """
    matrices = matrices.to(x.dtype)  # under autocast x has the narrow type
    matrices = matrices.mT if adjoint else matrices
    if is_traced():
        return _plain_product(x, matrices, bias, adjoint)
    return _ComplexProduct.apply(x, matrices, bias, False, adjoint)  # pyright: ignore[reportReturnType]


def _plain_product(x: Tensor, matrices: Tensor, bias: Tensor | None, conjugate: bool) -> Tensor:
    """The definition, for compilers and torch.func."""
    parts = [torch.bmm(x[0], matrices[0])]
    if len(matrices) == 2:
        imag = -matrices[1] if conjugate else matrices[1]
        parts = [parts[0] - torch.bmm(x[1], imag), torch.bmm(x[0], imag) + torch.bmm(x[1], matrices[0])]
    if bias is not None:
        parts[0] = torch.cat([parts[0][:1] + bias.to(x.dtype), parts[0][1:]])
    return torch.stack(parts)


class _ComplexProduct(torch.autograd.Function):
    """a b, conj(a) b or a conj(b) for matrices given as parts (p, f, m, n), plus a bias at the frequency 0.

    Both parts are written into one tensor: what autograd makes of the definition copies all images twice more.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None, conjugate_a: bool, conjugate_b: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.conjugate = conjugate_a, conjugate_b
        y = a.new_empty((*a.shape[:-1], b.shape[-1]))
        torch.bmm(a[0], b[0], out=y[0])
        if len(a) == 2:
            y[0].baddbmm_(a[1], b[1], alpha=1 if conjugate_a or conjugate_b else -1)
            plus, minus = ((a[0], b[1]), (a[1], b[0])) if conjugate_a else ((a[1], b[0]), (a[0], b[1]))
            torch.bmm(*plus, out=y[1])
            y[1].baddbmm_(*minus, alpha=-1 if conjugate_a or conjugate_b else 1)
        if bias is not None:
            y[0, 0].add_(bias)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (a, b), g, (conjugate_a, conjugate_b) = ctx.saved_tensors, gradients[0], ctx.conjugate
        product, to_a, to_b = _ComplexProduct.apply, *ctx.needs_input_grad[:2]
        # The gradient of a b is g b^H for a and a^H g for b; that of conj(a) is the conjugate of that for a.
        return (
            product(g, b.mT, None, conjugate_a, not (conjugate_a or conjugate_b)) if to_a else None,
            product(a.mT, g, None, not (conjugate_a or conjugate_b), conjugate_b) if to_b else None,
            g[0, 0].sum(0) if ctx.needs_input_grad[2] else None,
            None,
            None,
        )


def split_complex(matrices: Tensor) -> Tensor:
    """K^(f) of shape (..., h, w', o, i) to the (..., p, h * w', i, o) that the product wants; p = 1 for real ones."""
    transposed = matrices.flatten(-4, -3).mT
    if not matrices.is_complex():
        return transposed.unsqueeze(-4).contiguous()
    return torch.stack([transposed.real, transposed.imag], dim=-4)


def join_complex(matrices: Tensor, size: Size) -> Tensor:
    """Inverse of `split_complex`: (..., p, f, i, o) to (..., h, w', o, i), complex for p = 2."""
    joined = torch.complex(*matrices.unbind(-4)) if matrices.shape[-4] == 2 else matrices.squeeze(-4)
    return joined.mT.unflatten(-3, (size[0], half_width(size[1])))


def check_real(kernel: Tensor) -> None:
    """Half of the spectrum stands for all of it, and transposes are adjoints, for real kernels only."""
    if kernel.is_complex():
        raise InvalidInputError(f"kernels of convolutions must be real, not {kernel.dtype}")


def kernel_to_frequency(kernel: Tensor, size: Size) -> Tensor:
    """Kernel (..., o, i, kh, kw) to complex matrices (..., h, w//2+1, o, i) of its circular convolution.

    The convention is torch's: y[p] = sum_d K[d] x[p + d - k//2], hence K^(f) = sum_d K[d] e^(2 pi i f (d - k//2) / n).
    Kernels larger than the torus wrap around, as the circular convolution does.
    """
    check_real(kernel)
    height, width = size
    cos, sin = _kernel_phases(size, kernel)
    lead = kernel.shape[:-4]
    out_channels, in_channels, kernel_height, kernel_width = kernel.shape[-4:]
    taps = kernel.movedim((-2, -1), (-4, -3)).reshape(*lead, kernel_height * kernel_width, -1)
    shape = (*lead, height, half_width(width), out_channels, in_channels)
    return torch.complex(torch.matmul(cos, taps), torch.matmul(sin, taps)).reshape(shape)


def kernel_to_parts(kernel: Tensor, size: Size) -> Tensor:
    """`split_complex` of `torus_matrices` in one real product: (..., o, i, kh, kw) to (..., p, h * w', i, o)."""
    cos, sin = _kernel_phases(size, kernel)
    phases = cos if is_real(size) else torch.cat([cos, sin])
    taps = kernel.flatten(-2).movedim((-1, -2, -3), (-3, -2, -1))  # (..., taps, i, o)
    parts = torch.matmul(phases, taps.flatten(-2))
    return parts.unflatten(-1, taps.shape[-2:]).unflatten(-3, (-1, size[0] * half_width(size[1])))


def _kernel_phases(size: Size, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts of e^(2 pi i f (d - k//2) / n), each (frequencies, taps)."""
    taps, dtype, device = tuple(kernel.shape[-2:]), kernel.dtype, kernel.device

    def make() -> tuple[Tensor, Tensor]:
        rows = _offset_phases(size[0], size[0], taps[0], device)
        columns = _offset_phases(size[1], half_width(size[1]), taps[1], device)
        angles = (rows[:, None, :, None] + columns[None, :, None, :]).flatten(2).flatten(0, 1)
        cos, sin = _cos_sin(angles)
        return cos.to(dtype), sin.to(dtype)

    return _keep(("kernel", size, taps, dtype, device), make)


def torus_matrices(kernel: Tensor, size: Size) -> Tensor:
    """`kernel_to_frequency`, but real where all frequencies of the torus are: a quarter of the work."""
    matrices = kernel_to_frequency(kernel, size)
    return matrices.real.contiguous() if is_real(size) else matrices


def _offset_phases(length: int, count: int, taps: int, device: torch.device) -> Tensor:
    frequency = torch.arange(count, device=device)
    offset = torch.arange(taps, device=device) - taps // 2
    return (frequency[:, None] * offset % length).double() * (2 * math.pi / length)


def frequency_matrix_at(kernel: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """K^(f) of a kernel (..., o, i, kh, kw) at one frequency (row, column), each (...) in cycles per pixel."""
    rows = torch.arange(kernel.shape[-2], device=kernel.device) - kernel.shape[-2] // 2
    columns = torch.arange(kernel.shape[-1], device=kernel.device) - kernel.shape[-1] // 2
    angles = 2 * math.pi * (row[..., None, None] * rows[:, None] + column[..., None, None] * columns)
    taps = angles[..., None, None, :, :]
    return torch.complex((kernel * taps.cos()).sum((-2, -1)), (kernel * taps.sin()).sum((-2, -1)))


def frequency_to_kernel(matrices: Tensor, size: Size) -> Tensor:
    """Inverse of `torus_matrices` for a kernel that fills the torus: (..., h, w', o, i) to (..., o, i, h, w)."""
    height, width = size
    matrices = matrices if matrices.is_complex() else torch.complex(matrices, torch.zeros_like(matrices))
    taps = torch.fft.irfft2(matrices.movedim((-4, -3), (-2, -1)), s=size).flip(-2, -1)
    # irfft2 gives the impulse response at positions 0..n-1; a correlation reads it backwards from the centre
    shift = (height // 2 + 1 - height, width // 2 + 1 - width)
    return taps.roll(shift, (-2, -1))
