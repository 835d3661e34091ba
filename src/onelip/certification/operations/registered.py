"""Which calls of torch have a bound: functions, methods and operators, each known by what it is, not by what it is
called.

`@operation("relu")` registers torch.relu, F.relu, Tensor.relu, their in-place forms and the operator of an exported
program, wherever they exist. The handler gets the call and its arguments as they were passed, traced values among them.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import CallSite, Entrywise, Fact, Moved, Range, Shape, exactly
from onelip.certification.operations.refused import refusal
from onelip.certification.ranges import filled, unchanged
from onelip.certification.traced import Comparison, Traced, all_traced, mapped, nested
from onelip.errors import UnknownLipschitzConstant
from onelip.proofs.layer_bound import LayerBound, Rounding

if TYPE_CHECKING:
    from onelip.certification.tracing import Tracer

Handler = Callable[..., Any]
Limits = Callable[[Sequence[Range]], Range]


class RuleError(Exception):
    """A rule of onelip failed at a call that torch itself carries out: a bug of onelip, not of the model."""


@dataclass(frozen=True)
class Operation:
    """A handler, and whether this form of the call overwrites its first argument."""

    name: str
    handler: Handler
    in_place: bool

    @property
    def rule(self) -> str:
        """The first name that its handler was registered by: "mul" for "multiply"."""
        return _RULES.get(self.handler, self.name)

    def apply(self, tracer: Tracer, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Record the call."""
        in_place = bool(keywords.pop("inplace", False)) or self.in_place
        call = Call(tracer, tracer.place(self.name))
        arguments, keywords = mapped((arguments, keywords), _pythons_own)
        if keywords.pop("out", None) is not None:  # some of torch's own functions pass on None
            raise call.refused("out= writes to a tensor in place; use the form that returns its result")
        try:
            bound = inspect.signature(self.handler).bind(call, *arguments, **keywords)
        except TypeError as error:
            raise call.refused(f"these arguments of {self.name} are not supported ({error})") from None
        result = self._found(call, bound, arguments, keywords)
        if not in_place:
            return result
        target = arguments[0]
        both = isinstance(target, Traced) and isinstance(result, Traced)
        if not both or (result.shape, result.before) != (target.shape, target.before):  # y.t_() moves the batch
            raise call.refused("it writes to a tensor in place; use the form that returns its result")
        return tracer.overwrite(target, result)

    def _found(self, call: Call, bound: inspect.BoundArguments, arguments: Sequence[Any], keywords: Any) -> Any:
        """What the rule says, or a second opinion about what it refuses."""
        before, refused, result = call.tracer.refusal, None, None
        try:
            wanted = [name for name, part in bound.signature.parameters.items() if part.annotation == "Traced"]
            if any(not isinstance(bound.arguments[name], Traced) for name in wanted):
                others = [name for name, part in bound.arguments.items() if next(all_traced(part), None) is not None]
                raise call.refused(f"its {', '.join(others)} must not depend on the input")
            if self.name not in ("where", "masked_fill") and any(
                isinstance(part, Comparison) for part in nested((arguments, keywords))
            ):
                raise call.refused(refusal("gt", ""))
            result = self.handler(*bound.args, **bound.kwargs)
        except UnknownLipschitzConstant as error:
            refused = error
            call.tracer.refusal = before
        for opinion in _SECOND_OPINIONS:
            found = opinion(call, self.rule, arguments, keywords, result, refused)
            if found is not None and found is not result:
                return found
        if refused is not None:
            call.tracer.refusal = before or refused
            raise refused
        return result


def _pythons_own(value: Any) -> Any:
    """A number of NumPy as one of Python, which rules and torch take alike."""
    return value.item() if isinstance(value, numpy.generic) else value


_OPERATIONS: dict[Any, Operation] = {}
_BY_NAME: dict[str, Handler] = {}
_INSIDE: dict[str, Handler] = {}
_RULES: dict[Handler, str] = {}
_SECOND_OPINIONS: list[Callable[..., Any]] = []
NN: Any = getattr(torch._C, "_nn")  # noqa: B009 - compiled, unknown to type checkers
_NAMESPACES = (torch, F, NN, torch.Tensor, torch.special, torch.linalg)


def register_operation(function: Any, found: Operation) -> None:
    """What is known of one function."""
    _OPERATIONS[function] = found


