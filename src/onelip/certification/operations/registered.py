"""Which calls of torch have a bound: functions, methods and operators, each known by what it is, not by what it is
called.

`@operation("relu")` registers torch.relu, F.relu, Tensor.relu, their in-place forms and the operator of an exported
program, wherever they exist. The handler gets the call and its arguments as they were passed, traced values among them.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import CallSite, Entrywise, Fact, Moved, Shape, exactly
from onelip.certification.traced import Traced
from onelip.errors import UnknownLipschitzConstant
from onelip.linalg.layer_bound import LayerBound, Rounding
from onelip.linalg.proven import batch_norm_bounds

if TYPE_CHECKING:
    from onelip.certification.tracing import Tracer

Handler = Callable[..., Any]


@dataclass(frozen=True)
class Operation:
    """A handler, and whether this form of the call overwrites its first argument."""

    name: str
    handler: Handler
    in_place: bool

    def apply(self, tracer: Tracer, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Record the call."""
        in_place = bool(keywords.pop("inplace", False)) or self.in_place
        call = Call(tracer, tracer.place(self.name))
        if keywords.get("out", self) is None:  # some of torch's own functions pass it on
            del keywords["out"]
        try:
            bound = inspect.signature(self.handler).bind(call, *arguments, **keywords)
        except TypeError as error:
            raise call.refused(f"these arguments of {self.name} are not supported ({error})") from None
        result = self.handler(*bound.args, **bound.kwargs)
        if not in_place:
            return result
        target = arguments[0]
        if not isinstance(target, Traced) or not isinstance(result, Traced) or result.shape != target.shape:
            raise call.refused("it writes to a tensor in place; use the form that returns its result")
        return tracer.overwrite(target, result)


_OPERATIONS: dict[Any, Operation] = {}
_BY_NAME: dict[str, Handler] = {}
_INSIDE: dict[str, Handler] = {}
NN: Any = getattr(torch._C, "_nn")  # noqa: B009 - compiled, unknown to type checkers
_NAMESPACES = (torch, F, NN, torch.Tensor, torch.special, torch.linalg)


def operation(*names: str, only: Sequence[Any] = ()) -> Callable[[Handler], Handler]:
    """Register a handler for every function and method of these names, or only for the functions given."""

    def register(handler: Handler) -> Handler:
        for function in only:
            _OPERATIONS[function] = Operation(names[0], handler, False)
        for name in () if only else names:
            _BY_NAME[name] = handler
            for namespace in _NAMESPACES:
                for suffix in ("", "_"):
                    function = getattr(namespace, name + suffix, None)
                    if callable(function):
                        in_place = suffix == "_" or name.startswith("__i")  # such as relu_ and __iadd__
                        plain = name.removeprefix("__i").strip("_")
                        _OPERATIONS[function] = Operation(plain, handler, in_place)
        return handler

    return register


def operation_on_axes(name: str) -> Callable[[Handler], Handler]:
    """Register a handler, which is told the number of axes, for images with one, two and three: "conv{}d"."""

    def register(handler: Handler) -> Handler:
        for axes in (1, 2, 3):
            operation(name.format(axes))(functools.partial(handler, axes=axes))
        return handler

    return register


