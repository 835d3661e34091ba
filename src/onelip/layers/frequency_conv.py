"""Convolutions that act in the frequency domain, by one matrix per frequency.

With M^(f) of norm at most 1 at every frequency, x -> F^T M F x has norm at most 1, because the real DFT F is
an isometry. Zero padding embeds the image in a torus larger by k - 1, convolves there and crops.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from onelip.layers.contract import Request
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.fft_products import FourierProduct, half_spectrum, parts_of, trains_by_fft
from onelip.layers.fused import frozen_conv
from onelip.layers.operators import Kernel, Operator, frequencies
from onelip.layers.remade import Remade, keeps_no_matrices
from onelip.linalg.devices import is_cpu
from onelip.linalg.fourier import Size, pack, torus_blocks


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
    return keeps_no_matrices((layer.core_out, layer.core_in), layer.weight.element_size(), torus)


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

    def fuse_core(self, transformed: Operator, size: Size | None) -> nn.Module:
        """A plain 1 x 1 convolution, or the same in the frequency domain, for images of one size."""
        if isinstance(transformed, Kernel):
            return frozen_conv(transformed.kernel, self.bias, self.padding_mode)
        return super().fuse_core(transformed, size)
