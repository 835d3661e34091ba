"""Functions of the matrices of a convolution at all frequencies, with little kept for the backward pass.

Layers keep the packed results for their own gradients. What autograd would keep beside them, the matrices before the
function, their complex form and every step on the way, is several times that. Here the matrices are made again from
the kernel, and the results are read from what the layers keep. A few layers are done at a time, so that temporary
tensors stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from onelip.fast.table import Row
from onelip.layers.sandwich_factors import SandwichFactors
from onelip.linalg.fourier import Matrices, Size, as_tuple, pack, packed_values, torus_blocks, unpack
from onelip.linalg.norms import largest_magnitude
from onelip.linalg.orthogonal import cayley, cayley_gradient
from onelip.linalg.polar import eigen_factor, eigen_gradient, training_polar
from onelip.linalg.triangular import ridge_orthogonalise

_BYTES_AT_ONCE = 2**24
"""Of the matrices of the layers that are done at a time. glibc gives tensors of more than twice this size back to the
system, which clears them page by page when it is asked for memory again."""


Function = Callable[[Tensor], Tensor | Matrices]
"""Of matrices (..., o, i)."""


def _values(function: Function, matrix: Tensor) -> tuple[Matrices, Matrices]:
    """The values, and what the gradient needs beside them and the matrix."""
    if function is not training_polar:
        return as_tuple(function(matrix)), ()
    scale = largest_magnitude(matrix)
    factor, vectors, values = eigen_factor(_tall(matrix) / scale, single=True)
    return (_turned(factor, matrix),), (vectors, values, scale)


def _by_torch(function: Any, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
    """The function is computed again: nothing but its value is kept."""
    with torch.enable_grad():
        leaf = matrix.detach().requires_grad_()
        return torch.autograd.grad(function(leaf), leaf, gradients)[0]


def _of_isometry(function: Any, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
    """From Q, which holds the inverse."""
    return cayley_gradient(matrix, values[0], gradients[0])


def _of_factors(function: Any, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
    """From the outer one, see `SandwichFactors`."""
    return function.gradient(matrix, values, gradients)


def _of_polar_factor(function: Any, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
    """From eigenvectors V and singular values s, which are kept with the scale of the matrix."""
    vectors, singular, scale = kept
    found = eigen_gradient((_tall(values[0]), vectors, singular), _tall(gradients[0]))
    return _turned(found / scale, matrix)


def _tall(matrix: Tensor) -> Tensor:
    return matrix.mH if matrix.shape[-2] < matrix.shape[-1] else matrix


def _turned(tall: Tensor, like: Tensor) -> Tensor:
    return tall.mH if like.shape[-2] < like.shape[-1] else tall


_GRADIENTS: dict[Any, Callable[..., Tensor]] = {
    cayley: _of_isometry,
    ridge_orthogonalise: _by_torch,
    training_polar: _of_polar_factor,
    SandwichFactors: _of_factors,
}
"""The gradient of the matrix by the function, or by its class where there are several."""


def _gradient_of(function: Function) -> Callable[..., Tensor] | None:
    return _GRADIENTS.get(type(function)) or _GRADIENTS.get(function)


def few_layers_at_a_time(kernel: Tensor, torus: Size, function: Function) -> Matrices:
    """The packed values of the function at all frequencies of a torus for a kernel (..., o, i, kh, kw)."""
    lead = kernel.shape[:-4]
    values: Any = _PackedValues.apply(kernel.reshape(-1, *kernel.shape[-4:]), function, torus)
    return tuple(value.reshape(*lead, *value.shape[1:]) for value in values)


def _is_known(kernel: Tensor, torus: Size, function: Function) -> bool:
    return _gradient_of(function) is not None


def _parts(kernel: Tensor, torus: Size) -> list[slice]:
    """The layers (first dimension) that are done at a time."""
    bytes_of_layer = math.prod(torus) * kernel[0, ..., 0, 0].numel() * kernel.element_size()
    step = max(1, _BYTES_AT_ONCE // bytes_of_layer)
    return [slice(start, start + step) for start in range(0, len(kernel), step)]


class _PackedValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Tensor, function: Function, torus: Size) -> Matrices:
        parts, kept = _parts(kernel, torus), []
        results: list[Tensor] = []
        for part in parts:
            values, keep = zip(*(_values(function, block) for block in torus_blocks(kernel[part], torus)), strict=True)
            kept.extend(chain.from_iterable(keep))
            for index, blocks in enumerate(zip(*values, strict=True)):
                packed = pack(blocks)
                if len(results) <= index:
                    results.append(packed if len(parts) == 1 else packed.new_empty(len(kernel), *packed.shape[1:]))
                if len(parts) > 1:
                    results[index][part] = packed
        ctx.save_for_backward(kernel, *results, *kept)
        ctx.function, ctx.torus, ctx.count = function, torus, len(results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        kernel, *saved = ctx.saved_tensors
        results, kept = saved[: ctx.count], saved[ctx.count :]
        if torch.is_grad_enabled():  # a second derivative goes through torch's operations
            values = packed_values.body(kernel, ctx.torus, ctx.function)
            return *torch.autograd.grad(values, kernel, gradients, create_graph=True), None, None
        parts, total = _parts(kernel, ctx.torus), torch.empty_like(kernel)
        for number, part in enumerate(parts):
            own = kept[number * len(kept) // len(parts) : (number + 1) * len(kept) // len(parts)]
            values, cotangents = ([tensor[part] for tensor in tensors] for tensors in (results, gradients))
            total[part] = _gradient(ctx.function, kernel[part], ctx.torus, values, cotangents, own)
        return total, None, None


def _gradient(
    function: Function,
    kernel: Tensor,
    torus: Size,
    results: Sequence[Tensor],
    gradients: Sequence[Tensor],
    kept: Sequence[Tensor],
) -> Tensor:
    with torch.enable_grad():
        leaf = kernel.detach().requires_grad_()
        blocks = torus_blocks(leaf, torus)
    values, cotangents = (
        list(zip(*(unpack(packed, torus) for packed in tensors), strict=True)) for tensors in (results, gradients)
    )
    count, gradient_of = len(kept) // len(blocks), _gradient_of(function)
    assert gradient_of is not None
    found = [
        gradient_of(function, block.detach(), values[i], tuple(kept[i * count : (i + 1) * count]), cotangents[i])
        for i, block in enumerate(blocks)
    ]
    return torch.autograd.grad(blocks, leaf, found)[0]


ROWS = (
    Row(
        packed_values,
        few_layers_at_a_time,
        "cpu",
        "memory without it: LOT 1.25 (XS), 1.38 (S), Cayley 1.28, 1.42, Cholesky 1.60, 1.89, Sandwich 1.34 (XS)",
        _is_known,
    ),
)
