"""Bounds of `nn.Conv1d` and `nn.Conv2d` whose padding copies pixels, taken together with that padding.

On the torus of the image itself a circular convolution has the norm of its largest frequency matrix: that is
tighter than the padding's sqrt(copies) times the norm of the unpadded convolution.
"""

from __future__ import annotations

from torch import nn

from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound
from onelip.linalg.linear_bounds import convolution_bound
from onelip.linalg.measured_rounding import Product, measured
from onelip.linalg.proven_convolution import Convolution


def padded_convolution_bound(module: nn.Conv1d | nn.Conv2d, shape: tuple[int, ...]) -> LayerBound:
    """A convolution of torch's, padding included."""
    rows, columns = _padding(module)
    if isinstance(module, nn.Conv1d):
        kernel, size = module.weight[:, :, None], (1, shape[-1])
        stride, dilation = (1, module.stride[0]), (1, module.dilation[0])
    else:
        kernel, size = module.weight, (shape[-2], shape[-1])
        stride, dilation = (module.stride[0], module.stride[1]), (module.dilation[0], module.dilation[1])
    convolution = Convolution(kernel.detach(), stride, dilation, (rows, columns), module.padding_mode, module.groups)
    bound = convolution_bound(convolution, size, module.bias)
    return measured(bound, Product(module._conv_forward, module.weight, module.bias))


def _padding(module: nn.Conv1d | nn.Conv2d) -> tuple[Size, Size]:
    """(before, after) for rows and columns; "same" puts the odd pixel of an even kernel after the image."""
    if isinstance(module.padding, str):
        totals = [
            d * (k - 1) if module.padding == "same" else 0
            for d, k in zip(module.dilation, module.kernel_size, strict=True)
        ]
        sides = [(total // 2, total - total // 2) for total in totals]
    else:
        sides = [(side, side) for side in module.padding]
    return (sides[0] if len(sides) == 2 else (0, 0)), sides[-1]
