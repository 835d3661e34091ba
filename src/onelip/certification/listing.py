"""A model as a list of plain operations on one vector, for certificate files.

The model is fused and run once, and the calls that it makes are followed. Where a value is used twice, the vector holds
it twice: x + f(x) copies x, applies f to the second half, and adds the halves. Nothing here need be trusted: the scores
of the list are compared with those of the model.
"""

from __future__ import annotations

import copy
import functools
import operator
from typing import Any

import torch
from torch import Tensor, fx, nn

from onelip.certification.call_arguments import Arguments
from onelip.certification.listed_layers import Listing, add_layer, add_pool, is_layer, moved_index
from onelip.certification.listed_operators import Unlisted
from onelip.certification.plain_operations import ABS, RELU, Operation, combination
from onelip.certification.recording import name_of, record
from onelip.errors import InvalidInputError
from onelip.fusing import fuse
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.methods.eco import ECOConv2d
from onelip.layers.residual import ResidualConv2d

_SUMS = {"add": (1.0, 1.0), "radd": (1.0, 1.0), "sub": (1.0, -1.0), "rsub": (-1.0, 1.0)}
"""What the first and the second argument are multiplied by."""

_PRODUCTS, _QUOTIENTS = ("mul", "rmul"), ("div", "truediv")
_ENTRYWISE = {"relu": RELU, "abs": ABS}
_POOLS: dict[str, Any] = {
    "max_pool2d": nn.MaxPool2d,
    "avg_pool2d": nn.AvgPool2d,
    "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d,
}


def plain_operations(model: nn.Module, shape: tuple[int, ...]) -> list[Operation]:
    """The operations of the fused model, in their order."""
    kernels = copy.deepcopy(model)
    for layer in kernels.modules():
        if isinstance(layer, ResidualConv2d):
            # To a kernel also where frequencies are cheaper.
            layer.choose_form = lambda operator, request: operator
        if isinstance(layer, ECOConv2d) and layer.padding_mode == "zeros":
            # to matrices, whose norm is 1 on their torus
            layer.fuse_core = functools.partial(LipschitzConv2d.fuse_core, layer)  # pyright: ignore
    fused = nn.Sequential(fuse(kernels, shape).cpu().eval().requires_grad_(False))
    dtype = next((tensor.dtype for tensor in fused.parameters()), torch.float32)
    x = torch.zeros((1, *shape), dtype=dtype)
    graph, _ = record(fused, Arguments.of(x), is_layer)
    following = _Following(fused, graph)
    with torch.no_grad():
        value = following.follow(x)
    if value.dim() != 2:
        raise InvalidInputError(
            f"certificate files need a model that returns (batch, classes), not {value.dim()} dimensions"
        )
    return following.listing.found


