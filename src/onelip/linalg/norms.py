"""Spectral norms of matrices and convolutions: proven bounds from above.

A power iteration gives a *lower* bound, good enough to train with but not to certify (`onelip.linalg.norm_estimates`).
The Gram iteration G_0 = A, G_t = G_(t-1)^H G_(t-1) gives ||G_t||_F^(1/2^t) >= sigma_max(A) for every t, with quadratic
convergence (Delattre et al., "Efficient Bound of Lipschitz Constant for Convolutional Layers by Gram Iteration", ICML
2023).
"""

import math

import torch
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.linalg.definition import Definition
from onelip.linalg.devices import is_xla
from onelip.linalg.fourier import check_real, torus_blocks


def largest_magnitude(matrix: Tensor) -> Tensor:
    """Return max |real or imaginary part| over the last two dimensions, shape (..., 1, 1), outside autograd.

    It is at least `smallest_divisor`, so that one can always divide by it. The functions that divide by it
    are homogeneous and multiply it back, so treating it as a constant leaves their gradient exact.
    """
    largest = largest_entry(real_parts(matrix.detach()), (-3, -2, -1))
    return largest.clamp(min=smallest_divisor(largest))[..., None, None]


@Definition
def largest_entry(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    """max |x| of real numbers over these dimensions, without a copy of the magnitudes."""
    return torch.maximum(values.amax(dims), -values.amin(dims))


def smallest_divisor(like: Tensor) -> float:
    """The smallest normal number; on XLA, which divides products once by a square, one whose square is normal."""
    tiny = torch.finfo(like.dtype).tiny
    return 4 * math.sqrt(tiny) if is_xla(like.device) else tiny


def real_parts(matrix: Tensor) -> Tensor:
    """Real and imaginary parts as a last dimension, of length 1 for real matrices.

    Norms and maxima of complex tensors are not vectorised in torch and take ten times as long.
    """
    return torch.view_as_real(matrix.resolve_conj()) if matrix.is_complex() else matrix.unsqueeze(-1)


def _length(matrix: Tensor) -> Tensor:
    """Frobenius norm as it is; XLA has no norms of complex tensors."""
    if not is_xla(matrix.device):
        return torch.linalg.vector_norm(matrix, dim=(-2, -1))
    return torch.linalg.vector_norm(real_parts(matrix), dim=(-3, -2, -1))


def frobenius_norm(matrix: Tensor) -> Tensor:
    """Frobenius norm, shape (...), whose squares neither overflow nor underflow."""
    scale = largest_magnitude(matrix)
    return torch.linalg.vector_norm(real_parts(matrix / scale), dim=(-3, -2, -1)) * scale[..., 0, 0]


def gram_norm_bound(matrix: Tensor, iterations: int = 6) -> Tensor:
    """Proven upper bound ||G_t||_F^(1/2^t) of the spectral norm, shape (...); t = 0 is the Frobenius norm.

    It exceeds sigma_max by a factor of at most rank^(1/2^(t+1)) (1.033 for rank 64 and t = 6, in general far less).
    G is divided by its norm in every third step so that no power overflows: of norm 1, three steps later it has one of
    at least rank^(-7/2). The bound does not depend on these divisors in exact arithmetic, hence they are constants for
    autograd. A zero matrix has the bound and the gradient zero.
    """
    gram = one_batch(matrix)
    tiny, scale = torch.finfo(matrix.dtype).tiny, largest_magnitude(gram)
    gram, bound = gram / scale, scale[..., 0, 0]
    wide = matrix.shape[-2] < matrix.shape[-1]
    for step in range(iterations):
        if step % 3 == 1:
            norm = _length(gram.detach()).clamp(min=tiny)
            bound = bound * norm ** (0.5**step)
            gram = gram / norm[..., None, None]
        # The Gram matrix on the smaller side has the same non-zero spectrum; from then on it is Hermitian.
        gram = torch.bmm(gram, gram.mH) if wide else torch.bmm(gram.mH, gram)
    bound = bound * _length(gram).clamp(min=tiny) ** (0.5**iterations)
    return bound.reshape(matrix.shape[:-2])


def over_norm(tensor: Tensor, norm: Tensor) -> Tensor:
    """tensor / norm, one norm for each of the leading entries; zero where the norm is that of no normal number."""
    norm = norm.reshape(norm.shape + (1,) * (tensor.dim() - norm.dim()))
    return tensor / norm.masked_fill(norm < torch.finfo(norm.dtype).tiny, math.inf)


def one_batch(matrix: Tensor) -> Tensor:
    """(batch, m, n), as products that also scale and add want it."""
    return matrix.reshape(math.prod(matrix.shape[:-2]), *matrix.shape[-2:])


def scale_below_one(matrix: Tensor) -> Tensor:
    """A / ||(A^H A)^2||_F^(1/4): norm at most 1, proven, and at least rank^(-1/8). Zero stays zero."""
    scaled = one_batch(matrix)
    scaled = scaled / largest_magnitude(scaled)
    # The largest entry has magnitude 1 now, so the floor matters for zero (and subnormal) matrices only.
    tall = scaled.shape[-2] >= scaled.shape[-1]
    gram = torch.bmm(scaled.mH, scaled) if tall else torch.bmm(scaled, scaled.mH)
    norm = _length(torch.bmm(gram, gram)).clamp(min=0.5**4)
    return (scaled / norm[:, None, None] ** 0.25).reshape(matrix.shape)


def conv_norm_bound(
    kernel: Tensor, size: tuple[int, int], padding_mode: str = "circular", iterations: int = 6
) -> Tensor:
    """Proven upper bound of the norm of a 'same' convolution on h x w images: Gram iteration per frequency.

    The convolution with zero padding is a restriction of the circular one on the torus of (h + kh - 1) x (w + kw - 1),
    where nothing that is kept wraps around, so its norm is at most that one's.
    """
    check_real(kernel)
    if padding_mode not in ("circular", "zeros"):
        raise InvalidInputError(f"padding_mode must be 'circular' or 'zeros', not {padding_mode!r}")
    if kernel.shape[-1] % 2 == 0 or kernel.shape[-2] % 2 == 0:
        raise InvalidInputError(f"kernel sizes must be odd, not {kernel.shape[-2]} x {kernel.shape[-1]}")
    height, width = size
    if padding_mode == "zeros":
        height, width = height + kernel.shape[-2] - 1, width + kernel.shape[-1] - 1
    largest = [gram_norm_bound(block, iterations).amax(-1) for block in torus_blocks(kernel, (height, width))]
    return largest[0] if len(largest) == 1 else torch.maximum(*largest)
