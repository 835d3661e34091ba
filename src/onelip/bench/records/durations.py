"""Durations as text, and a clock of training time that pauses for evaluation."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from onelip.errors import InvalidInputError

Clock = Literal["time", "cores"]
"""What a budget counts: time on the clock, or processor time of the process."""

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


def parse_duration(text: str, option: str = "") -> float:
    """Seconds of a text such as "2h", "90s", "1h30m" or "0.5h"; a message names the option that it was given for."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not 0 < seconds < math.inf:
        what = f"{option} {text!r}".strip()
        raise InvalidInputError(f"{what} is not a duration; write a positive one such as 2h, 5m, 90s or 1h30m")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads as this many seconds: 5400 is "1h30m"."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = ((f"{hours:.0f}", "h"), (f"{minutes:.0f}", "m"), (f"{rest:.3f}".rstrip("0").rstrip("."), "s"))
    return "".join(number + unit for number, unit in parts if number != "0") or "0s"


class TrainingClock:
    """Seconds of training so far: it starts paused, and everything outside `running()` does not count.

    Args:
        used: seconds of earlier sessions of the same run.
        now: a monotonic clock in seconds.
        synchronise: waits until the device has done its work; on CUDA, calls return before their kernels end.
        agree: makes one number of many processes' readings, so that all of them plan alike.
    """

    def __init__(
        self,
        used: float = 0.0,
        *,
        now: Callable[[], float] = time.perf_counter,
        synchronise: Callable[[], None] = lambda: None,
        agree: Callable[[float], float] = lambda seconds: seconds,
    ) -> None:
        self._used, self._now, self._synchronise, self._agree = used, now, synchronise, agree
        self._started: float | None = None

    def seconds(self) -> float:
        """Training time up to now, the same in all processes: all of them have to ask."""
        return self._agree(self.own_seconds())

    def own_seconds(self) -> float:
        """The reading of this process, for one that asks alone."""
        self._synchronise()
        running = 0.0 if self._started is None else self._now() - self._started
        return self._used + running

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time in this block counts."""
        self._start()
        try:
            yield
        finally:
            self._stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in this block, inside a running one, does not count."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def _start(self) -> None:
        self._synchronise()
        self._started = self._now()

    def _stop(self) -> None:
        self._used = self.own_seconds()
        self._started = None
