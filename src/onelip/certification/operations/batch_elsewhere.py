"""Operations on values whose batch is a dimension of its own, but not the first: time first, stacks of an ensemble.

The batch is brought to the front, the operation does what it does there, and the batch goes back to where it was among
the dimensions that are left.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from onelip.certification.operations.batch_inside import permuted_batch
from onelip.certification.operations.reductions import ValuesOnly
from onelip.certification.operations.registered import Call, Operation, counted
from onelip.certification.traced import Traced, all_traced, mapped

_ENTRYWISE = {
    *("add", "sub", "rsub", "mul", "div"),
    *("relu", "relu6", "tanh", "sigmoid", "softplus", "gelu", "silu", "elu", "selu", "celu", "leaky_relu", "hardtanh"),
    *("hardsigmoid", "hardswish", "mish", "softsign", "logsigmoid", "abs", "neg", "clamp", "clamp_max"),
    *("exp", "log", "sqrt", "square", "pow", "sin", "cos", "erf", "atan", "maximum", "minimum", "dropout"),
}
_ALONG = {
    *("sum", "mean", "amax", "amin", "max", "min", "median", "softmax", "log_softmax", "logsumexp", "cumsum", "std"),
    *("flip", "sort", "topk", "unbind", "chunk", "split", "select", "narrow", "exported_slice"),
}
_AXES = ("dim", "dims", "axis")


def with_batch_first(call: Call, operation: Operation, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """The result of an operation, or None where it is none of those that are known to allow this."""
    values = list(all_traced((arguments, keywords)))
    first, places = values[0], {_batch_dim(x) for x in values}
    place = next(iter(places))
    if operation.in_place or place is None or len(places) > 1 or len({x.dim() for x in values}) > 1:
        return None
    gone: list[int] = []
    if operation.rule == "getitem":
        found = _behind_batch(arguments[1], place)
        if found is None:
            return None
        arguments, gone = (first, found), [dim for dim, part in enumerate(found[1:]) if isinstance(part, int)]
    elif operation.rule in _ALONG:
        renamed = _renamed(call, operation, arguments, keywords, place)
        if renamed is None:
            return None
        arguments, keywords, gone = renamed
    elif not _acts_behind(operation.rule, first.dim() - place - 1, arguments, keywords):
        return None
    order = [place, *(dim for dim in range(first.dim()) if dim != place)]

    def to_front(part: Any) -> Any:
        return permuted_batch(call, part, order) if isinstance(part, Traced) else part

    def back(part: Any) -> Any:
        if isinstance(part, ValuesOnly):
            return ValuesOnly(back(part.values), part.indices)
        now = place - (sum(dim < place for dim in gone) if part.dim() < first.dim() else 0)
        return permuted_batch(call, part, [*range(1, now + 1), 0, *range(now + 1, part.dim())]) if now else part

    found = operation.apply(call.tracer, mapped(tuple(arguments), to_front), mapped(keywords, to_front))
    return mapped(found, back)


def _batch_dim(x: Traced) -> int | None:
    """Which dimension is the batch, if one is."""
    if x.before is None:
        return None
    dims = (dim for dim in range(x.dim()) if math.prod(x.shape[:dim]) == x.before and x.shape[dim] == x.tracer.batch)
    return next(dims, None)


def _acts_behind(name: str, behind: int, arguments: Sequence[Any], keywords: dict[str, Any]) -> bool:
    """Whether each entry is computed from itself, or from the last dimension, and constants lie behind the batch."""
    constants = [part for part in (*arguments, *keywords.values()) if isinstance(part, Tensor)]
    constants = [part for part in constants if not isinstance(part, Traced)]
    if name in ("linear", "matmul"):  # x W, with one matrix, or two values that are matrices behind the batch
        matrices = 1 + (len(list(all_traced((arguments, keywords)))) > 1)
        return behind >= matrices and all(part.dim() <= 2 for part in constants)
    return name in _ENTRYWISE and all(part.dim() <= behind for part in constants)


def _behind_batch(index: Any, place: int) -> tuple[Any, ...] | None:
    """An index of numbers and ranges, for the value with the batch in front."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(isinstance(part, int | slice) and not isinstance(part, bool) for part in parts):
        return None
    if len(parts) > place:
        whole = parts.pop(place)
        if whole != slice(None):
            return None
    return slice(None), *parts


def _renamed(
    call: Call, operation: Operation, arguments: Sequence[Any], keywords: dict[str, Any], place: int
) -> tuple[tuple[Any, ...], dict[str, Any], list[int]] | None:
    """The arguments with dimensions as they are when the batch is in front, and which these were."""
    handler, x = operation.handler, arguments[0]
    leading: tuple[Any, ...] = (call,)
    if isinstance(handler, functools.partial) and len(handler.args) == 2:  # a rule of `register_bound`
        handler, leading = handler.args[1], ()
    signature = inspect.signature(handler)
    dtype = {name: keywords[name] for name in keywords if name == "dtype" and name not in signature.parameters}
    try:
        bound = signature.bind(*leading, *arguments, **{name: keywords[name] for name in keywords if name not in dtype})
    except TypeError as error:
        raise call.refused(f"these arguments are not supported ({error})") from None
    named = [name for name in _AXES if name in bound.arguments and not _is_missing(bound.arguments[name])]
    parameter = signature.parameters.get("dim")
    if not named and parameter is not None and isinstance(parameter.default, int):
        bound.apply_defaults()
        named = ["dim"]
    if len(named) != 1 or not isinstance(x, Traced):
        return None
    given, gone = bound.arguments[named[0]], []

    def moved(part: Any) -> Any:
        if isinstance(part, bool) or not hasattr(part, "__index__"):  # x.sum(0, True)
            return part
        gone.append(counted(part, x.dim()))
        return 0 if gone[-1] == place else gone[-1] + (gone[-1] < place)

    bound.arguments[named[0]] = mapped(given, moved)
    return bound.args[len(leading) :], {**bound.kwargs, **dtype}, gone


def _is_missing(dims: Any) -> bool:
    return dims is None or isinstance(dims, Tensor) or dims == ()
