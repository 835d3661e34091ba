"""What a model is called with while it is converted: an example, inputs of a shape, or of a shape that it accepts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from onelip.certification.call_arguments import Arguments, example_of
from onelip.errors import InvalidInputError

BATCH = 11
"""Inputs that are drawn for a shape: as many as code has little else of, so that what comes of the batch is known."""

_SIDES = tuple(dict.fromkeys((32, 28, 16, 64, 224, 8, 128, 96, 12, 256, 48, 24, 299, 384, *range(1, 64))))
"""Sides of the images that are tried where no shape is given: the usual ones, then those that a last layer may need."""


def example_for(model: nn.Module, given: Any) -> Arguments:
    """What the model is called with, from shapes without the batch or from tensors."""
    given = getattr(model, "input_shape", None) if given is None else given
    if given is None:
        return _accepted(model)
    call = _drawn(model, given)
    if (error := _failure(model, call)) is not None:
        raise InvalidInputError(f"{type(model).__name__} fails on inputs of {shapes_of(call)}: {error}")
    return call


def shapes_of(call: Arguments) -> str:
    """The shapes of a call's floating tensors without the batch, in words."""
    return " and ".join("x".join(map(str, shape)) for shape in call.shapes)


def _drawn(model: nn.Module, given: Any) -> Arguments:
    """An example as it is, in the model's type, or random numbers of these shapes."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    draw, example = torch.Generator().manual_seed(0), example_of(given)
    if example is not None:
        return example.split(BATCH)[0].on(weight.device).to(weight.dtype)
    call = Arguments.zeros(given, BATCH, weight.device)
    return Arguments(call.form, tuple(torch.rand(t.shape, generator=draw).to(weight) for t in call.tensors))


def _accepted(model: nn.Module) -> Arguments:
    """Inputs of the first shape that the model runs on."""
    first = ""
    for shape in _shapes(model):
        call = _drawn(model, shape)
        error = _failure(model, call)
        if error is None:
            return call
        if error.startswith("its forward"):
            raise InvalidInputError(f"{type(model).__name__} cannot be converted: {error}")
        first = first or error
    raise InvalidInputError(
        f"{type(model).__name__} runs on none of the inputs that were tried; give convert(..., input_shape=...), such "
        f"as (3, 32, 32), or an example ({first})"
    )


def _shapes(model: nn.Module) -> Iterator[tuple[int, ...]]:
    for module in model.modules():
        size: Any = module
        if isinstance(module, (nn.Linear, nn.Bilinear)):
            width = module.in_features if isinstance(module, nn.Linear) else module.in1_features
            yield from ((width,), (16, width), (4, 4, width))
        elif isinstance(module, (nn.Conv1d, nn.ConvTranspose1d)):
            yield from ((size.in_channels, side) for side in _SIDES)
        elif isinstance(module, (nn.Conv3d, nn.ConvTranspose3d)):
            yield from ((size.in_channels, side, side, side) for side in (16, 8, 32, 64, *range(1, 13)))
        elif isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
            yield (16, size.input_size if isinstance(module, nn.RNNBase) else size.embed_dim)
        elif isinstance(module, nn.LayerNorm):
            yield from (tuple(module.normalized_shape), (16, *module.normalized_shape))
        elif (channels := _channels(module)) is not None:
            yield from ((channels, side, side) for side in _SIDES)
            yield from ((channels,), (channels, 16))
        else:
            continue
        break
    yield from ((3, 32, 32), (3, 224, 224), (1, 28, 28), (16,), (16, 16))


def _channels(module: Any) -> int | None:
    for name in ("in_channels", "num_features", "num_channels"):
        if isinstance(getattr(module, name, None), int) and next(module.children(), None) is None:
            return getattr(module, name)
    return None


def _failure(model: nn.Module, call: Arguments) -> str | None:
    """Why the model does not run, on one line."""
    try:
        with torch.no_grad():
            copy.deepcopy(call).call(model)
    except Exception as error:  # whatever a forward raises
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:120]}"
    return None
