"""Training for a given time: a clock that pauses for evaluation, and a plan that meets the budget.

Steps differ in length on a real machine, so the number of steps is not fixed in advance. The plan re-estimates
after every measurement, with t seconds used of B, s seconds per step and f the fraction of the schedule done,

    n = round((B - t) / s)  steps remain,      f <- f + (1 - f) / n  for each of them.

If all steps take the same time this is an even division. If the machine slows down or speeds up, the remaining
part of the schedule is spread over the steps that still fit: f never jumps, and the last step is made at f = 1.
The error is that of the last rounding, half a step, and what the very last steps deviate from their estimate.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from onelip.errors import InvalidInputError

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_WINDOW = 20  # measurements that the estimate of the time per step is the mean of
_MOST_STEPS_PER_MEASUREMENT = 50


def parse_duration(text: str) -> float:
    """Seconds of a text such as "2h", "90s", "1h30m" or "0.5h"."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not 0 < seconds < math.inf:
        raise InvalidInputError(f"{text!r} is not a duration; write a positive one such as 2h, 5m, 90s or 1h30m")
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
        """Training time up to now, the same in all processes."""
        self._synchronise()
        running = 0.0 if self._started is None else self._now() - self._started
        return self._agree(self._used + running)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time in this block counts."""
        self._synchronise()
        self._started = self._now()
        try:
            yield
        finally:
            self._synchronise()
            self._used += self._now() - self._started
            self._started = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in this block, inside a running one, does not count."""
        self._synchronise()
        before = self._now()
        try:
            yield
        finally:
            self._synchronise()
            if self._started is not None:
                self._started += self._now() - before


class Plan(Protocol):
    """When to stop, and how much of the schedule is done."""

    steps: int
    """Steps made."""
    fraction: float
    """Place in the schedule of the next step: 0 for the first, 1 for the last."""

    @property
    def planned_steps(self) -> int:
        """Steps that the whole run will have, as far as known."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the last step has been made."""
        ...

    def step_done(self) -> None:
        """To be called after each step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a later session needs to go on."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        ...


class StepPlan:
    """A fixed number of steps: step i of N is made at the fraction i / (N - 1)."""

    def __init__(self, total: int) -> None:
        if total < 1:
            raise InvalidInputError(f"a run needs at least one step, got {total}")
        self.planned_steps = total
        self.steps = 0

    @property
    def fraction(self) -> float:
        """0 at the first step, 1 at the last."""
        return min(self.steps / (self.planned_steps - 1), 1.0) if self.planned_steps > 1 else 1.0

    @property
    def finished(self) -> bool:
        """Whether all steps are made."""
        return self.steps >= self.planned_steps

    def step_done(self) -> None:
        """Count a step."""
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """The number of steps made."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after that many steps."""
        self.steps = int(state["steps"])


class TimePlan:
    """As many steps as fit in a budget of seconds on this clock; see the top of this file.

    The first step of a session is slow (memory, kernels) and says nothing of the others: it counts as time used,
    but not for the estimate. Reading the clock makes a GPU wait, so far from the end it is read only once in up to
    50 steps.
    """

    def __init__(self, seconds: float, clock: TrainingClock) -> None:
        self.budget, self._clock = seconds, clock
        self.steps = 0
        self.fraction = 0.0
        self.finished = False
        self._last_was_end = False
        self._remaining: int | None = None
        self._durations: deque[float] = deque(maxlen=_WINDOW)
        self._warm = False
        self._measured_at = (0, clock.seconds())
        self._next_measurement = 1

    @property
    def planned_steps(self) -> int:
        """Steps made and steps that still fit; before the first estimate, those that are certain."""
        return self.steps + (1 if self._remaining is None else self._remaining)

    def step_done(self) -> None:
        """Count a step, and look at the clock if it is time to."""
        was_end = self.fraction >= 1.0
        self.steps += 1
        if self._remaining is not None:
            self._remaining -= 1
        if self.steps >= self._next_measurement:
            self._measure(was_end)
        elif self._remaining:
            self.fraction += (1.0 - self.fraction) / self._remaining

    def _measure(self, was_end: bool) -> None:
        steps, since = self._measured_at
        used = self._clock.seconds()
        if self._warm:
            self._durations.append((used - since) / (self.steps - steps))
        self._warm = True
        self._measured_at, self._next_measurement = (self.steps, used), self.steps + 1
        if not self._durations:
            # Only the slow first step is known: the next one is made at the same place of the schedule, unless
            # there is no time for it to be anything but the last.
            self._finish_or_end(self.budget - used, used / self.steps, was_end)
            return
        per_step = sum(self._durations) / len(self._durations)
        left = self.budget - used
        self._finish_or_end(left, per_step, was_end)
        if self.finished:
            return
        self._remaining = max(1, round(left / per_step))
        self.fraction = 1.0 if was_end else self.fraction + (1.0 - self.fraction) / self._remaining
        self._next_measurement += min(self._remaining // 20, _MOST_STEPS_PER_MEASUREMENT - 1)
