"""Plain convolution and linear layer: the unconstrained baseline that all costs are compared with.

It goes through the interface of the other methods, bound included, but guarantees no constant: its norm is whatever
training makes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from onelip.layers.info import Complexity, MethodInfo
from onelip.layers.spatial import KernelConv2d, MatrixLinear
from onelip.layers.transformed import Kernel, Matrix
from onelip.linalg.fourier import Size


class StandardConv2d(KernelConv2d):
    """The baseline: `nn.Conv2d` behind the interface of the other methods, without a guarantee."""

    holds_for_volumes = True

    has_guarantee = False
    transforms_parameters = False

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Kernel:
        """The kernel as it is."""
        return Kernel(tensors["weight"], self.padding_mode)


class StandardLinear(MatrixLinear):
    """The baseline: `nn.Linear` behind the interface of the other methods, without a guarantee."""

    has_guarantee = False

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Matrix:
        """The matrix as it is."""
        return Matrix(tensors["weight"])


METHOD = MethodInfo(
    key="standard",
    title="Standard",
    paper="Plain convolution (no constraint)",
    year=1998,
    link="https://doi.org/10.1109/5.726791",
    guarantee="none",
    linear=True,
    conv=StandardConv2d,
    linear_layer=StandardLinear,
    learning_rate=0.05,
    short_learning_rate=0.0005,  # scores without a constraint explode at rates that Lipschitz layers can take
    published=Complexity(
        input_operations="CONV",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="-",
        parameter_macs="0",
        parameter_memory="c**2*k**2",
    ),
)
