"""Layers that are one plain convolution or matrix product after their parameter transformation.

A circular convolution has norm max_f ||K^(f)|| over the frequencies of its torus. A zero-padded one is a
restriction of the circular one on a torus larger by k - 1: embedding and cropping have norm 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from onelip.layers.frequency_conv import CheapestFormConv2d
from onelip.layers.fused import frozen_conv, frozen_linear
from onelip.layers.reshape import ZeroSpatialPad
from onelip.layers.shapes import LipschitzLinear
from onelip.layers.strides import taps_of_blocks
from onelip.layers.transformed import FirstRows, Matrix, Transformed
from onelip.linalg.fourier import Size
from onelip.linalg.polar import training_polar_factor, trains_in_single
from onelip.linalg.polar_rows import polar_rows


class KernelConv2d(CheapestFormConv2d):
    """A convolution that `transform_tensors` makes one `Kernel` of."""

    keeps_taps = True
    fuses_cheapest_form = False  # to a plain convolution, which needs the kernel

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """One `nn.Conv2d`, stride and groups included.

        What `nn.Conv2d` refuses stays one of ours, such as a circle smaller than its padding. So does a strided kernel
        that was normalised on the torus of its zero-padded blocks: as one of torch it is proven on another torus.
        """
        geometry, stride = self.geometry, self.stride
        divides = input_size is not None and input_size[0] % stride[0] == 0 and input_size[1] % stride[1] == 0
        plain = geometry.padding is None and (stride == (1, 1) or (stride[0] == stride[1] and self.dilation == (1, 1)))
        other_torus = self.size_dependent and stride != (1, 1) and not geometry.circular
        if self.signal or geometry.transposed or not plain or other_torus or not self._fits(input_size):
            return super().fuse(input_size)
        kernel = self._detached(input_size).tensors()["kernel"]
        if stride != (1, 1):
            high, wide = geometry.core_sides
            kernel = taps_of_blocks(kernel[..., -high:, -wide:], stride, self.kernel_size)
        kernel = kernel.flatten(0, 1) if self.groups > 1 else kernel
        options = {"stride": stride, "dilation": self.dilation, "groups": self.groups}
        conv = frozen_conv(kernel, self.bias, self.padding_mode, **options)
        return conv if divides or stride == (1, 1) else nn.Sequential(ZeroSpatialPad(stride[0]), conv)

    def _fits(self, input_size: Size | None) -> bool:
        """Whether `nn.Conv2d` accepts the image: its circular padding must not exceed the size."""
        if input_size is None or self.padding_mode == "zeros":
            return True
        reach = ((k - 1) // 2 * d for k, d in zip(self.kernel_size, self.dilation, strict=True))
        return all(pad <= length for pad, length in zip(reach, input_size, strict=True))


class MatrixLinear(LipschitzLinear):
    """A linear layer that `transform_tensors` makes one `Matrix` of."""

    rows_in_use: int | None = None
    """Inside `first_outputs`: how many rows a transformation may do with, counted from the first."""

    def first_outputs(self, count: int) -> FirstRows:
        """`transform` for a pass that uses the first outputs and no others, to be handed over to the layer.

        A frozen layer keeps all of them, as in evaluation.
        """
        self.rows_in_use = None if self.is_frozen else count
        try:
            transformed = self.transformed() if self.is_frozen else self.transform()
        finally:
            self.rows_in_use = None
        self.keep_states([self], [transformed])
        assert isinstance(transformed, Matrix)
        return FirstRows(transformed.matrix[:count])

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """A plain linear layer."""
        assert isinstance(transformed, Matrix)
        return frozen_linear(transformed.matrix, self.bias)


class PolarLinear(MatrixLinear):
    """A linear layer with the polar factor of its matrix."""

    def orthonormal(self, matrix: Tensor) -> Tensor:
        """The polar factor, or the rows of it that are in use, where training finds them faster."""
        rows = self.rows_in_use
        if rows is None or matrix.shape[-2] != matrix.shape[-1] or not trains_in_single(matrix, self.training):
            return training_polar_factor(matrix, self.training)
        return polar_rows(matrix, rows)

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Matrix:
        """Polar factor."""
        return Matrix(self.orthonormal(tensors["weight"]))
