"""Modules that layers fuse to: fixed tensors, no parameter transformation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onelip.layers.memory_format import in_format_of
from onelip.layers.operators import Operator
from onelip.linalg.convolution import PaddingMode
from onelip.linalg.fourier import Size
from onelip.proofs.bounded import BoundedModule
from onelip.proofs.layer_bound import LayerBound


def frozen(tensor: Tensor) -> nn.Parameter:
    """A detached copy that no optimiser will change: a trained step would void the layer's guarantee."""
    return nn.Parameter(tensor.detach().clone(), requires_grad=False)


class FusedLayer(BoundedModule):
    """Operator parameters as a module: their tensors and the bias, all frozen."""

    bias: nn.Parameter | None

    def __init__(self, operator: Operator, bias: Tensor | None) -> None:
        super().__init__()
        for name, tensor in operator.tensors().items():
            self.register_parameter(name, frozen(tensor))
        self.register_parameter("bias", None if bias is None else frozen(bias))
        # What kind of operator it is; its tensors are the parameters.
        self._operator = operator.map(lambda _: torch.empty(0, device="meta"))

    def operator(self) -> Operator:
        """The transformed parameters with the tensors of this module."""
        tensors = {name: tensor for name, tensor in self._parameters.items() if tensor is not None}
        return self._operator.with_tensors(tensors)

    def forward(self, x: Tensor) -> Tensor:
        """The input transformation."""
        return in_format_of(x, self.operator().apply(x, self.bias))

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """The bound of the transformed parameters."""
        return self.operator().bound(input_shape, self.bias)

    def extra_repr(self) -> str:
        """The kind of operator."""
        return type(self._operator).__name__


def frozen_conv(
    kernel: Tensor,
    bias: Tensor | None,
    padding_mode: PaddingMode,
    *,
    stride: Size = (1, 1),
    dilation: Size = (1, 1),
    groups: int = 1,
) -> nn.Conv2d:
    """A plain `nn.Conv2d` with this kernel: with as many outputs as "same" has, on images that the stride divides."""
    out_channels, in_channels, height, width = kernel.shape
    reach = (height - 1) // 2, (width - 1) // 2
    conv = nn.Conv2d(
        in_channels * groups,
        out_channels,
        (height, width),
        stride,
        (reach[0] * dilation[0], reach[1] * dilation[1]),
        dilation,
        groups,
        bias=bias is not None,
        padding_mode=padding_mode,
        device="meta",
    )
    conv.weight = frozen(kernel)
    if bias is not None:
        conv.bias = frozen(bias)
    return conv


def frozen_linear(matrix: Tensor, bias: Tensor | None) -> nn.Linear:
    """A plain `nn.Linear` with this matrix."""
    linear = nn.Linear(matrix.shape[1], matrix.shape[0], bias=bias is not None, device="meta")
    linear.weight = frozen(matrix)
    if bias is not None:
        linear.bias = frozen(bias)
    return linear
