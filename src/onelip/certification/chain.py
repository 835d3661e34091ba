"""A model as a chain of layers: sequences are taken apart, each layer is met with the shape it sees."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from onelip.certification.precision import full_precision
from onelip.certification.registry import Shape, check_no_hooks, layer_bound, output_at_zero, unknown
from onelip.linalg.layer_bound import LayerBound, compose
from onelip.models import ConvNet


class Step(NamedTuple):
    """One layer of a chain: its name in the model, what is proven about it, and its shapes without the batch."""

    path: str
    module: nn.Module
    bound: LayerBound
    input_shape: Shape
    output_shape: Shape


def evaluation_model(model: nn.Module) -> nn.Module:
    """The model itself if it is in evaluation mode throughout, else a copy that is.

    Certificates speak of what a model computes in evaluation mode, and never change the mode of the caller's model.
    """
    return copy.deepcopy(model).eval() if any(module.training for module in model.modules()) else model


def chain_steps(model: nn.Module, input_shape: Shape) -> list[Step]:
    """All layers of a model in evaluation mode in order, with their bounds."""
    steps: list[Step] = []
    shape = tuple(int(length) for length in input_shape)
    with full_precision(), torch.no_grad():
        for path, module in _layers(model, ""):
            bound = layer_bound(module, shape, path)
            output_shape = tuple(output_at_zero(module, shape).shape[1:])
            steps.append(Step(path, module, bound, shape, output_shape))
            shape = output_shape
    return steps


def chain_bound(model: nn.Module, input_shape: Shape) -> LayerBound:
    """What is proven about a whole chain, taken as one layer."""
    return compose(*(step.bound for step in chain_steps(model, input_shape)))


def _layers(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    if not isinstance(module, nn.Sequential):
        yield path, module
        return
    check_no_hooks(module, path)
    # In evaluation, where all of this takes place, the forward of a ConvNet is that of a Sequential.
    if type(module).forward not in (nn.Sequential.forward, ConvNet.forward) or "forward" in vars(module):
        raise unknown(module, path, "it is a Sequential with a forward of its own")
    for name, child in module.named_children():
        yield from _layers(child, f"{path}.{name}" if path else name)
