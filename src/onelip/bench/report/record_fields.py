"""Typed access to what a record holds: everything that is read from one goes through here and is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from onelip.bench.report.intervals import MedianTime
from onelip.bench.runs.specs import NetworkSpec
from onelip.bench.terminal import visible

_LONGEST_NAME = 80


class UnreadableRecordError(Exception):
    """A record lacks what the report needs, or holds something else; the message says what."""


class RecordFields:
    """A part of a record; `path` names it in messages. A value of the wrong kind raises `UnreadableRecordError`."""

    def __init__(self, tree: object, path: str = "") -> None:
        if not isinstance(tree, Mapping):
            raise UnreadableRecordError(f"{path} is {_described(tree)} in place of named values")
        self.tree: Mapping[str, Any] = tree
        self._path = path

    def part(self, name: str) -> RecordFields:
        """The part with this name."""
        return RecordFields(self.tree.get(name), self._named(name))

    def number(self, name: str) -> float:
        """A finite number."""
        value = self.tree.get(name)
        try:
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                return float(value)
        except OverflowError:
            value = "a huge number"
        raise UnreadableRecordError(f"{self._named(name)} is {_described(value)} in place of a number")

    def optional(self, name: str) -> float | None:
        """A finite number, or None if there is none or if it is NaN or infinite, as a training may end."""
        value = self.tree.get(name)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return None
        return self.number(name)

    def whole(self, name: str) -> int:
        """A whole number of at least 0."""
        value = self.number(name)
        if value < 0 or not value.is_integer():
            raise UnreadableRecordError(f"{self._named(name)} is {_described(value)} in place of a whole number")
        return int(value)

    def share(self, name: str) -> float | None:
        """A number from 0 to 1, or None as in `optional`."""
        value = self.optional(name)
        if value is not None and not 0 <= value <= 1:
            raise UnreadableRecordError(f"{self._named(name)} is {value:g} in place of a share from 0 to 1")
        return value

    def text(self, name: str) -> str:
        """A short text, with what cannot be printed written out."""
        value = self.tree.get(name)
        if not isinstance(value, str) or not value or len(value) > _LONGEST_NAME:
            described = f"a text of {len(value)} letters" if isinstance(value, str) else _described(value)
            raise UnreadableRecordError(f"{self._named(name)} is {described} in place of a name")
        return visible(value, 4 * _LONGEST_NAME)

    def timing(self, name: str) -> MedianTime:
        """A summary of repeated timings; the interval of few of them is infinite."""
        part = self.part(name)
        low, high = part.optional("low"), part.optional("high")
        median = part.number("median")
        if median <= 0:
            raise UnreadableRecordError(f"{self._named(name)}.median is {median:g} in place of a positive number")
        return MedianTime(median, -math.inf if low is None else low, math.inf if high is None else high)

    def network(self) -> NetworkSpec:
        """The network that a configuration names; every text in it is checked, unlike in `RunRecord.network`."""
        part = self.part("network")
        known: dict[str, Any] = {"method": part.text("method"), "dataset": part.text("dataset")}
        for field in fields(NetworkSpec):
            if field.name not in known and part.tree.get(field.name) is not None:
                known[field.name] = part.whole(field.name) if "int" in str(field.type) else part.text(field.name)
        return NetworkSpec(**known)

    def _named(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name


def _described(value: object) -> str:
    return "missing" if value is None else f"{type(value).__name__} {visible(repr(value)[:60], 40)}"
