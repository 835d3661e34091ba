"""Plain convolution and linear layer: the unconstrained baseline that all costs are compared with.

It goes through the interface of the other methods, bound included, but guarantees no constant: its norm is whatever
training makes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from onelip.layers.contract import Request, Traits
from onelip.layers.kernel_layers import KernelConv2d, MatrixLinear
from onelip.layers.operators import Kernel, Matrix
from onelip.layers.registry import MethodInfo

TRAITS = Traits(holds_for_volumes=True, has_guarantee=False, transforms_parameters=False)


class StandardConv2d(KernelConv2d):
    """The baseline: `nn.Conv2d` behind the interface of the other methods, without a guarantee."""

    traits = TRAITS

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Kernel:
        """The kernel as it is."""
        return Kernel(tensors["weight"], self.padding_mode)


class StandardLinear(MatrixLinear):
    """The baseline: `nn.Linear` behind the interface of the other methods, without a guarantee."""

    traits = TRAITS

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """The matrix as it is."""
        return Matrix(tensors["weight"])


METHOD = MethodInfo(
    key="standard",
    guarantee="none",
    conv=StandardConv2d,
    linear_layer=StandardLinear,
)
