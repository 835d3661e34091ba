"""Values to strict JSON and back, and the name that a configuration gives to its run.

JSON has no NaN and no infinity, but a diverged loss is a result worth keeping. A non-finite float is written
as `{"$nonfinite": "nan"}` (or "inf", "-inf"): valid JSON for every reader, and never mistaken for a string.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, NoReturn

from onelip.errors import InvalidInputError

_NONFINITE = "$nonfinite"
_NONFINITE_VALUES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_DEEPEST = 50
_HASH_DIGITS = 12  # 48 bits: a million runs collide with probability 0.2 %, and a collision is detected


def to_plain(value: Any, where: str = "config") -> Any:
    """Dataclasses, enums, paths and tuples to dicts, lists, strings and numbers; anything else is refused."""
    if isinstance(value, enum.Enum):
        return to_plain(value.value, where)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)  # numpy.float64 is a float too, but prints differently
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, (list, tuple)):
        return [to_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or isinstance(key, enum.Enum) or key == _NONFINITE:
                raise InvalidInputError(f"{where} has the key {key!r}; keys must be text and not {_NONFINITE!r}")
        return {key: to_plain(item, f"{where}.{key}") for key, item in value.items()}
    raise InvalidInputError(
        f"{where} is a {type(value).__name__}, which a record cannot hold; allowed: None, bool, int, float, "
        "str, path, enum, list, tuple, dict with text keys, dataclass"
    )


def dump_json(value: Any, *, indent: int | None = 2, where: str = "value") -> str:
    """Strictly valid JSON text of any value that `to_plain` accepts."""
    return json.dumps(_mapped(to_plain(value, where), _encode), allow_nan=False, indent=indent)


def parse_json(text: str) -> Any:
    """The value that `dump_json` wrote; ValueError for text that is not strict JSON, or nested beyond reason."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_decode_object)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    level = [value]
    for _ in range(_DEEPEST):  # what json can read may still be too deep for whoever walks through it
        inner = [node.values() if isinstance(node, dict) else node for node in level if isinstance(node, (dict, list))]
        level = list(itertools.chain.from_iterable(inner))
    if level:
        raise ValueError(f"nested too deep, more than {_DEEPEST} levels")
    return value


def canonical_json(value: Any) -> str:
    """One text per configuration: sorted keys, no spaces, and 1, 1.0 and -0.0 versus 0 written alike.

    Other floats are written with the shortest digits that give the same double back, as Python always does.
    """

    def leaf(value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else _encode(value)

    plain = _mapped(to_plain(value), leaf)
    return json.dumps(plain, allow_nan=False, sort_keys=True, separators=(",", ":"))


def run_name(kind: str, config: Any) -> str:
    """Folder name of a run: a readable prefix, and the hash of its kind and configuration."""
    plain = to_plain(config)
    if not isinstance(plain, dict):
        raise InvalidInputError(f"a configuration is a dataclass or a dict, not a {type(config).__name__}")
    digest = hashlib.sha256(canonical_json({"kind": kind, "config": plain}).encode()).hexdigest()[:_HASH_DIGITS]
    network = plain["network"] if isinstance(plain.get("network"), dict) else {}
    size = f"w{network['width']}" if network.get("width") is not None else network.get("size")
    words = [kind, network.get("method"), size, network.get("dataset"), plain.get("budget")]
    if plain.get("seed") is not None:
        words.append(f"s{plain['seed']}")
    prefix = "-".join(re.sub(r"[^A-Za-z0-9.]+", "", word)[:16] for word in words if isinstance(word, str))
    return f"{prefix.lstrip('.')}-{digest}"


def looks_like_run_name(name: str) -> bool:
    """Whether a folder name ends as `run_name` ends them."""
    return re.fullmatch(rf".+-[0-9a-f]{{{_HASH_DIGITS}}}", name) is not None


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_mapped(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: _mapped(item, leaf) for key, item in value.items()}
    return leaf(value)


def _encode(value: Any) -> Any:
    return {_NONFINITE: str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _decode_object(pairs: list[tuple[str, Any]]) -> Any:
    value = dict(pairs)
    if len(value) < len(pairs):  # of which readers take the first, or the last
        raise ValueError("an object has a key twice")
    if _NONFINITE not in value:
        return value
    text = value[_NONFINITE]
    if len(value) != 1 or text not in _NONFINITE_VALUES:
        raise ValueError(f"{_NONFINITE} must stand alone and be one of {', '.join(_NONFINITE_VALUES)}")
    return _NONFINITE_VALUES[text]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
