"""Circular convolutions in the frequency domain.

A circular convolution on an h x w torus acts on each frequency f alone, as a matrix K^(f) of out x in
channels. For real kernels K^(-f) is the conjugate of K^(f), so that half of the spectrum suffices. There are two forms:

* *whole*, for square tori up to 8 x 8: n = h w real numbers per channel, those of the r frequencies with f = -f, where
  K^(f) is real, then the real and the imaginary parts for one of each two opposite frequencies. One orthogonal n x n
  matrix takes the pixels there. Nothing is kept twice: 16 products per 4 x 4 image in place of 12 complex ones.
* *by columns and rows*, for all others: (0..h-1) x (0..w//2) as the real FFT has it, by two smaller matrices.

Activations are transformed by *real matrix products* rather than by an FFT routine: for the images of
interest (1 x 1 to 64 x 64) a small dense DFT runs at matmul speed, and with the data stored as
(h, w, batch, channel) the result lands as (frequency, batch, channel), exactly what the product with K^(f)
wants, without a copy. The matrices are scaled so that the transform is an isometry onto its image; its
inverse is then its transpose, and no rounding of a scale can make a layer expansive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.linalg.constants import cached_constant
from onelip.linalg.definition import Definition
from onelip.linalg.xla_forms import complex_matrix

Size = tuple[int, int]


LARGEST_WHOLE = 8
"""Side of the largest torus that is transformed by one matrix: at 16 that would be five times the operations."""


class RealDFT(NamedTuple):
    """The isometric real DFT of h x w images, as real matrices.

    Whole: `columns` is None, `rows` (h * w, h * w) maps pixels to the numbers of the frequencies. Else `columns` has
    shape (2 * (w//2+1), w), with rows (part, frequency), and `rows` has shape (2 * h, 2 * h): it maps (position, part)
    to (part, frequency) and is orthogonal. The two parts are the real and the imaginary one. For an even h its product
    is that of `halve_exactly`.
    """

    columns: Tensor | None
    rows: Tensor


def has_one_matrix(size: Size) -> bool:
    """Whether the torus is transformed by one matrix."""
    return size[0] == size[1] <= LARGEST_WHOLE


def torus_of(dft: RealDFT) -> Size:
    """Height and width of the images that these matrices transform."""
    if dft.columns is None:
        side = math.isqrt(dft.rows.shape[-1])
        return side, side
    return dft.rows.shape[-1] // 2, dft.columns.shape[-1]


def real_frequencies(pixels: int) -> int:
    """How many frequencies of a square torus are their own opposites: 0 and, on an even side, n/2 both ways."""
    return 1 if pixels % 2 else 4


def split_whole(values: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """The n numbers of all frequencies into those of the r real ones and the parts (2, m) of the others."""
    pixels = values.shape[dim]
    real = real_frequencies(pixels)
    paired = values.narrow(dim, real, pixels - real)
    return values.narrow(dim, 0, real), paired.unflatten(dim, (2, (pixels - real) // 2))


def half_width(width: int) -> int:
    """Number of columns that the real FFT keeps."""
    return width // 2 + 1


def _phases(length: int, count: int, positions: Tensor) -> Tensor:
    """Angles 2 pi (f p mod n) / n in float64, reduced as integers so that they are exact to the last bit."""
    frequency = torch.arange(count, device=positions.device)
    return (frequency[:, None] * positions % length).double() * (2 * math.pi / length)


def _cos_sin(angles: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine with exact zeros: sin(pi) = 1e-16 would fill the powers of real matrices with denormals."""
    cos, sin = angles.cos(), angles.sin()
    return torch.where(cos.abs() < 1e-15, 0.0, cos), torch.where(sin.abs() < 1e-15, 0.0, sin)


def real_dft(size: Size, dtype: torch.dtype, device: torch.device | None = None) -> RealDFT:
    """The matrices of the isometric real DFT on an h x w torus; do not write to them.

    Columns that stand for two conjugate frequencies carry a factor sqrt(2), so that the half spectrum holds
    all of the energy.
    """
    return cached_constant(("dft", size, dtype), device, lambda place: _make_dft(size, dtype, place))


def _make_dft(size: Size, dtype: torch.dtype, device: torch.device) -> RealDFT:
    height, width = size
    if has_one_matrix(size):
        cos, sin = _independent_phases(size, size, device, centre=(0, 0))
        factors = _whole_weights(size, device).sqrt() / math.sqrt(height * width)
        return RealDFT(None, (factors * torch.cat([cos, -sin])).to(dtype))
    kept = half_width(width)
    angles = _phases(width, kept, torch.arange(width, device=device))
    twice = torch.full((kept, 1), math.sqrt(2 / width), dtype=torch.float64, device=device)
    twice[0] = math.sqrt(1 / width)
    if width % 2 == 0:
        twice[-1] = math.sqrt(1 / width)
    cos, sin = _cos_sin(angles)
    columns = torch.cat([twice * cos, -twice * sin])
    cos, sin = _cos_sin(_phases(height, height, torch.arange(height, device=device)))
    # e^(-i t) (re + i im) = (re cos + im sin) + i (im cos - re sin)
    real_part = torch.stack([cos, sin], dim=-1).reshape(height, 2 * height)
    imag_part = torch.stack([-sin, cos], dim=-1).reshape(height, 2 * height)
    rows = torch.cat([real_part, imag_part]) / math.sqrt(height)
    if may_be_halved(rows):
        halve_exactly(rows)
    return RealDFT(columns.to(dtype), rows.to(dtype))


def may_be_halved(matrix: Tensor) -> bool:
    """Whether a matrix (2 h, 2 h) that maps (position, part) to (part, frequency) is one of even length."""
    return matrix.shape[-1] % 4 == 0


def is_exactly_halved(matrix: Tensor) -> bool:
    """Whether the second half of the columns is the first one, with its sign changed in every other row."""
    half = matrix.shape[-1] // 2
    first, second = matrix[:, :half], matrix[:, half:]
    return torch.equal(first[0::2], second[0::2]) and torch.equal(first[1::2], -second[1::2])


def halve_exactly(matrix: Tensor) -> None:
    """Make it so: cosines of angles that differ by pi may not be opposite to the last bit."""
    half = matrix.shape[-1] // 2
    matrix[0::2, half:] = matrix[0::2, :half]
    matrix[1::2, half:] = -matrix[1::2, :half]


@Definition
def multiply_rows(matrix: Tensor, x: Tensor, transpose: bool = False) -> Tensor:
    """R x, or R^T x, for the matrix R (2 h, 2 h) of a DFT and x (2 h, n)."""
    return torch.matmul(matrix.mT if transpose else matrix, x)


def _independent_frequencies(side: int) -> list[tuple[int, int]]:
    """The frequencies of a square torus that are their own opposites, then one of each pair of opposites."""
    own = [(u, v) for u in range(side) for v in range(side) if 2 * u % side == 0 == 2 * v % side]
    pairs = [(u, v) for u in range(side) for v in range(side) if (u, v) < (-u % side, -v % side)]
    return own + pairs


def _independent_phases(size: Size, taps: Size, device: torch.device, centre: Size) -> tuple[Tensor, Tensor]:
    """cos (r + m, taps) and sin (m, taps) of 2 pi f (d - centre) / n at the independent frequencies f, in float64."""
    side = size[0]
    frequency = torch.tensor(_independent_frequencies(side), device=device)
    offsets = [torch.arange(count, device=device) - middle for count, middle in zip(taps, centre, strict=True)]
    rows, columns = (frequency[:, axis, None] * offset % side for axis, offset in enumerate(offsets))
    cycles = (rows[:, :, None] + columns[:, None, :]) % side
    cos, sin = _cos_sin(cycles.flatten(1).double() * (2 * math.pi / side))
    return cos, sin[real_frequencies(side * side) :]


def _whole_weights(size: Size, device: torch.device) -> Tensor:
    """(n, 1): 1 for frequencies that are alone, 2 for both parts of those that stand for two."""
    pixels = size[0] * size[1]
    weights = torch.full((pixels, 1), 2.0, dtype=torch.float64, device=device)
    weights[: real_frequencies(pixels)] = 1
    return weights


def pixels_outermost(x_bchw: Tensor) -> Tensor:
    """The images stored as (h, w, b, c), as the DFT reads and writes them; a copy only where they are not."""
    return x_bchw.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)


def to_frequency(x_bchw: Tensor, dft: RealDFT) -> Tensor:
    """Images (b, c, h, w) to frequencies: whole (h * w, b, c), else (2, h * (w//2+1), b, c), the parts apart."""
    batch, channels, height, width = x_bchw.shape
    x_hwbc = x_bchw.permute(2, 3, 0, 1)
    if dft.columns is None:
        x_rows = torch.matmul(dft.rows, x_hwbc.reshape(height * width, batch * channels))
        return x_rows.reshape(height * width, batch, channels)
    kept = half_width(width)
    columns = dft.columns.expand(height, -1, -1)  # matmul would copy it for each row
    x_columns = torch.bmm(columns, x_hwbc.reshape(height, width, batch * channels))  # (h, 2 * kept, n)
    x_rows = multiply_rows(dft.rows, x_columns.reshape(2 * height, kept * batch * channels))
    return x_rows.reshape(2, height * kept, batch, channels)


def from_frequency(y: Tensor, size: Size, dft: RealDFT) -> Tensor:
    """Inverse of `to_frequency`: frequencies to images (b, c, h, w), stored as (h, w, b, c)."""
    height, width = size
    batch, channels = y.shape[-2:]
    if dft.columns is None:
        y_hwn = torch.matmul(dft.rows.mT, y.reshape(height * width, batch * channels))
    else:
        kept = half_width(width)
        y_rows = multiply_rows(dft.rows, y.reshape(2 * height, kept * batch * channels), True)
        columns = dft.columns.mT.expand(height, -1, -1)
        y_hwn = torch.bmm(columns, y_rows.reshape(height, 2 * kept, batch * channels))
    return y_hwn.reshape(height, width, batch, channels).permute(2, 3, 0, 1)


def multiply_frequencies(x: Tensor, matrices: Tensor, bias: Tensor | None = None, adjoint: bool = False) -> Tensor:
    """Product per frequency in real arithmetic: x (n, b, i) times (n, i, o), or x (2, f, b, i) times (2, f, i, o).

    `matrices` are the transposed K^(f), so that a row of x meets them from the left; `adjoint` multiplies by their
    conjugate transposes instead. `bias` (o,) is added at the frequency 0: that is a constant image.
    """
    matrices = matrices.to(x.dtype)  # under autocast x has the narrow type
    return product_per_frequency(x, matrices.mT if adjoint else matrices, bias, False, adjoint)


@Definition
def product_per_frequency(a: Tensor, b: Tensor, bias: Tensor | None, conjugate_a: bool, conjugate_b: bool) -> Tensor:
    """a b, conj(a) b or a conj(b) for the matrices of all frequencies, plus a bias at the frequency 0."""
    alone, (a_parts, b_parts) = None, (a, b)
    if a.dim() == 3:
        (a_real, a_parts), (b_real, b_parts) = split_whole(a), split_whole(b)
        alone = torch.bmm(a_real, b_real)
    a_imag = -a_parts[1] if conjugate_a else a_parts[1]
    b_imag = -b_parts[1] if conjugate_b else b_parts[1]
    there = torch.bmm(a_parts[0], b_parts[0]) - torch.bmm(a_imag, b_imag)
    across = torch.bmm(a_parts[0], b_imag) + torch.bmm(a_imag, b_parts[0])
    y = torch.cat([there, across] if alone is None else [alone, there, across])
    y = y.unflatten(0, (2, -1)) if alone is None else y
    return y if bias is None else _added_at_zero(y, bias)


def _added_at_zero(y: Tensor, bias: Tensor) -> Tensor:
    """With a bias added to the numbers (b, c) of the frequency 0, which is the first and real."""
    flat = y.flatten(0, -3)
    return torch.cat([flat[:1] + bias.to(y.dtype), flat[1:]]).view(y.shape)


def matrix_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """Gradient of the matrices in `multiply_frequencies`, x^H g, outside autograd."""
    return product_per_frequency(x.mT, gradient, None, True, False)


def at_zero(y: Tensor) -> Tensor:
    """The numbers (b, c) of the frequency 0, which is the first and real."""
    return y[0] if y.dim() == 3 else y[0, 0]


def sum_at_zero(gradient: Tensor) -> Tensor:
    """The gradient of the bias."""
    return at_zero(gradient).sum(0)


Blocks = tuple[Tensor, ...]
"""Matrices (..., f, o, i) of the independent frequencies: whole a real block and, from 3 x 3 on, a complex one; else
one complex block. What is done to every matrix alone is done to each block."""


def pack(blocks: Blocks) -> Tensor:
    """Blocks (..., f, o, i) to the one real tensor that the product wants: (..., n, i, o), or (..., 2, f, i, o)."""
    if blocks[0].is_complex():
        transposed = blocks[0].mT
        return torch.stack([transposed.real, transposed.imag], dim=-4)
    parts = [part for block in blocks[1:] for part in (block.real, block.imag)]
    return torch.cat([block.mT for block in (blocks[0], *parts)], dim=-3)


def unpack(matrices: Tensor, size: Size) -> Blocks:
    """Inverse of `pack` for the matrices of this torus."""
    if not has_one_matrix(size):
        return (complex_matrix(*matrices.unbind(-4)).mT,)
    real, parts = split_whole(matrices, dim=matrices.dim() - 3)
    return (real.mT, complex_matrix(*parts.unbind(-4)).mT) if parts.shape[-3] else (real.mT,)


Matrices = tuple[Tensor, ...]


@Definition
def packed_values(kernel: Tensor, torus: Size, function: Callable[[Tensor], Tensor | Matrices]) -> Matrices:
    """`pack` of the values of a function of the matrices of a kernel (..., o, i, kh, kw) at all frequencies."""
    values = [as_tuple(function(block)) for block in torus_blocks(kernel, torus)]
    return tuple(pack(blocks) for blocks in zip(*values, strict=True))


def as_tuple(values: Tensor | Matrices) -> Matrices:
    """One value as a tuple of one."""
    return values if isinstance(values, tuple) else (values,)


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
    cos, sin = kernel_phases(size, kernel)
    lead = kernel.shape[:-4]
    out_channels, in_channels, kernel_height, kernel_width = kernel.shape[-4:]
    taps = kernel.movedim((-2, -1), (-4, -3)).reshape(*lead, kernel_height * kernel_width, -1)
    shape = (*lead, height, half_width(width), out_channels, in_channels)
    return complex_matrix(torch.matmul(cos, taps), torch.matmul(sin, taps)).reshape(shape)


def kernel_to_parts(kernel: Tensor, size: Size) -> Tensor:
    """`pack` of `torus_blocks` in one real product: (..., o, i, kh, kw) to (..., n, i, o) or (..., 2, h * w', i, o)."""
    phases = torch.cat(torus_phases(size, kernel))
    taps = kernel.flatten(-2).movedim((-1, -2, -3), (-3, -2, -1))  # (..., taps, i, o)
    parts = torch.matmul(phases, taps.flatten(-2)).unflatten(-1, taps.shape[-2:])
    return parts if has_one_matrix(size) else parts.unflatten(-3, (2, -1))


def torus_blocks(kernel: Tensor, size: Size) -> Blocks:
    """The matrices of the circular convolution at the independent frequencies of the torus."""
    if not has_one_matrix(size):
        return (kernel_to_frequency(kernel, size).flatten(-4, -3),)
    check_real(kernel)
    cos, sin = torus_phases(size, kernel)
    taps = kernel.movedim((-2, -1), (-4, -3)).flatten(-4, -3)  # (..., taps, o, i)
    real, imag = (torch.matmul(phases, taps.flatten(-2)).unflatten(-1, taps.shape[-2:]) for phases in (cos, sin))
    alone, paired = real.split([cos.shape[0] - sin.shape[0], sin.shape[0]], dim=-3)
    return (alone, complex_matrix(paired.contiguous(), imag)) if len(sin) else (alone,)


def torus_phases(size: Size, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Phases of the taps: cosines at all independent frequencies, sines at those that are not real."""
    if not has_one_matrix(size):
        return kernel_phases(size, kernel)
    taps, dtype = (kernel.shape[-2], kernel.shape[-1]), kernel.dtype
    centre = taps[0] // 2, taps[1] // 2

    def make(device: torch.device) -> tuple[Tensor, Tensor]:
        cos, sin = _independent_phases(size, taps, device, centre)
        return cos.to(dtype), sin.to(dtype)

    return cached_constant(("whole", size, taps, dtype), kernel.device, make)


def kernel_phases(size: Size, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts of e^(2 pi i f (d - k//2) / n), each (frequencies, taps)."""
    taps, dtype = tuple(kernel.shape[-2:]), kernel.dtype

    def make(device: torch.device) -> tuple[Tensor, Tensor]:
        offsets = [torch.arange(count, device=device) - count // 2 for count in taps]
        rows = _phases(size[0], size[0], offsets[0])
        columns = _phases(size[1], half_width(size[1]), offsets[1])
        angles = (rows[:, None, :, None] + columns[None, :, None, :]).flatten(2).flatten(0, 1)
        cos, sin = _cos_sin(angles)
        return cos.to(dtype), sin.to(dtype)

    return cached_constant(("kernel", size, taps, dtype), kernel.device, make)


def packed_to_kernel(matrices: Tensor, size: Size) -> Tensor:
    """Inverse of `kernel_to_parts` for a kernel that fills the torus: to (..., o, i, h, w)."""
    if not has_one_matrix(size):
        return _half_spectrum_to_kernel(unpack(matrices, size)[0], size)
    pixels = size[0] * size[1]
    like = matrices.new_empty(1, 1, *size)
    phases = torch.cat(torus_phases(size, like)) * (_whole_weights(size, matrices.device) / pixels).to(matrices.dtype)
    taps = torch.matmul(phases.mT, matrices.flatten(-2)).unflatten(-1, matrices.shape[-2:])
    return taps.movedim((-3, -2, -1), (-1, -2, -3)).unflatten(-1, size)


def _half_spectrum_to_kernel(matrices: Tensor, size: Size) -> Tensor:
    """(..., h * w', o, i) to (..., o, i, h, w)."""
    height, width = size
    frequencies = matrices.unflatten(-3, (height, half_width(width))).movedim((-4, -3), (-2, -1))
    taps = torch.fft.irfft2(frequencies, s=size).flip(-2, -1)
    # irfft2 gives the impulse response at positions 0..n-1; a correlation reads it backwards from the centre
    shift = (height // 2 + 1 - height, width // 2 + 1 - width)
    return taps.roll(shift, (-2, -1))
