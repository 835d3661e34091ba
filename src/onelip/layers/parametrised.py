"""What convolutions and linear layers share: options, channel counts of a core, starts, fusing.

A method whose core must be square gets zero channels appended to its input or its last channels cut off.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Real
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.contract import Request
from onelip.layers.fused import FusedLayer
from onelip.layers.initialisation import identity_or_orthogonal, initialise
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operators import Operator
from onelip.linalg.devices import is_cpu
from onelip.linalg.fourier import Size


class LayerOptions(TypedDict, total=False):
    """Arguments that every layer takes by name only."""

    init: str
    lipschitz: float
    device: torch.device | str | None
    dtype: torch.dtype | None


WIDEST_TOGETHER = 256
"""Channels up to which equal layers are transformed together on CPUs. From 512 on they take 0.79 to 1.0 of the time one
by one (BCOP, ONI, Bjorck, ECO, Stiefel: 0.9; two threads)."""


class ParametrisedLayer(LipschitzLayer):
    """What convolutions and linear layers share: options, channel counts of the core, fusing."""

    buffer_names: ClassVar[tuple[str, ...]] = ()
    """Which of `tensor_shapes` are buffers, not learnt."""

    groups: int = 1

    weight: nn.Parameter

    def __init__(self, in_core: int, out_core: int, init: str, lipschitz: float) -> None:
        super().__init__()
        positive = isinstance(lipschitz, Real) and 0 < lipschitz < math.inf
        if not positive or (lipschitz != 1 and not self.traits.has_guarantee):
            allowed = "a positive number" if self.traits.has_guarantee else "1: it guarantees no constant"
            raise InvalidInputError(f"{type(self).__name__}: lipschitz={lipschitz!r} is not supported, use {allowed}")
        self.lipschitz = float(lipschitz)
        known = self.traits.initialisations
        if init not in known:
            raise InvalidInputError(f"{type(self).__name__}: init={init!r} is not known, use one of {', '.join(known)}")
        self.init = init
        width = max(in_core, out_core)
        self.core_in = width if self.traits.square else in_core
        self.core_out = width if self.traits.square else out_core

    @abstractmethod
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters and buffers of one group by name, in the order of the layer's parameters.

        Of `weight`, the unconstrained matrix or kernel of the core, and `bias`, and of what else the method has.
        """

    def create_tensors(self, bias: bool, factory: dict[str, Any]) -> None:
        """Register every parameter and buffer, uninitialised: those of groups stacked, their biases in a row."""
        for name, shape in self.tensor_shapes().items():
            lead = () if self.groups == 1 else (self.groups,)
            whole = (self.groups * shape[0],) if name == "bias" else (*lead, *shape)
            if name in self.buffer_names:
                self.register_buffer(name, torch.empty(whole, **factory))
            else:
                given = bias or name != "bias"
                self.register_parameter(name, nn.Parameter(torch.empty(whole, **factory)) if given else None)

    def transforms_separately(self, request: Request) -> bool:
        """Wide layers on CPUs, whose products occupy all threads by themselves."""
        is_wide = min(self.core_in, self.core_out) > WIDEST_TOGETHER
        return is_wide and self.traits.transforms_parameters and is_cpu(self.weight.device)

    def reset_parameters(self) -> None:
        """Draw new values for the parameters of every group."""
        tensors = {name: t.detach() for name, t in (*self._parameters.items(), *self._buffers.items()) if t is not None}
        if self.groups == 1:
            self.initialise(tensors)
            return
        for group in range(self.groups):
            parts = {name: t.chunk(self.groups)[group] if name == "bias" else t[group] for name, t in tensors.items()}
            self.initialise(parts)

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """Draw the tensors of one group as `init` says; the bias starts at zero, unless `init` is "published"."""
        if self.init == "published":
            self.initialise_as_published(tensors)
            return
        self.initialise_weight(tensors["weight"], self.default_init() if self.init == "auto" else self.init)
        if "bias" in tensors:
            nn.init.zeros_(tensors["bias"])

    def initialise_weight(self, weight: Tensor, name: str) -> None:
        """Draw the weight by the name of a start."""
        initialise(weight, name)

    def initialise_as_published(self, tensors: dict[str, Tensor]) -> None:
        """Weights and biases as the comparison paper's code starts them: here those of AOL and LOT."""
        self.initialise_weight(tensors["weight"], identity_or_orthogonal(self.core_out, self.core_in))
        if "bias" in tensors:
            nn.init.zeros_(tensors["bias"])

    def default_init(self) -> str:
        """What init="auto" means for this layer: the comparison paper's choice for AOL and LOT.

        Torch's own start contracts by 0.58 per layer; a deep network of such layers learns next to nothing at first.
        """
        return identity_or_orthogonal(self.core_out, self.core_in)

    def fuse_core(self, transformed: Operator, size: Size | None) -> nn.Module:
        """Module that equals `transformed.apply`, a plain one of torch where there is one.

        `size` is that of the image which the core sees, None where it was not told.
        """
        return FusedLayer(transformed, self.bias)

    def _detached(self, input_size: Size | None, *, cheapest_form: bool = True) -> Operator:
        """Detached copies of the transformed parameters, for the size given or the only one evaluated so far."""
        only_size = input_size is None and len(self._cache) == 1
        size = next(iter(self._cache)) if only_size else self.core_size(input_size)
        with torch.no_grad():
            transformed = self.build(self.tensors_to_transform(), Request(size), cheapest_form=cheapest_form)
        return transformed.map(lambda tensor: tensor.detach().clone())
