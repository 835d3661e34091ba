"""Counted multiply-accumulates: parameter and input transformation apart, and of a whole training step.

Counts depend on shapes only, so networks of any size are counted on meta tensors, in seconds and without memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from onelip.bench.measurement.networks import training_step
from onelip.bench.measurement.operator_macs import FLOPS_PER_MAC, FORMULAS, needs_formula
from onelip.errors import OnelipError
from onelip.layers.layer import LipschitzLayer


class UncountedOperatorError(OnelipError):
    """An operator that does real work has no formula; counting it as nothing would be a false result."""


class MacCounter(FlopCounterMode):
    """Context that counts multiply-accumulates of all operators, in custom autograd functions as well."""

    def __init__(self) -> None:
        super().__init__(display=False, custom_mapping=FORMULAS)

    @property
    def total(self) -> int:
        """Real multiply-accumulates so far."""
        return self.get_total_flops() // FLOPS_PER_MAC

    def _count_flops(self, func_packet: Any, out: Any, args: Any, kwargs: Any) -> Any:
        if func_packet not in self.flop_registry and needs_formula(func_packet):
            raise UncountedOperatorError(f"there is no formula for the operations of {func_packet}")
        return super()._count_flops(func_packet, out, args, kwargs)


def count_macs(action: Callable[[], object]) -> int:
    """Multiply-accumulates of one call."""
    with MacCounter() as counter:
        action()
    return counter.total


@dataclass(frozen=True)
class LayerMacs:
    """Counted multiply-accumulates of the forward pass of layers."""

    parameters: int
    input: int


@dataclass(frozen=True)
class NetworkMacs:
    """Multiply-accumulates of one batch: both forward transformations, and forward plus backward pass.

    `inference` is the forward pass with cached parameter transformations.
    """

    parameters: int
    input: int
    training_step: int
    inference: int


def count_layer(layer: LipschitzLayer, x: Tensor) -> LayerMacs:
    """Count `transform` and `apply_to` of one layer on one input, in the mode (training or not) it is in."""
    size = (x.shape[-2], x.shape[-1]) if x.dim() == 4 else None
    with MacCounter() as of_parameters:
        transformed = layer.transform(size)
    return LayerMacs(of_parameters.total, count_macs(lambda: layer.apply_to(x, transformed)))


def count_network(model: nn.Module, x: Tensor, labels: Tensor) -> NetworkMacs:
    """Count a whole network, which ends in evaluation mode."""
    layers = _count_layers(model, x)
    step = count_macs(training_step(model, x, labels))
    model.eval()
    with torch.no_grad():
        model(x)  # fills the caches
        inference = count_macs(lambda: model(x))
    return NetworkMacs(layers.parameters, layers.input, step, inference)


def _count_layers(model: nn.Module, x: Tensor) -> LayerMacs:
    """Sum over the layers with a parameter transformation, each on the input that it gets in the network.

    A network without such layers, the reference, is input transformation alone.
    """
    layers = [module for module in model.modules() if isinstance(module, LipschitzLayer)]
    if not layers:
        return LayerMacs(0, count_macs(lambda: model(x)))
    counts: dict[nn.Module, LayerMacs] = {}

    def count(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, LipschitzLayer)
        counts[layer] = count_layer(layer, inputs[0])

    hooks = [layer.register_forward_pre_hook(count) for layer in layers]
    try:
        model(x)
    finally:
        for hook in hooks:
            hook.remove()
    if len(counts) != len(layers):
        raise UncountedOperatorError(f"{len(layers) - len(counts)} of {len(layers)} layers were not called")
    return LayerMacs(sum(c.parameters for c in counts.values()), sum(c.input for c in counts.values()))
