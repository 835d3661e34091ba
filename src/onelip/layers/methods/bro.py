"""BRO: block reflector orthogonal layers (Lai et al., 2025).

W = I - 2 V (V^H V)^(-1) V^H for a tall V of c x n, n < c, one at every frequency of the torus: V (V^H V)^(-1) V^H is
the orthogonal projection onto the columns of V, so that W is unitary, -1 on these columns and 1 beside them. W is also
Hermitian: not every orthogonal map is one.

The published layer solves with V^H V + eps I, whose condition number is the square of that of V: in float32, with eps =
1e-7 and two columns that differ by 1e-3 of their size, random 8 x 4 matrices V give norms up to 27. Here
W = I - 2 Q Q^H, with the orthonormal columns Q of V = Q R by Householder reflections, which are orthonormal however
close the columns of V are. With a rank n of at most c/4 the input transformation is x - 2 Q (Q^H x), 2 n / c of the
operations of W x; else W is formed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Unpack

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.block_reflection import BlockReflection
from onelip.layers.contract import Request, Traits
from onelip.layers.fft_products import trains_by_fft
from onelip.layers.frequency_conv import FrequencyConv2d, torus_size
from onelip.layers.fused import frozen_linear
from onelip.layers.layer import LayerOptions, LipschitzLayer
from onelip.layers.linear import LipschitzLinear
from onelip.layers.operators import Kernel, Matrix, Operator, frequencies
from onelip.layers.registry import MethodInfo
from onelip.linalg.convolution import PaddingMode
from onelip.linalg.fourier import Size, pack, torus_blocks
from onelip.linalg.subspace import subspace_basis

LOW_RANK = 4
"""Up to c / 4 columns the two products with Q take at most half of the operations of the one with W."""

START_NOISE = 0.01
"""Norm of the random part of a column at the start, relative to that of the identity's column."""


def reflector(columns: Tensor) -> Tensor:
    """I - 2 Q Q^H (..., c, c) for the space of V (..., c, n)."""
    basis = subspace_basis(columns)
    identity = torch.eye(basis.shape[-2], dtype=basis.dtype, device=basis.device)
    return identity - 2 * (basis @ basis.mH)


def factor_of(columns: Tensor) -> Tensor:
    """sqrt(2) Q^H (..., n, c)."""
    return math.sqrt(2) * subspace_basis(columns).mH


class _Reflector(LipschitzLayer):
    """A weight V with `rank` columns in place of a square one."""

    traits = Traits(square=True, has_torch_taps=False)

    _given_rank: int | None

    @property
    def rank(self) -> int:
        """Columns of V."""
        return max(1, self.core_out // 2) if self._given_rank is None else self._given_rank

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """(core_out, rank, ...), once the number of channels tells what the rank may be."""
        if type(self.rank) is not int or not 1 <= self.rank <= self.core_out:
            raise InvalidInputError(
                f"{type(self).__name__}: rank={self.rank!r} is not supported, use a number from 1 to {self.core_out}, "
                "the number of channels"
            )
        shapes = super().tensor_shapes()
        rows, _, *taps = shapes["weight"]
        return {**shapes, "weight": (rows, self.rank, *taps)}

    @property
    def is_low_rank(self) -> bool:
        """Whether two products with Q are cheaper than one with W."""
        return LOW_RANK * self.rank <= self.core_out

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """By default columns of the identity plus small noise, which tells equal layers apart; the bias is zero."""
        super().initialise(tensors)
        if self.init == "auto":
            weight = tensors["weight"]
            weight.add_(torch.randn_like(weight), alpha=START_NOISE / math.sqrt(weight[:, 0].numel()))

    def default_init(self) -> str:
        """The first channels are reflected."""
        return "identity"


class BROConv2d(_Reflector, FrequencyConv2d):
    """Convolution that reflects at a space of `rank` dimensions at every frequency; half of the channels by default."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Size,
        stride: int | Size = 1,
        padding: str | int | Size = "same",
        dilation: int | Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "circular",
        *,
        rank: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._given_rank = rank
        geometry = kernel_size, stride, padding, dilation, groups
        super().__init__(in_channels, out_channels, *geometry, bias, padding_mode, **options)

    def constrain(self, matrices: Tensor, request: Request) -> Tensor:
        """Block reflectors."""
        return reflector(matrices)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Operator:
        """W at every frequency, or Q alone where its rank is low."""
        if not self.is_low_rank:
            return super().transform_tensors(tensors, request)
        kernel = self.unconstrained_kernel(tensors)
        size = request.size
        if size is None:
            return BlockReflection(Kernel(factor_of(kernel[..., 0, 0])[..., None, None], self.padding_mode))
        torus = torus_size(size, self.core_kernel, self.padding_mode)
        if trains_by_fft(request.training, kernel.device):
            return super().transform_tensors(tensors, request)
        return BlockReflection(frequencies(pack(tuple(map(factor_of, torus_blocks(kernel, torus)))), torus, size))

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{super().extra_repr()}, rank={self.rank}"


class BROLinear(_Reflector, LipschitzLinear):
    """Linear layer that reflects at a space of `rank` dimensions; half of the features by default."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        rank: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._given_rank = rank
        super().__init__(in_features, out_features, bias, **options)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Operator:
        """W, or Q alone where its rank is low."""
        columns = tensors["weight"]
        return BlockReflection(Matrix(factor_of(columns))) if self.is_low_rank else Matrix(reflector(columns))

    def fuse_core(self, operator: Operator, size: Size | None) -> nn.Module:
        """A plain linear layer where W is formed."""
        if isinstance(operator, Matrix):
            return frozen_linear(operator.matrix, self.bias)
        return super().fuse_core(operator, size)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{super().extra_repr()}, rank={self.rank}"


METHOD = MethodInfo(
    key="bro",
    guarantee="orthogonal",
    conv=BROConv2d,
    linear_layer=BROLinear,
)
