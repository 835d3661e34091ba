"""Convolutions that act in the frequency domain, by one matrix per frequency.

With M^(f) of norm at most 1 at every frequency, x -> F^T M F x has norm at most 1, because the real DFT F is
an isometry. Zero padding embeds the image in a torus larger by k - 1, convolves there and crops.

The matrices are h (w / 2 + 1) c^2 complex numbers, where the kernel is k^2 c^2 real ones, and what autograd keeps of a
function that constrains them is several times that: for a wide layer more than all images. Accelerators make those of
wide layers anew in the backward pass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from onelip.layers.contract import Request
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.fft_products import FourierProduct, half_spectrum, parts_of, trains_by_fft
from onelip.layers.fused import frozen_conv
from onelip.layers.operators import Kernel, Operator, TrainingOperator, frequencies
from onelip.linalg.devices import is_cpu
from onelip.linalg.fourier import Size, half_width, pack, torus_blocks
from onelip.linalg.tensor_modes import no_autocast, wants_plain_operations

MOST_BYTES_KEPT = 2**22
"""Of complex matrices of one layer that are kept. Narrower layers are transformed together, by as few kernels as
possible."""


@dataclass(frozen=True)
class Remade(TrainingOperator):
    """The operator that `make` makes of a kernel, in the forward and again in the backward pass of each input."""

    kernel: Tensor
    make: Callable[[Tensor], Operator]

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """In float32 or better; the backward pass takes the forms of the forward pass."""
        function = copy_context().run
        if not torch.is_grad_enabled():
            return function(self._applied, x, self.kernel, bias)
        y: Any = checkpoint(
            function, self._applied, x, self.kernel, bias, use_reentrant=False, preserve_rng_state=False
        )
        return y

    def _applied(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        kernel = kernel.float() if kernel.dtype in (torch.float16, torch.bfloat16) else kernel
        with no_autocast(x.device.type):
            return self.make(kernel).apply(x.to(kernel.dtype), bias)


def torus_size(size: Size, kernel_size: Size, padding_mode: str) -> Size:
    """The torus on which a convolution of this padding acts."""
    if padding_mode == "circular":
        return size
    return size[0] + kernel_size[0] - 1, size[1] + kernel_size[1] - 1


def recomputes(layer: LipschitzConv2d, request: Request) -> bool:
    """Whether a layer that acts on frequencies has no matrices in training."""
    size = request.size
    return size is not None and trains_by_fft(request.training, layer.weight.device) and is_wide(layer, size)


def is_wide(layer: LipschitzConv2d, size: Size) -> bool:
    """Whether the matrices of a layer that acts on frequencies of this core size are too many to be kept."""
    torus = torus_size(size, layer.core_kernel, layer.padding_mode)
    numbers = 2 * torus[0] * half_width(torus[1]) * layer.core_out * layer.core_in
    return not wants_plain_operations() and numbers * layer.weight.element_size() > MOST_BYTES_KEPT


class FrequencyConv2d(LipschitzConv2d):
    """A convolution that `constrain` makes 1-Lipschitz at each frequency of the torus alone.

    The transformed parameters are `Frequencies`. A 1 x 1 kernel is the same matrix at all frequencies, so that it is
    constrained once and stays a plain convolution, a `Kernel` for every image size.
    """

    @abstractmethod
    def constrain(self, matrices: Tensor, request: Request) -> Tensor:
        """Real or complex matrices (..., out, in) to matrices of norm at most 1."""

    def packed_matrices(
        self, kernel: Tensor, torus: Size, tensors: Mapping[str, Tensor], request: Request
    ) -> Tensor | None:
        """`pack` of the constrained matrices in training on CPUs, if there is a way to them that keeps little."""
        return None

    def unconstrained_kernel(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The kernel whose frequency matrices are constrained."""
        return tensors["weight"]

    @property
    def size_dependent(self) -> bool:
        """Whether there is more than one matrix."""
        return self.core_kernel != (1, 1)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Operator:
        """The matrices at the frequencies of the torus that belongs to this image size."""
        kernel, size = self.unconstrained_kernel(tensors), request.size
        # A 1 x 1 kernel has the one frequency of one pixel.
        torus = (1, 1) if size is None else torus_size(size, self.core_kernel, self.padding_mode)
        packed = self.packed_matrices(kernel, torus, tensors, request) if is_cpu(kernel.device) else None
        if size is None:
            matrix = self.constrain(kernel[..., 0, 0], request) if packed is None else packed.squeeze(-3).mT
            return Kernel(matrix[..., None, None], self.padding_mode)
        constrain = partial(self.constrain, request=request)
        if trains_by_fft(request.training, kernel.device):

            def product(kernel: Tensor) -> Operator:
                return FourierProduct(parts_of(constrain(half_spectrum(kernel, torus))), torus, size)

            return Remade(kernel, product) if recomputes(self, request) else product(kernel)
        if packed is None:
            packed = pack(tuple(map(constrain, torus_blocks(kernel, torus))))
        return frequencies(packed, torus, size)

    def transforms_separately(self, request: Request) -> bool:
        """Also wide layers in training on accelerators, which make their matrices as they apply them."""
        return recomputes(self, request) or super().transforms_separately(request)

    def fuse_core(self, operator: Operator, size: Size | None) -> nn.Module:
        """A plain 1 x 1 convolution, or the same in the frequency domain, for images of one size."""
        if isinstance(operator, Kernel):
            return frozen_conv(operator.kernel, self.bias, self.padding_mode)
        return super().fuse_core(operator, size)
