"""Functions of the matrices of a convolution at all frequencies, with little kept for the backward pass.

Layers keep the packed results for their own gradients. What autograd would keep beside them, the matrices before the
function, their complex form and every step on the way, is several times that. Here the matrices are made again from
the kernel, and the results are read from what the layers keep. A few layers are done at a time, so that temporary
tensors stay in the cache.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
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


class Way(ABC):
    """How to find the gradient of a function of matrices (..., o, i)."""

    def __init__(self, function: Callable[[Tensor], Tensor | Matrices]) -> None:
        self.function = function

    def values(self, matrix: Tensor) -> tuple[Matrices, Matrices]:
        """The values, and what the gradient needs beside them and the matrix."""
        return as_tuple(self.function(matrix)), ()

    @abstractmethod
    def gradient(self, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
        """The gradient of the matrix, given those of the values."""


class _Again(Way):
    """By torch, which computes the function again: nothing but its value is kept."""

    def gradient(self, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
        with torch.enable_grad():
            leaf = matrix.detach().requires_grad_()
            return torch.autograd.grad(self.function(leaf), leaf, gradients)[0]


class _OfCayley(Way):
    """From Q, which holds the inverse."""

    def gradient(self, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
        return cayley_gradient(matrix, values[0], gradients[0])


class _OfHalves(Way):
    """From the outer half, see `SandwichFactors`."""

    def gradient(self, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
        assert isinstance(self.function, SandwichFactors)
        return self.function.gradient(matrix, values, gradients)


class _OfPolarFactor(Way):
    """From eigenvectors V and singular values s, which are kept with the scale of the matrix."""

    def values(self, matrix: Tensor) -> tuple[Matrices, Matrices]:
        scale = largest_magnitude(matrix)
        factor, vectors, values = eigen_factor(_tall(matrix) / scale, single=True)
        return (_turned(factor, matrix),), (vectors, values, scale)

    def gradient(self, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
        vectors, singular, scale = kept
        found = eigen_gradient((_tall(values[0]), vectors, singular), _tall(gradients[0]))
        return _turned(found / scale, matrix)


def _tall(matrix: Tensor) -> Tensor:
    return matrix.mH if matrix.shape[-2] < matrix.shape[-1] else matrix


def _turned(tall: Tensor, like: Tensor) -> Tensor:
    return tall.mH if like.shape[-2] < like.shape[-1] else tall


_WAYS: dict[Any, Callable[[Any], Way]] = {
    cayley: _OfCayley,
    ridge_orthogonalise: _Again,
    training_polar: _OfPolarFactor,
    SandwichFactors: _OfHalves,
}
"""By the function, or by its class where there are several."""


def _way(function: Callable[[Tensor], Tensor | Matrices]) -> Callable[[Any], Way] | None:
    return _WAYS.get(type(function)) or _WAYS.get(function)


def few_layers_at_a_time(kernel: Tensor, torus: Size, function: Callable[[Tensor], Tensor | Matrices]) -> Matrices:
    """The packed values of the function at all frequencies of a torus for a kernel (..., o, i, kh, kw)."""
    lead, way = kernel.shape[:-4], _way(function)
    assert way is not None
    values: Any = _PackedValues.apply(kernel.reshape(-1, *kernel.shape[-4:]), way(function), torus)
    return tuple(value.reshape(*lead, *value.shape[1:]) for value in values)


def _is_known(kernel: Tensor, torus: Size, function: Callable[[Tensor], Tensor | Matrices]) -> bool:
    return _way(function) is not None


def _parts(kernel: Tensor, torus: Size) -> list[slice]:
    """The layers (first dimension) that are done at a time."""
    bytes_of_layer = math.prod(torus) * kernel[0, ..., 0, 0].numel() * kernel.element_size()
    step = max(1, _BYTES_AT_ONCE // bytes_of_layer)
    return [slice(start, start + step) for start in range(0, len(kernel), step)]


class _PackedValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Tensor, function: Way, torus: Size) -> Matrices:
        parts, kept = _parts(kernel, torus), []
        results: list[Tensor] = []
        for part in parts:
            values, keep = zip(*map(function.values, torus_blocks(kernel[part], torus)), strict=True)
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
            values = packed_values.body(kernel, ctx.torus, ctx.function.function)
            return *torch.autograd.grad(values, kernel, gradients, create_graph=True), None, None
        parts, total = _parts(kernel, ctx.torus), torch.empty_like(kernel)
        for number, part in enumerate(parts):
            own = kept[number * len(kept) // len(parts) : (number + 1) * len(kept) // len(parts)]
            values, cotangents = ([tensor[part] for tensor in tensors] for tensors in (results, gradients))
            total[part] = _gradient(ctx.function, kernel[part], ctx.torus, values, cotangents, own)
        return total, None, None


def _gradient(
    function: Way,
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
    count = len(kept) // len(blocks)
    found = [
        function.gradient(block.detach(), values[i], tuple(kept[i * count : (i + 1) * count]), cotangents[i])
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
