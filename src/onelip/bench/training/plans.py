"""Plans of a run: a fixed number of steps, or as many as fit in a time budget.

Steps differ in length on a real machine, so the number of steps is not fixed in advance. The plan re-estimates
after every measurement, with t seconds used of B, s seconds per step and f the fraction of the schedule done,

    n = round((B - t) / s)  steps remain,      f <- f + (1 - f) / n  for each of them.

If all steps take the same time this is an even division. If the machine slows down or speeds up, the remaining
part of the schedule is spread over the steps that still fit: f never jumps, and the last step is made at f = 1.
The error is that of the last rounding, half a step, and what the very last steps deviate from their estimate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from onelip.bench.records.durations import TrainingClock
from onelip.errors import InvalidInputError

_WINDOW = 20  # measurements that the estimate of the time per step is the mean of
_MOST_STEPS_PER_MEASUREMENT = 50
_STEPS_IF_UNKNOWN = 1000


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


class EpochPlan(StepPlan):
    """The first epochs of a schedule that moves once per epoch: epoch e of N is trained at the fraction e / (N - 1).

    The comparison paper's runs do so: their first epoch is trained at the lowest learning rate throughout.
    """

    def __init__(self, epochs: int, steps_per_epoch: int, schedule_epochs: int) -> None:
        super().__init__(epochs * steps_per_epoch)
        self._last_step, self._steps_per_epoch = self.planned_steps, steps_per_epoch
        self.planned_steps = schedule_epochs

    @property
    def fraction(self) -> float:
        """That of the current epoch."""
        epoch = min(self.steps, self._last_step - 1) // self._steps_per_epoch
        return epoch / (self.planned_steps - 1) if self.planned_steps > 1 else 1.0

    @property
    def finished(self) -> bool:
        """Whether the epochs of the run are made, which need not be all of the schedule's."""
        return self.steps >= self._last_step


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
        self._remaining: int | None = None
        self._durations: deque[float] = deque(maxlen=_WINDOW)
        self._first_of_session = True
        self._measured_at = (0, clock.seconds())
        self._next_measurement = 1

    @property
    def planned_steps(self) -> int:
        """Steps made and steps that still fit; many, as long as nothing is known."""
        return self.steps + (_STEPS_IF_UNKNOWN if self._remaining is None else self._remaining)

    def step_done(self) -> None:
        """Count a step, and look at the clock if it is time to."""
        self.steps += 1
        if self._remaining is not None:
            self._remaining -= 1
        if self.steps >= self._next_measurement:
            self._measure()
        else:
            self._advance()

    def _measure(self) -> None:
        steps_before, used_before = self._measured_at
        used = self._clock.seconds()
        duration = (used - used_before) / (self.steps - steps_before)
        if not self._first_of_session:
            self._durations.append(duration)
        self._first_of_session = False
        self._measured_at = (self.steps, used)
        self._next_measurement = self.steps + 1
        left = self.budget - used
        if not self._durations:
            # Only a slow first step is known. The second is made at the same place of the schedule, unless there
            # seems to be time for one more only.
            self._remaining = 1 if left < 1.5 * duration else None
        else:
            per_step = sum(self._durations) / len(self._durations)
            self._remaining = round(left / max(per_step, 1e-9))
        if self.fraction >= 1.0:  # the schedule is at its end: go on there only while there is time for it
            self.finished = self._remaining is not None and self._remaining <= 0
            return
        self._advance()
        self._next_measurement += min((self._remaining or 0) // 20, _MOST_STEPS_PER_MEASUREMENT - 1)

    def _advance(self) -> None:
        if self._remaining is None:
            return
        # A schedule that is not at its end gets one more step to end in, if need be beyond the budget.
        self._remaining = max(1, self._remaining)
        self.fraction = 1.0 if self._remaining == 1 else self.fraction + (1.0 - self.fraction) / self._remaining

    def state_dict(self) -> dict[str, Any]:
        """Place in the schedule and what is known of the time per step; the clock keeps the time itself."""
        return {
            "steps": self.steps,
            "fraction": self.fraction,
            "finished": self.finished,
            "remaining": self._remaining,
            "durations": list(self._durations),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, with a first step that is slow again."""
        self.steps, self.fraction = int(state["steps"]), float(state["fraction"])
        self.finished, self._remaining = state["finished"], state["remaining"]
        self._durations.extend(state["durations"])
        self._measured_at = (self.steps, self._clock.seconds())
        self._next_measurement = self.steps + 1


Plan = StepPlan | TimePlan
"""When to stop, and how much of the schedule is done."""
