"""Spectral norms of matrices and convolutions: proven bounds from above.

A power iteration gives a *lower* bound, good enough to train with but not to certify (`onelip.linalg.norm_estimates`).
The Gram iteration G_0 = A, G_t = G_(t-1)^H G_(t-1) gives ||G_t||_F^(1/2^t) >= sigma_max(A) for every t, with quadratic
convergence (Delattre et al., "Efficient Bound of Lipschitz Constant for Convolutional Layers by Gram Iteration", ICML
2023).
"""

import math
from typing import Any

import torch
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.fourier import check_real, frequency_matrix_at, kernel_to_frequency, torus_blocks
from onelip.linalg.tensor_modes import is_traced, may_keep_tensors


def largest_magnitude(matrix: Tensor) -> Tensor:
    """Return max |real or imaginary part| over the last two dimensions, shape (..., 1, 1), outside autograd.

    It is at least the smallest normal number, so that one can always divide by it. The functions that divide by it
    are homogeneous and multiply it back, so treating it as a constant leaves their gradient exact.
    """
    parts, entries = real_parts(matrix.detach()), (-3, -2, -1)
    if suits_cpu(matrix.device):  # a maximum norm is 20 times slower there, absolute values are a copy
        largest = torch.maximum(parts.amax(entries), -parts.amin(entries))
    else:
        largest = torch.linalg.vector_norm(parts, ord=math.inf, dim=entries)
    return largest.clamp(min=torch.finfo(largest.dtype).tiny)[..., None, None]


def real_parts(matrix: Tensor) -> Tensor:
    """Real and imaginary parts as a last dimension, of length 1 for real matrices.

    Norms and maxima of complex tensors are not vectorised in torch and take ten times as long.
    """
    return torch.view_as_real(matrix.resolve_conj()) if matrix.is_complex() else matrix.unsqueeze(-1)


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
    lead, batch = matrix.shape[:-2], one_batch(matrix)
    if is_traced() or iterations == 0 or not suits_cpu(matrix.device):
        return _gram_bound(batch, iterations).reshape(lead)
    bound: Any = _GramBound.apply(batch, iterations)
    return bound.reshape(lead)


def _gram_bound(matrix: Tensor, iterations: int, powers: list[Tensor] | None = None) -> Tensor:
    """The bound (b,); G_1, ..., G_t, each up to a factor, are appended to a list if there is one."""
    tiny, scale = torch.finfo(matrix.dtype).tiny, largest_magnitude(matrix)
    gram = matrix / scale
    bound = scale[..., 0, 0]
    wide = matrix.shape[-2] < matrix.shape[-1]
    for step in range(iterations):
        if step % 3 == 1:
            norm = torch.linalg.vector_norm(gram.detach(), dim=(-2, -1)).clamp(min=tiny)
            bound = bound * norm ** (0.5**step)
            gram = gram / norm[..., None, None]
        # The Gram matrix on the smaller side has the same non-zero spectrum; from then on it is Hermitian.
        gram = torch.bmm(gram, gram.mH) if wide else torch.bmm(gram.mH, gram)
        if powers is not None:
            powers.append(gram)
    return bound * torch.linalg.vector_norm(gram, dim=(-2, -1)).clamp(min=tiny) ** (0.5**iterations)


