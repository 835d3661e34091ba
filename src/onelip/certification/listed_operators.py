"""Linear operators, residual steps and sandwiches of layers as plain operations."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from onelip.certification.plain_operations import (
    Operation,
    convolution,
    residual,
    sandwich,
)
from onelip.certification.witnesses import UNIT, Geometry
from onelip.layers.methods.eco import DilatedFrequencies, dilation_on
from onelip.layers.methods.sandwich import SandwichFrequencies, SandwichProduct
from onelip.layers.operators import Frequencies, Grouped, Kernel, Matrix, Operator
from onelip.layers.operators import frequencies as with_dft
from onelip.layers.residual import ResidualMap
from onelip.linalg.fourier import Size, torus_of

SPECTRAL = (Frequencies, SandwichFrequencies)


class Unlisted(Exception):  # noqa: N818
    """What cannot be listed, and why."""


def torus_of_images(operator: Operator, image: Size) -> Size:
    """The images on which an operator is a circular convolution; all others are embedded there."""
    if isinstance(operator, DilatedFrequencies):
        sides = operator.core.image
        rows, columns = dilation_on(image, sides, operator.padding_mode)
        return sides[0] * rows, sides[1] * columns
    return torus_of(operator.dft) if isinstance(operator, SPECTRAL) else image


def listed_operator(
    prefix: str, operator: Operator, bias: Tensor | None, shape: tuple[int, ...], image: Size
) -> Operation:
    """An operator whose frequencies, if it has any, are those of the image."""
    if isinstance(operator, Matrix) and len(shape) == 1:
        return convolution(prefix, operator.matrix[..., None, None], bias, Geometry((1, 1)), "linear")
    if isinstance(operator, ResidualMap):
        weight, circular = _kernel(operator.weight, shape[0], image)
        return residual(prefix, weight, None if bias is None else operator.root * bias, image, circular)
    if isinstance(operator, SandwichFrequencies):
        outer, inner = (
            replace(with_dft(matrices, image), dft_rows=operator.dft_rows, dft_columns=operator.dft_columns)
            for matrices in (operator.outer, operator.inner)
        )
        inside, _ = _kernel(inner, shape[0], image)
        return sandwich(prefix, _kernel(outer, len(inside), image)[0], inside, bias, image, True)
    if isinstance(operator, SandwichProduct):
        return sandwich(prefix, operator.outer[..., None, None], operator.inner[..., None, None], bias, image, False)
    weight, circular = _kernel(operator, shape[0], image)
    padding = weight.shape[2] // 2, weight.shape[3] // 2
    return convolution(prefix, weight, bias, Geometry(image, (1, 1), padding, circular))


def _kernel(operator: Operator, channels: int, image: Size) -> tuple[Tensor, bool]:
    """The kernel of a convolution of images of so many channels, and whether they are circles."""
    if isinstance(operator, Grouped) and isinstance(operator.operator, Kernel):
        kernels = operator.operator
        return dense_kernel(kernels.kernel.flatten(0, 1), operator.groups), kernels.padding_mode == "circular"
    if isinstance(operator, Matrix):
        return operator.matrix[..., None, None], False
    if isinstance(operator, Kernel):
        return operator.kernel, operator.padding_mode == "circular"
    if not isinstance(operator, Frequencies | DilatedFrequencies):
        raise Unlisted(f"its operator is a {type(operator).__name__}")
    impulses = torch.zeros(channels, channels, *image, dtype=torch.float64)
    impulses[torch.arange(channels), torch.arange(channels), 0, 0] = 1
    answers = operator.map(Tensor.double).apply(impulses, None).transpose(0, 1)
    for dim, side in ((2, image[0]), (3, image[1])):
        taps = side + 1 - side % 2  # an odd number; where the last is the first again, it is zero
        places = taps // 2 - torch.arange(taps)
        answers = answers.index_select(dim, places % side)
        if taps > side:
            answers.narrow(dim, side, 1).zero_()
    return (answers / UNIT).round() * UNIT, True


def dense_kernel(weight: Tensor, groups: int) -> Tensor:
    """The dense kernel of a grouped one."""
    parts = weight.unflatten(0, (groups, -1)).movedim(0, -1)  # (out, in, y, x, group)
    return torch.diag_embed(parts, dim1=0, dim2=2).flatten(2, 3).flatten(0, 1)
