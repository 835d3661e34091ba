"""Plain values from a file to a dataclass, by its annotations: what does not fit is named by file and field.

Files travel between people and versions, so every value is checked before anything is built from it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from onelip.errors import InvalidInputError

_Kind = TypeVar("_Kind")
_hints = functools.cache(functools.partial(get_type_hints, include_extras=True))


class Check(NamedTuple):
    """What a value must be beside its type: `Annotated[float, Check(math.isfinite, "a finite number")]`."""

    holds: Callable[[Any], bool]
    wanted: str


def read_dataclass(kind: type[_Kind], values: object, where: str, *, is_open: bool = False) -> _Kind:
    """An instance of a dataclass from a dict that has exactly its fields.

    One that is open may have others, and lack those that have a default; so may all that is in it.
    `where` begins all messages: the file and the field that holds the dict, such as "record.json: config.network".
    """
    if not isinstance(values, dict):
        raise InvalidInputError(f"{where} is {_shown(values)}, not an object with fields")
    fields = [field for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
    names = [field.name for field in fields]
    optional = [
        field.name
        for field in fields
        if is_open and (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
    ]
    if missing := [name for name in names if name not in values and name not in optional]:
        raise InvalidInputError(f"{where} has no {', '.join(missing)}")
    if is_open:
        names = [name for name in names if name in values]
    elif unknown := [str(name)[:40] for name in values if name not in names]:
        raise InvalidInputError(f"{where} has unknown fields: {', '.join(unknown[:5])}")
    hints = _hints(kind)
    arguments = {name: _checked(values[name], hints[name], f"{where}.{name}", is_open) for name in names}
    try:
        return kind(**arguments)
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from error


def _checked(value: Any, hint: Any, where: str, is_open: bool) -> Any:
    """The value as the annotation wants it: plain types, unions, literals, enums, lists, dicts, dataclasses."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        value = _checked(value, arguments[0], where, is_open)
        for rule in arguments[1:]:  # a check, or a function that brings the value into its form
            if not isinstance(rule, Check):
                value = rule(value)
            elif not rule.holds(value):
                raise InvalidInputError(f"{where} is {_shown(value)}, not {rule.wanted}")
        return value
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return None
        rest = [argument for argument in arguments if argument is not types.NoneType]
        if len(rest) == 1:
            return _checked(value, rest[0], where, is_open)
        hint = tuple(rest)
    elif origin is Literal or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        allowed = arguments if origin is Literal else [member.value for member in hint]
        if isinstance(value, str) and value in allowed:
            return value if origin is Literal else hint(value)
        raise InvalidInputError(f"{where} is {_shown(value)}; known: {', '.join(map(str, allowed))}")
    elif origin in (list, dict, tuple):
        if isinstance(value, dict if origin is dict else list):  # JSON has no tuples
            item_hint = arguments[0] if origin is tuple else arguments[-1]  # tuple[str, ...]
            items = enumerate(value) if isinstance(value, list) else value.items()
            read = [(key, _checked(item, item_hint, f"{where}.{str(key)[:40]}", is_open)) for key, item in items]
            return dict(read) if origin is dict else origin(item for _, item in read)
        hint = origin
    elif dataclasses.is_dataclass(hint):
        return read_dataclass(hint, value, where, is_open=is_open)  # type: ignore[arg-type]
    elif hint is float and type(value) is int and abs(value) < 1 << 1023:  # larger ones overflow
        return float(value)
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    wanted = " or ".join(one.__name__ for one in (hint if isinstance(hint, tuple) else (hint,)))
    raise InvalidInputError(f"{where} is {_shown(value)}, not a value of the type {wanted}")


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, (str, float, bool, type(None))) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