def operation(*names: str, only: Sequence[Any] = ()) -> Callable[[Handler], Handler]:
    """Register a handler for every function and method of these names, or only for the functions given."""

    def register(handler: Handler) -> Handler:
        _RULES[handler] = names[0].strip("_")
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


_AXES = ("dim", "dims", "dimension", "source", "destination")


def register_function(
    finish: Callable[[Call, Traced, Callable[[Tensor], Any]], Any],
    function: Callable[..., Any],
    *names: str,
    only: Sequence[Any] = (),
) -> None:
    """Register what a function of a tensor and of constants is: `finish(call, x, run)` has its result for run(x).

    Of its parameters the first is the input, and those in `_AXES` name dimensions that must not be the batch.
    """
    own = inspect.signature(function)
    first, *others = own.parameters.values()
    axes = [parameter.name for parameter in others if parameter.name in _AXES]

    def handler(call: Call, input: Any, *arguments: Any, **keywords: Any) -> Any:
        bound = own.bind(input, *arguments, **keywords)
        bound.apply_defaults()
        x, given = call.traced(bound.arguments.pop(first.name)), bound.arguments
        for name, value in given.items():
            given[name] = call.constant(value, "which entries it takes must not depend on the input")
        for axis in axes:
            chosen = call.dims(x, given[axis])
            given[axis] = chosen if isinstance(given[axis], tuple | list) else chosen[0]
        return finish(call, x, functools.partial(function, **given))

    call = inspect.Parameter("call", inspect.Parameter.POSITIONAL_ONLY)
    handler.__signature__ = own.replace(parameters=[call, first, *others])  # type: ignore[attr-defined]
    operation(*names, only=only)(handler)


def second_opinion(opinion: Callable[..., Any]) -> Callable[..., Any]:
    """Register what is asked about every call: `opinion(call, name, arguments, keywords, result, refused)`.

    The name is that of the rule. It returns another result, the same, or None.
    """
    _SECOND_OPINIONS.append(opinion)
    return opinion


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

    def dim(self, x: Traced, dim: Any) -> int:
        """A dimension counted from the front, which must not be the batch."""
        found = counted(dim, x.dim())
        if found == 0:
            raise self.refused("it acts along dimension 0, which is the batch: inputs must be mapped one by one")
        return found

    def dims(self, x: Traced, dims: Any) -> list[int]:
        """Several of them; None would be all, the batch too."""
        given = integers(() if dims is None or isinstance(dims, bool) else dims)  # x.std(True) is one of all
        if not given:
            raise self.refused("it acts along all dimensions, the batch among them; name the others")
        return [self.dim(x, dim) for dim in given]

    def images(self, value: Any, axes: int, why: str = _OWN_INPUT) -> Traced:
        """The argument, which has to be a traced batch of images with so many axes and channels."""
        x = self.traced(value, why)
        if x.dim() != axes + 2:
            raise self.refused(f"it needs inputs (batch, channels, ...) with {axes} more dimensions")
        return x

    def unary(self, x: Traced, value: Tensor, bound: LayerBound, *facts: Fact, limits: Limits | None = None) -> Traced:
        """One input, a bound like a layer's; `limits` says where the values are."""
        result = self.tracer.add_unary(self.place, x, value, bound, facts=facts)
        result.node.limits = limits
        return result

    def entrywise(self, x: Traced, value: Tensor, bound: LayerBound, limits: Limits | None = None) -> Traced:
        """A function of each entry."""
        return self.unary(x, value, bound, Entrywise(), limits=limits)

    def chosen(self, x: Traced, value: Tensor, constant: float = 1.0) -> Traced:
        """Some of the entries: which ones may depend on the input."""
        return self.unary(x, value, LayerBound(constant, 0.0, exactly), limits=unchanged)

    def moved(
        self,
        x: Traced,
        value: Tensor,
        index: Callable[[Tensor], Tensor] | None = None,
        *,
        copies: bool = False,
        view: bool = True,
        rounding: Rounding = exactly,
        fill: float | None = None,
    ) -> Traced:
        """Entries are moved, dropped, copied (`copies`) or put beside constants, which alone may be rounded.

        `fill` is what all constants are, if that is known.

        `index` does the same to one input of the shape (1, ...), None where entries keep their order. A `view` may
        share its memory with x.
        """
        shape = x.shape_without_batch()
        indices = moved_indices(shape, index)
        constant = 1.0
        if copies:
            if x.node.norm is None:  # a convolution may turn out to be one of the value before it was padded
                x.node.norm = x.norms()
            found = indices(0)
            constant = root(int(torch.bincount(found[found >= 0], minlength=1).amax()))
        limits = None if fill is None else filled(indices, fill)
        facts = (Moved(indices),)
        return self.add([(x, constant)], value, rounding, facts=facts, shares_memory=view, limits=limits)

    def reshaped(self, x: Traced, value: Tensor) -> Traced:
        """Entries in their order, perhaps with more or fewer rows for each input: (batch * rows, ...)."""
        tracer = self.tracer
        if value.dim() and value.shape[0] == tracer.batch:
            return self.moved(x, value)
        batch, before = tracer.batch // tracer.rows, (tracer.batch, tracer.rows)
        if not value.dim() or not value.numel() or value.shape[0] % batch:
            raise self.refused("it mixes the inputs of a batch: their number must divide the first dimension")
        tracer.batch, tracer.rows = value.shape[0], value.shape[0] // batch
        try:
            one = moved_indices(tuple(value.shape[1:]), None)
            return self.add([(x, 1.0)], value, exactly, facts=(Moved(one),), shares_memory=True)
        finally:
            tracer.batch, tracer.rows = before

    def same_type(self, dtype: Any) -> None:
        """A `dtype=` argument must name the type of the program."""
        if dtype not in (None, self.tracer.dtype):
            raise self.refused(f"it converts {self.tracer.dtype} to {dtype}; keep one type throughout")

    def add(
        self,
        inputs: Sequence[tuple[Traced, float]],
        value: Tensor,
        rounding: Rounding | None,
        *,
        limits: Limits | None = None,
        **options: Any,
    ) -> Traced:
        """A node, as `Tracer.add` has it; `limits` says where its values are."""
        result = self.tracer.add(self.place, inputs, value, rounding, **options)
        result.node.limits = limits
        return result

    def proven(
        self, operation: str, geometry: tuple[Any, ...], operands: Mapping[str, Tensor | None], make: Callable[[], Any]
    ) -> Any:
        """A proof about constant tensors, made once for an operation, its geometry and its operands by their roles."""
        present = {role: tensor for role, tensor in operands.items() if tensor is not None}
        return self.tracer.proofs.once((operation, geometry, *present), list(present.values()), make)