def inside_operation(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for values whose batch is not their first dimension."""

    def register(handler: Handler) -> Handler:
        _INSIDE.update(dict.fromkeys(names, handler))
        return handler

    return register


def find_inside(operation: Operation) -> Operation | None:
    """The same operation for values whose batch is not their first dimension, if it is known."""
    handler = _INSIDE.get(operation.name)
    return None if handler is None or operation.in_place else Operation(operation.name, handler, False)


def find_operation(function: Any) -> Operation | None:
    """What is known of a function, if anything."""
    try:
        found = _OPERATIONS.get(function)
    except TypeError:
        return None
    if found is None and isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return _exported(function)
    return found


def known_handlers() -> set[Handler]:
    """Those of all operations, each of which the red team has to draw."""
    return {*_BY_NAME.values(), *_INSIDE.values(), *(operation.handler for operation in _OPERATIONS.values())}


def _exported(function: Any) -> Operation | None:
    """An operator of an exported program, aten::relu_ for instance."""
    packet = function.overloadpacket if isinstance(function, torch._ops.OpOverload) else function
    space, _, name = packet._qualified_op_name.partition("::")
    in_place = name.endswith("_") and not name.endswith("__")
    handler = _BY_NAME.get("exported_" + name.rstrip("_")) or _BY_NAME.get(name.rstrip("_") if in_place else name)
    return None if space != "aten" or handler is None else Operation(name.rstrip("_"), handler, in_place)


_OWN_INPUT = "its input must depend on the model's input, its numbers must not"


class Call:
    """One call that is being recorded: what handlers say about it goes into the graph from here."""

    def __init__(self, tracer: Tracer, place: CallSite) -> None:
        self.tracer, self.place = tracer, place

    def refused(self, why: str) -> UnknownLipschitzConstant:
        """The error for this call."""
        return self.tracer.refused(self.place, why)

    def traced(self, value: Any, why: str = _OWN_INPUT) -> Traced:
        """The argument, which has to be a traced value."""
        if not isinstance(value, Traced):
            raise self.refused(why)
        return value

    def constant(self, value: Any, why: str) -> Any:
        """The argument in float64, which must not depend on the input."""
        if isinstance(value, Traced):
            raise self.refused(why)
        return value.detach().double() if isinstance(value, Tensor) and value.is_floating_point() else value

    def dim(self, x: Traced, dim: int) -> int:
        """A dimension counted from the front, which must not be the batch."""
        found = dim % max(1, x.dim())
        if found == 0:
            raise self.refused("it acts along dimension 0, which is the batch: inputs must be mapped one by one")
        return found

    def dims(self, x: Traced, dims: int | Sequence[int] | None) -> list[int]:
        """Several of them; None would be all, the batch too."""
        if dims is None or (not isinstance(dims, int) and not len(dims)):
            raise self.refused("it acts along all dimensions, the batch among them; name the others")
        return [self.dim(x, dim) for dim in ([dims] if isinstance(dims, int) else dims)]

    def images(self, value: Any, axes: int, why: str = _OWN_INPUT) -> Traced:
        """The argument, which has to be a traced batch of images with so many axes and channels."""
        x = self.traced(value, why)
        if x.dim() != axes + 2:
            raise self.refused(f"it needs inputs (batch, channels, ...) with {axes} more dimensions")
        return x

    def unary(self, x: Traced, value: Tensor, bound: LayerBound, *facts: Fact) -> Traced:
        """One input, a bound like a layer's."""
        return self.tracer.add_unary(self.place, x, value, bound, facts=facts)

    def entrywise(self, x: Traced, value: Tensor, bound: LayerBound) -> Traced:
        """A function of each entry."""
        return self.unary(x, value, bound, Entrywise())

    def moved(
        self,
        x: Traced,
        value: Tensor,
        index: Callable[[Tensor], Tensor] | None = None,
        *,
        copies: bool = False,
        view: bool = True,
        rounding: Rounding = exactly,
    ) -> Traced:
        """Entries are moved, dropped, copied (`copies`) or put beside constants, which alone may be rounded.

        `index` does the same to one input of the shape (1, ...), None where entries keep their order. A `view` may
        share its memory with x.
        """
        shape = x.shape_without_batch()
        indices = moved_indices(shape, index)
        constant = 1.0
        if copies:
            if x.node.norm is None:  # a convolution may turn out to be one of the value before it was padded
                x.node.norm = batch_norm_bounds(x.value)
            found = indices(0)
            constant = root(int(torch.bincount(found[found >= 0], minlength=1).amax()))
        return self.add([(x, constant)], value, rounding, facts=(Moved(indices),), shares_memory=view)

    def same_type(self, dtype: Any) -> None:
        """A `dtype=` argument must name the type of the program."""
        if dtype not in (None, self.tracer.dtype):
            raise self.refused(f"it converts {self.tracer.dtype} to {dtype}; keep one type throughout")

    def add(
        self, inputs: Sequence[tuple[Traced, float]], value: Tensor, rounding: Rounding | None, **options: Any
    ) -> Traced:
        """A node, as `Tracer.add` has it."""
        return self.tracer.add(self.place, inputs, value, rounding, **options)

    def proven(self, key: Any, weights: Sequence[Tensor], make: Callable[[], Any]) -> Any:
        """A proof about constant tensors, made once."""
        return self.tracer.proofs.once((self.place.kind, key), weights, make)


def moved_indices(shape: Shape, index: Callable[[Tensor], Tensor] | None) -> Callable[[int], Tensor]:
    """For each entry of the output, the number of the entry it came from, -1 for a constant."""

    @functools.cache
    def indices(_: int) -> Tensor:
        numbers = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64).reshape(1, *shape)
        moved = numbers if index is None else index(numbers)
        return moved.flatten().long() - 1

    return indices


def root(count: int) -> float:
    """sqrt(count), rounded upwards, and 1 for what is nowhere."""
    return 1.0 if count <= 1 else math.sqrt(count) * (1 + 2.0**-50)


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """A number for all axes, or one for each."""
    numbers = (value,) if isinstance(value, int) else value
    return tuple(map(int, numbers)) * (axes if len(numbers) == 1 else 1)


def entries(value: Tensor | Traced) -> int:
    """Entries of one input of the batch."""
    return math.prod(value.shape[1:])
