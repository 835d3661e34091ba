"""Functions of the matrices of a convolution at all frequencies, with little kept for the backward pass.

Layers keep the packed results for their own gradients. What autograd would keep beside them, the matrices before the
function, their complex form and every step on the way, is several times that. Here the matrices are made again from
the kernel, and the results are read from what the layers keep. A few layers are done at a time, so that temporary
tensors stay in the cache.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from onelip.linalg.fourier import Size, pack, torus_blocks, unpack
from onelip.linalg.tensor_modes import is_traced

_BYTES_AT_ONCE = 2**24
"""Of the matrices of the layers that are done at a time. glibc gives tensors of more than twice this size back to the
system, which clears them page by page when it is asked for memory again."""

Matrices = tuple[Tensor, ...]


class MatrixFunction(ABC):
    """A function of matrices (..., o, i), with one or more matrices as its value, and the gradient of its value."""

    @abstractmethod
    def plain(self, matrix: Tensor) -> Matrices:
        """The values by operations that torch differentiates."""

    @abstractmethod
    def values(self, matrix: Tensor) -> tuple[Matrices, Matrices]:
        """The values, and what the gradient needs beside them and the matrix."""

    @abstractmethod
    def gradient(self, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
        """That of the matrix, given those of the values."""


class RecomputedFunction(MatrixFunction):
    """A function that torch differentiates, computed again in the backward pass: nothing but its result is kept."""

    def values(self, matrix: Tensor) -> tuple[Matrices, Matrices]:
        """Nothing beside them."""
        return self.plain(matrix), ()

    def gradient(self, matrix: Tensor, values: Matrices, kept: Matrices, gradients: Matrices) -> Tensor:
        """By torch."""
        with torch.enable_grad():
            leaf = matrix.detach().requires_grad_()
            return torch.autograd.grad(self.plain(leaf), leaf, gradients)[0]


def packed_values(function: MatrixFunction, kernel: Tensor, torus: Size) -> Matrices:
    """The packed values of the function at all frequencies of a torus for a kernel (..., o, i, kh, kw)."""
    if is_traced():
        return plain_values(function, kernel, torus)
    lead = kernel.shape[:-4]
    values: Any = _PackedValues.apply(kernel.reshape(-1, *kernel.shape[-4:]), function, torus)
    return tuple(value.reshape(*lead, *value.shape[1:]) for value in values)


def plain_values(function: MatrixFunction, kernel: Tensor, torus: Size) -> Matrices:
    """The same by operations that torch differentiates."""
    values = [function.plain(block) for block in torus_blocks(kernel, torus)]
    return tuple(pack(blocks) for blocks in zip(*values, strict=True))


def _parts(kernel: Tensor, torus: Size) -> list[slice]:
    """The layers (first dimension) that are done at a time."""
    bytes_of_layer = math.prod(torus) * kernel[0, ..., 0, 0].numel() * kernel.element_size()
    step = max(1, _BYTES_AT_ONCE // bytes_of_layer)
    return [slice(start, start + step) for start in range(0, len(kernel), step)]


class _PackedValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Tensor, function: MatrixFunction, torus: Size) -> Matrices:
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
            values = plain_values(ctx.function, kernel, ctx.torus)
            return *torch.autograd.grad(values, kernel, gradients, create_graph=True), None, None
        parts, total = _parts(kernel, ctx.torus), torch.empty_like(kernel)
        for number, part in enumerate(parts):
            own = kept[number * len(kept) // len(parts) : (number + 1) * len(kept) // len(parts)]
            values, cotangents = ([tensor[part] for tensor in tensors] for tensors in (results, gradients))
            total[part] = _gradient(ctx.function, kernel[part], ctx.torus, values, cotangents, own)
        return total, None, None


def _gradient(
    function: MatrixFunction,
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