def moved_indices(shape: Shape, index: Callable[[Tensor], Tensor] | None) -> Callable[[int], Tensor]:
    """For each entry of the output, the number of the entry it came from, -1 for a constant."""

    @functools.cache
    def indices(_: int) -> Tensor:
        numbers = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64).reshape(1, *shape)
        moved = numbers if index is None else index(numbers)
        return moved.flatten().long() - 1

    return indices


def side_by_side(call: Call, parts: Sequence[Traced], value: Tensor, rounding: Rounding = exactly) -> Traced:
    """Values of one shape, of which each entry of the result is in at most one and zero in the others."""
    together = torch.arange(entries(value))
    return call.add([(part, 1.0) for part in parts], value, rounding, facts=(Moved(lambda _: together),), joint=True)


def root(count: int) -> float:
    """sqrt(count), rounded upwards, and 1 for what is nowhere."""
    return 1.0 if count <= 1 else math.sqrt(count) * (1 + 2.0**-50)


def integers(value: Any) -> list[int]:
    """Dimensions, starts, steps, sizes or places, one or several: of Python, NumPy or in tensors without dimensions."""
    one = hasattr(value, "__index__") and not (isinstance(value, Tensor) and value.dim())
    return [operator.index(number) for number in ([value] if one else value)]


def counted(place: Any, length: int) -> int:
    """A place counted from the front, as torch counts: from -length to length - 1."""
    (number,) = integers(place)
    if not -length <= number < length:
        raise IndexError(f"{number} is out of range: expected {-length} to {length - 1}")
    return number % length


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """A number for all axes, or one for each."""
    numbers = integers(value)
    return tuple(numbers) * (axes if len(numbers) == 1 else 1)


def entries(value: Tensor | Traced) -> int:
    """Entries of one input of the batch."""
    return math.prod(value.shape[1:])
