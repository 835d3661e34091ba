"""Where one of two equal forms becomes the faster one on CPUs: built-in values, or those measured on this machine.

`onelip.tune` measures them and keeps them in one JSON file, by processor, version of torch and number of threads. A
process reads that file once, at its first decision, for the number of threads it has then, and keeps what it found:
all that it computes has one set of thresholds. Tensors without numbers are decided upon as those of a CPU.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from onelip.atomic_files import check_place, read_regular, write_atomically
from onelip.errors import InvalidInputError, one_line
from onelip.local_machine import cache_folder, processor_name

VARIABLE = "ONELIP_THRESHOLDS"
"""Environment variable with the path of another file, or "off" for the built-in values."""

_FORMAT_VERSION = 1
_LARGEST_FILE = 2**20
_LARGEST_SHARE, _MOST_BYTES = 10, 2**40


class Thresholds(NamedTuple):
    """The values in use; by default those measured on a Xeon and an EPYC."""

    whole_share: float = 0.7
    """A convolution on a torus that one matrix transforms (up to 8 x 8) acts on frequencies if that takes less than
    this share of its operations: from 32 channels on 8 x 8 images on."""

    frequency_share: float = 0.35
    """The same for other tori, whose two matrices cost more memory traffic: from 128 channels on 16 x 16 images on."""

    bytes_at_once: int = 2**22
    """A stage of a network is evaluated for as many images at a time as have image tensors of this size."""

    def changed(self) -> dict[str, float]:
        """The values that are not the built-in ones, by name."""
        return {name: value for name, value in self._asdict().items() if value != getattr(DEFAULTS, name)}


DEFAULTS = Thresholds()
_forced: list[Thresholds] = []


def thresholds() -> Thresholds:
    """The values in use in this process."""
    return _forced[-1] if _forced else kept_thresholds()


# What torch.compiler.assume_constant_result does, which imports the compiler for it: that calls the function, which may
# read a file, and sees a constant.
thresholds._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


@contextmanager
def forced_thresholds(values: Thresholds) -> Iterator[None]:
    """These values inside the block, to measure and test. Layers that evaluated before may keep the form they had."""
    _forced.append(values)
    try:
        yield
    finally:
        _forced.pop()


def thresholds_file() -> Path | None:
    """Where measured values are kept; None if they are switched off, or there is no home directory."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return None if chosen == "off" else Path(chosen).expanduser()
    try:
        return cache_folder() / "thresholds.json"
    except RuntimeError:  # a user without a home directory
        return None


def read_thresholds() -> Thresholds:
    """The values kept for this machine, the built-in ones if there are none."""
    path = thresholds_file()
    if path is None:
        return DEFAULTS
    if os.environ.get(VARIABLE) and not os.path.lexists(path):
        raise InvalidInputError(f"{VARIABLE}: there is no {path}; `onelip tune` writes it, or choose another, or off")
    return _read_file(path).get(_machine(), DEFAULTS)


@functools.cache
def kept_thresholds() -> Thresholds:
    """`read_thresholds` of the first call in this process."""
    return read_thresholds()


def checked_file() -> Path:
    """The file to keep values in; refuses one that could not be written, or holds something else."""
    path = thresholds_file()
    if path is None:
        raise InvalidInputError(f"there is no file to keep thresholds in: set {VARIABLE} to the path of one")
    check_place(path.parent)
    _read_file(path)
    return path


def keep_thresholds(values: Thresholds) -> Path:
    """Write the values of this machine, beside those of others, for processes that start from now on."""
    path = checked_file()
    machines = _read_file(path) | {_machine(): values}
    entries = [key._asdict() | {"thresholds": value._asdict()} for key, value in sorted(machines.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format_version": _FORMAT_VERSION, "machines": entries}, indent=2)
    write_atomically(path, text.encode() + b"\n")
    return path


def forget_thresholds() -> Path | None:
    """Move the file away, whatever it holds; the path that it has now, None if there was none."""
    path = thresholds_file()
    if path is None or not path.is_file():
        return None
    return path.replace(path.with_name(path.name + ".old"))


class _Machine(NamedTuple):
    processor: str
    torch: str
    threads: int


def _machine() -> _Machine:
    return _Machine(processor_name(), str(torch.__version__), torch.get_num_threads())


def _read_file(path: Path) -> dict[_Machine, Thresholds]:
    if not os.path.lexists(path):
        return {}
    try:
        tree = json.loads(read_regular(path, _LARGEST_FILE))
        if tree["format_version"] != _FORMAT_VERSION:
            raise ValueError(f"format {tree['format_version']}, expected {_FORMAT_VERSION}")
        return dict(map(_entry, tree["machines"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"not thresholds that onelip can read ({one_line(error)})"
        raise InvalidInputError(f"{path}: {reason}; `onelip tune --reset` moves it away") from error


def _entry(entry: Any) -> tuple[_Machine, Thresholds]:
    values = Thresholds(**entry["thresholds"])
    machine = _Machine(**{name: value for name, value in entry.items() if name != "thresholds"})
    shares = values.whole_share, values.frequency_share
    if not all(
        type(share) in (float, int) and math.isfinite(share) and 0 <= share <= _LARGEST_SHARE for share in shares
    ):
        raise ValueError(f"shares must be numbers from 0 to {_LARGEST_SHARE}, not {shares}")
    if type(values.bytes_at_once) is not int or not 1 <= values.bytes_at_once <= _MOST_BYTES:
        raise ValueError(f"bytes_at_once must be a whole number from 1 to {_MOST_BYTES}, not {values.bytes_at_once!r}")
    if not (isinstance(machine.processor, str) and isinstance(machine.torch, str) and type(machine.threads) is int):
        raise ValueError(f"no machine: {tuple(machine)}")
    return machine, values
