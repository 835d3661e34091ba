"""The model in float64 with exactly the weights that are deployed.

Not a model converted to float64: that would transform its parameters anew and compute another function. The
transformed parameters of every layer, kept from float32, are cast, which is exact, and the input transformation of
the layer runs on them in float64.
"""

from __future__ import annotations

import copy

from torch import Tensor, nn

from onelip.layers.base import LipschitzLayer


class DeployedInFloat64(nn.Module):
    """The input transformation of a layer in float64, with the transformed parameters of the layer itself."""

    def __init__(self, source: LipschitzLayer) -> None:
        super().__init__()
        # In a tuple: the source stays the caller's, it is no part of this module's state.
        self._source = (source,)
        self.copied = copy.deepcopy(source).double().eval()

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, computed in float64."""
        (source,) = self._source
        size = (int(x.shape[-2]), int(x.shape[-1])) if hasattr(source, "in_channels") else None
        transformed = source.transformed(size).map(Tensor.double)
        return self.copied.apply_to(x, transformed)


def in_float64(module: nn.Module) -> nn.Module:
    """A float64 copy of a module in evaluation mode, whose layers use the deployed transformed parameters."""
    if isinstance(module, LipschitzLayer):
        return DeployedInFloat64(module)
    twin = copy.deepcopy(module).double()
    for name, child in module.named_modules(remove_duplicate=False):
        if isinstance(child, LipschitzLayer):
            twin.set_submodule(name, DeployedInFloat64(child))
    return twin
