"""One parameter transformation for all layers of a network that are alike.

Five convolutions of the same shape are five times the same sequence of small operations. `transform_tensors` takes a
leading dimension, so the parameters of such layers are stacked, transformed in one go and handed back: fewer and
larger operations, the same result up to the order of sums. A network does this for its layers in training:

    with stacked_transforms([(layer, (32, 32)) for layer in layers]):
        y = network(x)

On accelerators, where the number of operations counts rather than their size, narrow layers that differ in their
number of channels only are one batch too: the narrower ones get channels of zeros, which are cut off again.

On CPUs wide layers stay alone (`LipschitzLayer.transforms_separately`): a product of large matrices takes all threads
by itself, whereas a batch of five gives one of two threads three products and the other one two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.layers.contract import Request
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operator_sources import operators_of, serving, stacked
from onelip.layers.operators import Operator
from onelip.linalg.devices import is_cpu
from onelip.linalg.fourier import Size

WIDEST_PADDED = 64
"""Channels up to which layers of different widths are transformed together."""

Group = list[LipschitzLayer]


def stacked_transforms(layers: Iterable[tuple[LipschitzLayer, Size | None]]) -> AbstractContextManager[None]:
    """Transform these layers, given with the sizes of their inputs, for one forward pass inside the block.

    Layers in evaluation mode and frozen ones are left alone: they have their own cache.
    """
    return stacked_by_core_size([(layer, layer.core_size(size)) for layer, size in layers if layer.training])


@contextmanager
def stacked_by_core_size(layers: Iterable[tuple[LipschitzLayer, Size | None]]) -> Iterator[None]:
    """Transform these layers in training, given with the sizes that their cores act on, inside the block."""
    together: dict[Any, Group] = defaultdict(list)
    for layer, size in layers:
        if layer.is_frozen:
            continue
        computes = layer.traits.transforms_parameters or size is not None
        if computes and not layer.transforms_separately(layer.request(size)):
            together[size, _likeness(layer)].append(layer)
    families: dict[Any, list[Group]] = defaultdict(list)
    for (size, likeness), group in together.items():
        families[size, _family(group[0]) or likeness].append(group)
    with ExitStack() as blocks:
        for (size, _), groups in families.items():
            if sum(map(len, groups)) > 1:
                batch = _Batch(groups, groups[0][0].request(size))
                blocks.enter_context(serving(batch.layers, batch))
        yield


class _Batch:
    """The source of layers that are transformed as one when the first of them is applied.

    Not earlier, because the backward pass then reaches their transformation right after them: the gradients of all
    transformed parameters of a network never exist at once.
    """

    def __init__(self, groups: list[Group], request: Request) -> None:
        self.groups, self.request, self.with_gradients = groups, request, torch.is_grad_enabled()
        self.layers = [layer for group in groups for layer in group]
        self.operators: dict[LipschitzLayer, Operator] | None = None

    def __call__(self, layer: LipschitzLayer, request: Request, make: Callable[[Request], Operator]) -> Operator:
        """The operator of one of the layers, once; what the layer makes where it asks for another one."""
        if request != self.request:
            return make(request)
        if self.operators is None:
            self.operators = self._made()
        operator = self.operators.pop(layer, None)
        return make(request) if operator is None else operator

    def _made(self) -> dict[LipschitzLayer, Operator]:
        """The operators of all layers; none where parameters are on other machines."""
        if any(hasattr(parameter, "placements") for layer in self.layers for parameter in layer.parameters()):
            return {}  # a DTensor, by what it has: importing its class takes seconds
        with torch.set_grad_enabled(self.with_gradients):  # the first layer may be applied without, others with
            return dict(zip(self.layers, _operators_of_groups(self.groups, self.request), strict=True))


_OPTION_TYPES = (bool, int, float, str, tuple)
_WIDTHS = ("in_channels", "out_channels", "core_in", "core_out")
_NOT_OPTIONS = ("training", "sources")


def _likeness(layer: LipschitzLayer) -> Any:
    """Equal for layers whose parameters are transformed by the same function: class, options, shapes, device."""
    tensors = layer.tensors_to_transform()
    kinds = [(name, tuple(tensors[name].shape), tensors[name].dtype, tensors[name].device) for name in sorted(tensors)]
    return type(layer), _options(layer), tuple(kinds)


def _options(layer: LipschitzLayer, besides: Sequence[str] = ()) -> Any:
    options = {name: value for name, value in vars(layer).items() if isinstance(value, _OPTION_TYPES)}
    return tuple(sorted((name, value) for name, value in options.items() if name not in (*_NOT_OPTIONS, *besides)))


def _family(layer: LipschitzLayer) -> Any:
    """Equal for layers that may be one batch with channels of zeros appended, None for others."""
    if not layer.traits.zero_channels_stay_zero or not isinstance(layer, LipschitzConv2d):
        return None
    if layer.groups > 1 or layer.stride != (1, 1):
        return None
    narrow = max(layer.kernel_size) < layer.core_in == layer.core_out <= WIDEST_PADDED
    tensors = layer.tensors_to_transform()
    if not narrow or is_cpu(next(iter(tensors.values())).device):
        return None
    kinds = [(name, tensors[name].dim(), tensors[name].dtype, tensors[name].device) for name in sorted(tensors)]
    return type(layer), _options(layer, _WIDTHS), tuple(kinds)


def _operators_of_groups(groups: list[Group], request: Request) -> list[Operator]:
    """The operators of groups of equal layers, as one batch, also of several widths."""
    if len(groups) == 1:
        return operators_of(groups[0], request, keep_states=True)
    layers = [layer for group in groups for layer in group]
    numbers = [number for number, group in enumerate(groups) for _ in group]

    def build(places: slice, tensors: Sequence[Mapping[str, Tensor]]) -> list[Operator]:
        own: dict[int, list[Mapping[str, Tensor]]] = defaultdict(list)
        for number, named in zip(numbers[places], tensors, strict=True):
            own[number].append(named)
        widest = max((groups[number][0] for number in own), key=_width)
        stacks = [stacked(each) for each in own.values()]
        shapes = {name: max((stack[name].shape[1:] for stack in stacks), key=tuple) for name in stacks[0]}
        whole = {
            name: torch.cat([_padded_to(stack[name], shape) for stack in stacks]) for name, shape in shapes.items()
        }
        operators = widest.build(whole, request).unstacked()
        pairs = zip(operators, layers[places], strict=True)
        return [_cut(operator, _width(widest), _width(layer)) for operator, layer in pairs]

    return operators_of(layers, request, build)


def _width(layer: LipschitzLayer) -> int:
    assert isinstance(layer, LipschitzConv2d)
    return layer.core_in


def _padded_to(stack: Tensor, shape: torch.Size) -> Tensor:
    """Zeros behind every dimension but the first, up to this shape."""
    ends = [end for length, wanted in zip(stack.shape[:0:-1], shape[::-1], strict=True) for end in (0, wanted - length)]
    return F.pad(stack, ends) if any(ends) else stack


def _cut(operator: Operator, channels: int, own: int) -> Operator:
    """The operator without the channels that were appended."""

    def cut(tensor: Tensor) -> Tensor:
        for dim, length in enumerate(tensor.shape):
            if length == channels:
                tensor = tensor.narrow(dim, 0, own)
        return tensor

    return operator if own == channels else operator.map(cut)