class _GramBound(torch.autograd.Function):
    """The same with half of the products in the backward pass.

    With M = A^H A, the bound is tr(M^n)^(1 / 2n) for n = 2^t, and its gradient b A M^(n-1) / tr(M^n), where
    M^(n-1) = M M^2 M^4 ... M^(n/2) is a product of the steps on the way. As the bound is homogeneous, that direction D
    is scaled to <A, D> = b, whatever the steps were divided by.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, iterations: int) -> Tensor:
        powers: list[Tensor] = []
        bound = _gram_bound(matrix, iterations, powers)
        ctx.save_for_backward(matrix, bound, *powers)
        ctx.iterations = iterations
        return bound

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (matrix, bound, *powers), (gradient,) = ctx.saved_tensors, gradients
        if torch.is_grad_enabled():  # a second derivative goes through torch's operations
            plain = _gram_bound(matrix, ctx.iterations)
            return *torch.autograd.grad(plain, matrix, gradient, create_graph=True), None
        product = powers[0]
        for power in powers[1:]:
            product = torch.bmm(product, power)
            product /= largest_magnitude(product)
        scaled = matrix / largest_magnitude(matrix)
        wide = matrix.shape[-2] < matrix.shape[-1]
        direction = torch.bmm(product, scaled) if wide else torch.bmm(scaled, product)
        along = real_parts(scaled).mul(real_parts(direction)).sum((-3, -2, -1)) * largest_magnitude(matrix)[:, 0, 0]
        factor = gradient * bound / along.clamp(min=torch.finfo(along.dtype).tiny)
        return direction * factor[:, None, None], None


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
    norm = torch.linalg.vector_norm(torch.bmm(gram, gram), dim=(-2, -1), keepdim=True).clamp(min=0.5**4)
    return (scaled / norm**0.25).reshape(matrix.shape)


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
    torus = height, width
    if not suits_cpu(kernel.device):
        return _largest_without_looking(kernel, torus, iterations)
    if is_traced() or not (kernel.requires_grad and torch.is_grad_enabled()):
        largest = [gram_norm_bound(block, iterations).amax(-1) for block in torus_blocks(kernel, torus)]
        return largest[0] if len(largest) == 1 else torch.maximum(*largest)
    bound: Any = _LargestBound.apply(kernel.reshape(-1, *kernel.shape[-4:]), torus, iterations)
    return bound.reshape(kernel.shape[:-4])


_BYTES_AT_ONCE = 2**23
"""Of matrices whose bounds accelerators compute at a time, where they keep nothing."""


def _largest_without_looking(kernel: Tensor, torus: tuple[int, int], iterations: int) -> Tensor:
    """The largest Gram bound over the half spectrum, for accelerators; with gradients, those of its frequency alone."""
    if is_traced():
        return gram_norm_bound(kernel_to_frequency(kernel, torus).flatten(-4, -3), iterations).amax(-1)
    with torch.no_grad():
        matrices = kernel_to_frequency(kernel, torus).flatten(-4, -3)
        batch = one_batch(matrices)
        parts = batch.split(max(1, _BYTES_AT_ONCE // batch[0].nbytes))
        bounds = torch.cat([gram_norm_bound(part, iterations) for part in parts]).reshape(matrices.shape[:-2])
    if not torch.is_grad_enabled():
        return bounds.amax(-1)
    place, columns = bounds.argmax(-1), torus[1] // 2 + 1
    row = torch.div(place, columns, rounding_mode="floor").to(kernel.dtype) / torus[0]
    column = (place % columns).to(kernel.dtype) / torus[1]
    return gram_norm_bound(frequency_matrix_at(kernel, row, column), iterations)


class _LargestBound(torch.autograd.Function):
    """The largest Gram bound over all frequencies. Its gradient is that of one of them, whose matrix is made again."""

    @staticmethod
    def forward(ctx: Any, kernel: Tensor, torus: tuple[int, int], iterations: int) -> Tensor:
        bounds = torch.cat([gram_norm_bound(block, iterations) for block in torus_blocks(kernel, torus)], dim=-1)
        largest, frequency = bounds.max(-1)
        ctx.save_for_backward(kernel, frequency)
        ctx.torus, ctx.iterations = torus, iterations
        return largest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        kernel, frequency = ctx.saved_tensors
        known = may_keep_tensors() and not frequency.is_meta  # tensors without numbers stand for those of any frequency
        indices = frequency.tolist() if known else [0] * len(frequency)
        differentiable = torch.is_grad_enabled()
        with torch.enable_grad():
            leaf = kernel if differentiable else kernel.detach().requires_grad_()
            found = (_bound_at(leaf[i], index, ctx.torus, ctx.iterations) for i, index in enumerate(indices))
            bounds = torch.stack(list(found))
            (gradient,) = torch.autograd.grad(bounds, leaf, gradients[0], create_graph=differentiable)
        return gradient, None, None


def _bound_at(kernel: Tensor, index: int, torus: tuple[int, int], iterations: int) -> Tensor:
    """The Gram bound at one of the independent frequencies, counted through all blocks."""
    for block in torus_blocks(kernel, torus):
        if index < len(block):
            return gram_norm_bound(block[index], iterations)
        index -= len(block)
    raise IndexError(index)