class _Following:
    """The walk along the calls. Values are those of one input of zeros: their shapes matter."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        self.model, self.graph, self.listing = model, graph, Listing()
        self.known: dict[fx.Node, Any] = {}
        self.live: list[fx.Node] = []
        """The values in the vector, in their order."""
        self.scales: dict[fx.Node, float] = {}
        """Of values that only sums read: a x + b y is one operation, whose bound is smaller than that of three."""

    def follow(self, x: Tensor) -> Tensor:
        """List all calls, and return what the last one does."""
        order = {node: place for place, node in enumerate(self.graph.nodes)}
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self.known[node], self.live = x, [node]
            elif node.op == "get_attr":
                self.known[node] = operator.attrgetter(str(node.target))(self.model)
            elif node.op == "output":
                (result,) = node.args
                if result not in self.live:
                    raise InvalidInputError("certificate files need a model that returns one tensor")
                self._arrange([result])  # pyright: ignore[reportArgumentType]
                self.listing.prefix()
                return self.known[result]  # pyright: ignore[reportArgumentType]
            else:
                kept = [other for other in self.live if any(order[user] > order[node] for user in other.users)]
                try:
                    self._call(node, kept)
                except Unlisted as why:
                    self._refuse(node, str(why))
        raise AssertionError("a graph ends with its output")

    def _call(self, node: fx.Node, kept: list[fx.Node]) -> None:
        """One call: its operands come last, behind what is kept for later, and its result takes their place."""
        operands: list[fx.Node] = []
        fx.map_arg((node.args, node.kwargs), lambda part: operands.append(part) if part in self.live else None)
        again = functools.partial(self._again, node, tuple(self.live))
        value = self.known[node] = again(*(self.known[one] for one in operands))
        if not operands or not isinstance(value, Tensor | tuple | list):
            return
        if not isinstance(value, Tensor):
            raise Unlisted(f"it calls {name_of(node)}")
        self._arrange([*kept, *operands])
        self.listing.rest = sum(self.known[other].numel() for other in kept)
        tensors = [self.known[one] for one in operands]
        if node.op == "call_module":
            if len(node.args) != 1 or len(tensors) != 1 or node.kwargs or len(tensors[0]) != 1:
                raise Unlisted("it is called with more than one tensor (batch, ...)")
            add_layer(self.listing, self.model.get_submodule(str(node.target)), tensors[0])
        else:
            self._function(node, again, operands, tensors)
        self.listing.rest, self.live = 0, [*kept, node]

    def _again(self, node: fx.Node, live: tuple[fx.Node, ...], *operands: Tensor) -> Any:
        """The call with other operands."""
        given = iter(operands)
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda part: next(given) if part in live else self.known[part]
        )
        if node.op == "call_module":
            return self.model.get_submodule(str(node.target))(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]

    def _arrange(self, wanted: list[fx.Node]) -> None:
        """The values that are wanted, one behind the other."""
        places, length = dict[fx.Node, Tensor](), 0
        for node in self.live:
            places[node] = torch.arange(length, length + self.known[node].numel())
            length += self.known[node].numel()
        self.listing.move(torch.cat([places[node] for node in wanted]), length)

    def _function(self, node: fx.Node, again: Any, operands: list[fx.Node], tensors: list[Tensor]) -> None:
        """One function or method."""
        name, listing = name_of(node), self.listing
        length = sum(tensor.numel() for tensor in tensors)
        factors = self._factors(node, name, operands)
        to_sums = bool(node.users) and all(name_of(user) in _SUMS for user in node.users)
        if factors is not None and len(operands) == 1 and not factors[1] and to_sums:
            self.scales[node] = factors[0][0]
        elif factors is not None:
            listing.add(combination(listing.prefix(), factors[0], length // len(operands), factors[1]))
        elif name in _ENTRYWISE:
            listing.add(_ENTRYWISE[name])
        elif name in _POOLS and len(node.args) <= 4 and len(tensors[0]) == 1:
            add_pool(listing, _POOLS[name](*node.args[1:], **node.kwargs), tensors[0])
        elif (index := moved_index(again, tensors)) is not None:
            listing.move(index, length)
        else:
            raise Unlisted(f"it calls {name}")

    def _factors(self, node: fx.Node, name: str, operands: list[fx.Node]) -> tuple[list[float], float] | None:
        """The factors of a sum of the operands, and what is added; None if it is none."""
        if node.kwargs or len(node.args) != 2:
            return None
        first, second = node.args
        signs = _SUMS.get(name)
        if len(operands) == 2:
            same = self.known[operands[0]].shape == self.known[operands[1]].shape
            if signs is None or not same:
                return None
            return [sign * self.scales.get(one, 1.0) for sign, one in zip(signs, operands, strict=True)], 0.0
        own, scale = 0 if first in operands else 1, self.scales.get(operands[0], 1.0)
        number = self._number(first if own else second)
        if number is None:
            return None
        if signs is not None:
            return [signs[own] * scale], signs[1 - own] * number
        if name in _PRODUCTS:
            return [number], 0.0
        return ([1 / number], 0.0) if name in _QUOTIENTS and own == 0 and number else None

    def _number(self, part: Any) -> float | None:
        value = self.known[part] if isinstance(part, fx.Node) else part
        if isinstance(value, Tensor):
            return float(value) if value.dim() == 0 else None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def _refuse(self, node: fx.Node, why: str) -> None:
        path = str(node.target if node.op == "call_module" else node.meta.get("module", ""))
        kind = type(self.model.get_submodule(path)).__name__
        name = path.removeprefix("0").removeprefix(".")
        raise InvalidInputError(
            f"{name or 'the model'} ({kind}) is no plain operation: {why}; certificate files hold linear maps, "
            "convolutions, residual and sandwich layers, MaxMin, GroupSort, ReLU, Abs, pooling, sums, and what moves "
            "entries"
        ) from None
