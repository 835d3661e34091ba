"""How others take part in what layers make of their parameters: sources hand out operators, hooks stand around them.

In training a layer makes an operator in every pass. Inside of `serving` it asks a source first, which may hand out an
operator that it has, ask for another one, or make those of several layers at once. `onelip.fast` has such sources and
fills `HOOKS`; nothing here imports it, and without it every layer makes its operators by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from onelip.layers.contract import Request
from onelip.layers.operators import Operator
from onelip.linalg.fourier import Size

if TYPE_CHECKING:
    from onelip.layers.layer import LipschitzLayer

Source = Callable[["LipschitzLayer", Request, Callable[[Request], Operator]], Operator]
"""From a layer, what it asks for, and what would answer without this source, to an operator."""

Build = Callable[[slice, Sequence[Mapping[str, Tensor]]], list[Operator]]
"""From equal layers, by their places among those that are built, and their tensors to their operators."""


def _alone(layers: Iterable[tuple[LipschitzLayer, Size | None]]) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass
class Hooks:
    """Functions that stand around the making of operators.

    Attributes:
        around: each may put another `Build` in the place of one, for a request and tensors; the last is the outermost.
        together: what is done inside a pass in training that applies these layers to cores of these sizes.
    """

    around: Sequence[Callable[[Build, Request, Sequence[Mapping[str, Tensor]]], Build]] = ()
    together: Callable[[Iterable[tuple[LipschitzLayer, Size | None]]], AbstractContextManager[None]] = _alone


HOOKS = Hooks()


@contextmanager
def serving(layers: Sequence[LipschitzLayer], source: Source, *, outermost: bool = False) -> Iterator[None]:
    """Inside the block these layers ask the source in training, behind the sources that they ask already, or first."""
    for layer in layers:
        layer.sources = (source, *layer.sources) if outermost else (*layer.sources, source)
    try:
        yield
    finally:
        for layer in layers:
            layer.sources = tuple(other for other in layer.sources if other is not source)


def operators_of(
    layers: Sequence[LipschitzLayer], request: Request, build: Build | None = None, *, keep_states: bool = False
) -> list[Operator]:
    """The operators of equal layers, made as one batch or by `build`; states move on where they are to be kept."""
    tensors, first = [layer.tensors_to_transform() for layer in layers], layers[0]

    def as_one(places: slice, tensors: Sequence[Mapping[str, Tensor]]) -> list[Operator]:
        if len(tensors) == 1:
            return [first.build(tensors[0], request)]
        return first.build(stacked(tensors), request).unstacked()

    build = build or as_one
    for around in HOOKS.around if first.traits.transforms_parameters else ():
        build = around(build, request, tensors)
    operators = build(slice(0, len(layers)), tensors)
    if keep_states:
        first.keep_states(layers, operators)
    return operators


def stacked(tensors: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors to transform of equal layers, with these as first dimension."""
    return {name: torch.stack([each[name] for each in tensors]) for name in tensors[0]}
