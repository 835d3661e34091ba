"""A method's transformation as a parametrization of torch: the weight of an ordinary layer, constrained where it is.

    parametrize(nn.Linear(64, 64), "bjorck")            # its weight has orthonormal rows or columns from now on
    parametrize(attention, "aol", "in_proj_weight")     # any matrix of any module

The transformation of a matrix, or of a kernel whose bound does not depend on the image, is a function of the weight
alone. The layer keeps its class, and `onelip.certify` proves the weight that it then has: for zero padding, or circular
padding that repeats nothing, the norm is at most 1. A stride keeps some of the outputs, and a transposed convolution is
the adjoint of the convolution with its kernel, so the same holds for them. Kernels do not become orthogonal so; those
of onelip's layers do, with every stride.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from onelip.errors import InvalidInputError
from onelip.layers.layer import LipschitzLayer
from onelip.layers.methods.stiefel import OnManifold
from onelip.layers.registry import MethodInfo
from onelip.linalg.convolution import PaddingMode

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)


class ConstrainedWeight(nn.Module):
    """The map from a free weight to one of norm at most 1; `groups` parts of it are transformed alike."""

    def __init__(self, layer: LipschitzLayer, groups: int | None) -> None:
        super().__init__()
        self._layer = (layer,)  # in a tuple: its own weight is no parameter of the model
        self.groups = groups

    def forward(self, weight: Tensor) -> Tensor:
        """The constrained weight, in the shape of the free one."""
        (layer,) = self._layer
        layer.training = self.training
        kernel = weight
        if self.groups is not None:
            kernel = kernel.unflatten(0, (self.groups, -1))
            kernel = kernel.unsqueeze(-2) if weight.dim() == 3 else kernel
        operator = layer.build({"weight": kernel}, layer.request())
        (found,) = operator.tensors().values()
        if self.groups is not None:
            found = found[..., -kernel.shape[-2] :, -kernel.shape[-1] :]  # an even kernel got zeros in front
        return found.reshape(weight.shape)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The weight that `module.weight = ...` and a start write down: the transformation projects it."""
        return weight


def constrain(module: nn.Module, info: MethodInfo, name: str) -> None:
    """Register the transformation of a method for one parameter of a module."""
    weight = getattr(module, name, None)
    if not isinstance(weight, nn.Parameter):
        raise InvalidInputError(f"{type(module).__name__} has no parameter {name!r} that is free to be constrained")
    if isinstance(module, _CONVOLUTIONS) and name == "weight":
        register_parametrization(module, name, _for_kernel(info, module, weight))
        return
    if weight.dim() != 2:
        raise InvalidInputError(
            f"{type(module).__name__}.{name} has the shape {tuple(weight.shape)}: a matrix can be constrained, or the "
            "kernel of nn.Conv1d, nn.Conv2d and their transposes"
        )
    layer = info.linear_layer(weight.shape[1], weight.shape[0], bias=False, device="meta")
    register_parametrization(module, name, ConstrainedWeight(_checked(layer, info, "matrix"), None))


def _for_kernel(info: MethodInfo, module: Any, weight: Tensor) -> ConstrainedWeight:
    modes: dict[str, PaddingMode] = {"zeros": "zeros", "circular": "circular"}
    if module.padding_mode not in modes:
        raise InvalidInputError(f"padding_mode={module.padding_mode!r} repeats pixels, use 'zeros' or 'circular'")
    outputs, inputs, *taps = weight.shape
    sides = (1, *taps)[-2:]
    layer = info.conv(inputs, outputs // module.groups, (sides[0], sides[1]), bias=False, device="meta")
    return ConstrainedWeight(_checked(layer, info, "kernel"), module.groups)


def _checked(layer: LipschitzLayer, info: MethodInfo, kind: str) -> LipschitzLayer:
    """A layer whose transformation is a function of one weight of torch's shape, and of nothing else."""
    on_manifold = isinstance(layer, OnManifold)  # whose optimiser does half of the work
    if (
        not layer.traits.keeps_directions
        or on_manifold
        or layer.size_dependent
        or [name for name, _ in layer.named_parameters()] != ["weight"]
    ):
        allowed = "aol, bcop, bjorck, cholesky, lot, oni or spectral" if kind == "matrix" else "aol, bjorck or oni"
        raise InvalidInputError(f"{info.key} does not transform a {kind} alone, use {allowed}, or its own layer")
    return layer
