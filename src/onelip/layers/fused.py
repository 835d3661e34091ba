"""Plain modules that layers fuse to: fixed tensors, no parameter transformation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor, nn

from onelip.layers.bounded import BoundedModule

PaddingMode = Literal["circular", "zeros"]


def frozen(tensor: Tensor) -> nn.Parameter:
    """A detached copy that no optimiser will change: a trained step would void the layer's guarantee."""
    return nn.Parameter(tensor.detach().clone(), requires_grad=False)


class FusedLayer(BoundedModule):
    """Base of the fused modules: the transformed parameters by name, and the bias, all frozen."""

    bias: nn.Parameter | None

    def __init__(self, transformed: Mapping[str, Tensor], bias: Tensor | None) -> None:
        super().__init__()
        self.names = tuple(transformed)
        for name, tensor in transformed.items():
            self.register_parameter(name, frozen(tensor))
        self.register_parameter("bias", None if bias is None else frozen(bias))

    def tensors(self) -> dict[str, Tensor]:
        """The transformed parameters, as the layer's own input transformation takes them."""
        return {name: self.get_parameter(name) for name in self.names}


def frozen_conv(
    kernel: Tensor,
    bias: Tensor | None,
    padding_mode: PaddingMode,
    *,
    stride: int = 1,
    dilation: tuple[int, int] = (1, 1),
) -> nn.Conv2d:
    """A plain `nn.Conv2d` with this kernel, whose padding keeps the size at stride 1."""
    out_channels, in_channels, side, _ = kernel.shape
    reach = (side // stride) // 2 * stride
    conv = nn.Conv2d(
        in_channels,
        out_channels,
        side,
        stride,
        (reach * dilation[0], reach * dilation[1]),
        dilation,
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
