"""Base of the linear layers, with the signature of `nn.Linear`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.arguments import (
    check_device_and_dtype,
    check_numbers,
    check_positive,
    check_type,
    warn_of_squares,
)
from onelip.layers.blocks.reshape import FirstChannels, ZeroChannelPad
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operator_cache import remember_pass, repeated_pass
from onelip.layers.operators import Frame, Operator
from onelip.linalg.fourier import Size
from onelip.proofs.bounded import proven_bound
from onelip.proofs.layer_bound import LayerBound


@dataclass(frozen=True)
class FeatureFrame(Frame):
    """Zero features before the core of a linear layer, and a cut behind it."""

    core_in: int
    kept: int

    def apply(self, x: Tensor, operator: Operator, bias: Tensor | None) -> Tensor:
        """The whole layer."""
        y = operator.apply(self.core_input(x), bias)
        return (y[..., : self.kept] if y.shape[-1] > self.kept else y).contiguous()

    def core_input(self, x: Tensor) -> Tensor:
        """The features with the zeros that a square core asks for."""
        missing = self.core_in - x.shape[-1]
        return F.pad(x, (0, missing)) if missing else x

    def core_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """As many features as the core has."""
        return *input_shape[:-1], self.core_in


class LipschitzLinear(LipschitzLayer):
    """Base of the linear layers: `Linear(in_features, out_features, bias=True)` as in torch.

    Examples:
        >>> import torch
        >>> from onelip.layers import CayleyLinear
        >>> CayleyLinear(8, 8)(torch.rand(2, 8)).shape  # a subclass
        torch.Size([2, 8])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        init: str = "auto",
        lipschitz: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """As `nn.Linear`.

        Args:
            in_features: size of the last dimension of the input.
            out_features: size of the last dimension of the output.
            bias: whether a bias is added.
            init: the start: "auto" is the method's own, else a name of `initialisations`.
            lipschitz: the constant that is guaranteed.
            device: where the parameters are.
            dtype: type of the parameters.
        """
        check_positive(self, in_features=in_features, out_features=out_features)
        check_device_and_dtype(self, device, dtype)
        super().__init__(in_features, out_features, init, lipschitz)
        self.in_features, self.out_features = in_features, out_features
        self._frame = FeatureFrame(self.core_in, out_features)
        self.create_tensors(bias, {"device": device, "dtype": dtype})
        self.reset_parameters()
        warn_of_squares(self, in_features * out_features)

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """(core_out, core_in)."""
        return {"weight": (self.core_out, self.core_in), "bias": (self.core_out,)}

    def apply_to(self, x: Tensor, operator: Operator) -> Tensor:
        """The input transformation on (..., in_features)."""
        return self._frame.apply(x, operator, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        if (last := repeated_pass(self, x)) is not None:
            return self.apply_to(x, last.operator)
        check_numbers(self, x)
        if not x.dim() or x.shape[-1] != self.in_features:
            raise InvalidInputError(
                f"{type(self).__name__} expects {self.in_features} features in the last dimension, got {tuple(x.shape)}"
            )
        check_type(self, x, next(self.parameters()))
        operator = self.operator()
        remember_pass(self, x, operator)
        return self.apply_to(x, operator)

    def lipschitz_bound(self, input_size: Size | None = None) -> float:
        """Proven upper bound of the Lipschitz constant in evaluation mode, rounding included."""
        return proven_bound(self, (self.in_features,)).lipschitz

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """The bound of the core in its frame."""
        return self._frame.bound(input_shape, self.deployed(), self.bias)

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """Plain modules with the same outputs and no parameter transformation."""
        core = self.fuse_core(self._detached(None), None)
        before = [ZeroChannelPad(self.core_in, dim=-1)] if self.core_in > self.in_features else []
        after = [FirstChannels(self.out_features, dim=-1)] if self.core_out > self.out_features else []
        return nn.Sequential(*before, core, *after) if before or after else core

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return text if self.lipschitz == 1 else f"{text}, lipschitz={self.lipschitz}"
