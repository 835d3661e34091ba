"""How the comparison paper's code uses each method: what ConvNet(setting="published") and variant="published" take.

The library finds this file through `onelip.layers.registry`. Starts of the weights are the layers' own
init="published"; docs/reproduction.md has the rest of what differs.

ECO as published, which is not 1-Lipschitz: kept to show the defect that the comparison paper reports.

Five skew-symmetric matrices, divided by their norms, have truncated exponentials E_0, ..., E_4; each belongs to a
frequency f of the 3 x 3 torus and to -f, so that the kernel, the inverse DFT of them, is real. On images of n pixels a
side it is dilated by d = ceil(n / 3) and wraps around after n pixels. That is orthogonal where 3 divides n; else the
torus of n pixels is not the one of 3 d pixels that the matrices belong to, and norms are 1.7 on 8 x 8 images. (The
published code also computes in half precision, and estimates the norms; neither is imitated.)

Sandwich as published: kept to show the defects that the comparison paper reports.

l(x) = sqrt(2) A^T Psi relu(sqrt(2) Psi^(-1) B x + b) with Psi = diag(exp(psi)), and weights of torch's default start.
That start leaves 0.6 of the gradient's norm in every layer, so that it vanishes towards the input of a deep network.
exp(psi) or its inverse overflows for |psi| > 88 in float32, and the product is then not a number. The scale alpha of
the weight is that of its start and never trained in convolutions; so it is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.layers.contract import Request, Traits
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS, initialise, initialise_bias_uniformly
from onelip.layers.kernel_layers import MatrixLinear
from onelip.layers.layer import LipschitzLayer
from onelip.layers.methods.sandwich import SandwichConv2d, SandwichLinear
from onelip.layers.operators import Kernel, Matrix, Operator, register_operator_bound
from onelip.layers.registry import PublishedSetting
from onelip.proofs.layer_bound import LayerBound

TERMS = {True: 5, False: 10}
"""Terms of the exponential after the identity, in training and in evaluation."""

_MATRIX_AT = (0, 1, 1, 2, 3, 4, 2, 4, 3)
"""Which of the five matrices belongs to each of the 3 x 3 frequencies: that of f is that of -f."""


def truncated_exponentials(weight: Tensor, terms: int) -> Tensor:
    """sum_(j <= terms) A^j / j! for A = (W - W^T) / ||W - W^T||."""
    skew = weight - weight.mT
    unit = skew / torch.linalg.matrix_norm(skew, 2, keepdim=True).clamp_min(torch.finfo(skew.dtype).tiny)
    total = power = torch.eye(weight.shape[-1], dtype=weight.dtype, device=weight.device).expand_as(weight)
    for index in range(1, terms + 1):
        power = power @ unit / index
        total = total + power
    return total


@dataclass(frozen=True)
class PublishedDilation(Operator):
    """The 3 x 3 kernel dilated by ceil(n / 3), on the torus of the image."""

    kernel: Tensor

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Circular padding by the dilation, one convolution."""
        rows, columns = (-(-side // 3) for side in x.shape[-2:])
        padded = F.pad(x, (columns, columns, rows, rows), mode="circular")
        return F.conv2d(padded, self.kernel, bias, dilation=(rows, columns))


@register_operator_bound(PublishedDilation)
def _no_dilation_bound(operator: PublishedDilation, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
    raise UnknownLipschitzConstant(
        "the published ECO is orthogonal only where 3 divides the image and has norms of up to 1.75 elsewhere; "
        'use variant="own"'
    )


class _PublishedECO(LipschitzLayer):
    traits = Traits(initialisations=PUBLISHED_INITIALISATIONS, square=True, has_guarantee=False)

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """Normal entries of deviation c^(-1/2), and a bias as torch's default for c inputs, whatever `init`."""
        nn.init.normal_(tensors["weight"], std=self.core_out**-0.5)
        initialise_bias_uniformly(tensors.get("bias"), self.core_out)


class PublishedECOConv2d(_PublishedECO, LipschitzConv2d):
    """The published convolution, for kernels of 3 x 3 and 1 x 1, circular."""

    padding_modes = ("circular",)

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Five square matrices, or one."""
        if self.kernel_size not in ((1, 1), (3, 3)):
            raise InvalidInputError(f"the published ECO has kernels of 3 x 3 and 1 x 1, not {self.kernel_size}")
        count = 1 if self.kernel_size == (1, 1) else 5
        return {**super().tensor_shapes(), "weight": (count, self.core_out, self.core_out)}

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Operator:
        """The inverse DFT of the exponentials."""
        matrices = truncated_exponentials(tensors["weight"], TERMS[request.training])
        if self.kernel_size == (1, 1):
            return Kernel(matrices[..., 0, :, :, None, None], self.padding_mode)
        spectrum = matrices[..., _MATRIX_AT, :, :].movedim(-3, -1).unflatten(-1, (3, 3))
        return PublishedDilation(torch.fft.ifft2(spectrum).real)


class PublishedECOLinear(_PublishedECO, MatrixLinear):
    """A truncated exponential."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """The exponential."""
        return Matrix(truncated_exponentials(tensors["weight"], TERMS[request.training]))


@dataclass(frozen=True)
class Unproven(Operator):
    """An operator of which nothing is stated."""

    operator: Operator

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """That of the operator."""
        return self.operator.apply(x, bias)


@register_operator_bound(Unproven)
def _no_bound(operator: Unproven, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
    raise UnknownLipschitzConstant(
        'the published Sandwich multiplies by exp(psi) and exp(-psi), which overflow; use variant="own"'
    )


class PublishedSandwich(LipschitzLayer):
    """What the published layers have beyond onelip's own, in front of which this class stands."""

    traits = Traits(initialisations=PUBLISHED_INITIALISATIONS, has_guarantee=False, has_torch_taps=False)

    buffer_names = ("alpha",)

    psi: nn.Parameter
    alpha: Tensor

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """psi and alpha too."""
        return {**super().tensor_shapes(), "psi": (self.core_out,), "alpha": ()}

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """Torch's default for a layer of in + out inputs, whatever `init`."""
        by_output = tensors["weight"].transpose(0, 1)  # onelip stores the transpose of the published weight
        initialise(by_output, "uniform")
        initialise_bias_uniformly(tensors.get("bias"), by_output[0].numel())
        nn.init.zeros_(tensors["psi"])
        tensors["alpha"].copy_(tensors["weight"].norm())

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Unproven:
        """Onelip's own for alpha W / ||W||, with Psi in between."""
        weight, alpha = tensors["weight"], tensors["alpha"]
        norm = torch.linalg.vector_norm(weight, dim=tuple(range(alpha.dim(), weight.dim())))
        scale = (alpha / norm).reshape(alpha.shape + (1,) * (weight.dim() - alpha.dim()))
        return Unproven(super().transform_tensors({**tensors, "weight": scale * weight}, request))


class PublishedSandwichConv2d(PublishedSandwich, SandwichConv2d):
    """The published convolution; no certificate is made of it."""


class PublishedSandwichLinear(PublishedSandwich, SandwichLinear):
    """The published linear layer; no certificate is made of it."""


PUBLISHED_SETTINGS: Mapping[str, PublishedSetting] = {
    "aol": PublishedSetting(padding_mode="circular", ends_init="orthogonal"),
    "bcop": PublishedSetting(padding_mode="circular"),
    "cayley": PublishedSetting(padding_mode="circular"),
    "cpl": PublishedSetting(padding_mode="zeros"),
    "eco": PublishedSetting(padding_mode="circular", conv=PublishedECOConv2d, linear_layer=PublishedECOLinear),
    "lot": PublishedSetting(padding_mode="zeros"),
    "sandwich": PublishedSetting(
        padding_mode="circular", conv=PublishedSandwichConv2d, linear_layer=PublishedSandwichLinear
    ),
    "sll": PublishedSetting(padding_mode="zeros"),
    "soc": PublishedSetting(padding_mode="zeros", options={"angle": 2.1, "train_terms": 5}),
}
"""By the key of the method; the paper's code has no others."""
