"""Durations, the clock, and the plan that meets a time budget on a machine of changing speed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from onelip.bench.records.durations import TrainingClock, format_duration, parse_duration
from onelip.bench.training.plans import StepPlan, TimePlan
from onelip.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h", 7200), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("0.5h", 1800), ("1.5s", 1.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "0s", "5 m", "1d", "2h!", "5mm", "nan", "1e3s"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not a duration"):
        parse_duration(text)


def test_one_duration_has_one_text() -> None:
    assert [format_duration(parse_duration(text)) for text in ("300s", "5m", "90m")] == ["5m", "5m", "1h30m"]


class FakeMachine:
    """A clock that moves by hand, and steps of a given length."""

    def __init__(self) -> None:
        self.time = 100.0
        self.clock = TrainingClock(now=lambda: self.time)

    def run(self, plan: TimePlan, duration: Callable[[int], float], most: int = 100_000) -> list[float]:
        fractions = []
        with self.clock.running():
            while not plan.finished and len(fractions) < most:
                fractions.append(plan.fraction)
                self.time += duration(plan.steps)
                plan.step_done()
        return fractions


def test_pauses_do_not_count() -> None:
    machine = FakeMachine()
    machine.time += 5  # not started
    with machine.clock.running():
        machine.time += 2
        with machine.clock.paused():
            machine.time += 50
            assert machine.clock.seconds() == 2
        assert machine.clock.seconds() == 2
        machine.time += 1
    machine.time += 70
    assert machine.clock.seconds() == 3


def test_earlier_sessions_count() -> None:
    assert TrainingClock(used=12.0).seconds() == 12.0


def _noisy(seed: int) -> Callable[[int], float]:
    generator = random.Random(seed)
    return lambda step: 0.1 * generator.lognormvariate(0, 0.4) * (10 if step == 0 else 1)


def _changing(seed: int) -> Callable[[int], float]:
    """Other processes come and go: phases of a third and of three times the speed."""
    generator, speed = random.Random(seed), [1.0]

    def duration(step: int) -> float:
        if generator.random() < 0.02:
            speed[0] = generator.choice([0.33, 1.0, 3.0])
        return 0.1 * speed[0] * generator.lognormvariate(0, 0.1)

    return duration


def _stalling(seed: int) -> Callable[[int], float]:
    generator = random.Random(seed)
    return lambda step: 0.1 + (0.5 if generator.random() < 0.01 else 0.0)


def _slowing(seed: int) -> Callable[[int], float]:
    return lambda step: 0.1 * (1 + step / 200)


@pytest.mark.parametrize("machine_kind", [_noisy, _changing, _stalling, _slowing])
@pytest.mark.parametrize("seed", range(10))
def test_a_budget_is_met_within_three_per_cent(machine_kind: Callable[[int], Callable], seed: int) -> None:
    machine = FakeMachine()
    fractions = machine.run(TimePlan(60.0, machine.clock), machine_kind(seed))
    assert machine.clock.seconds() == pytest.approx(60.0, rel=0.03)
    assert fractions == sorted(fractions)
    assert fractions[0] == 0.0
    assert fractions[-1] == 1.0


@pytest.mark.parametrize("step_seconds", [0.9, 3.0, 7.0, 19.0, 50.0])
def test_few_long_steps_miss_by_half_a_step_at_most(step_seconds: float) -> None:
    machine = FakeMachine()
    fractions = machine.run(TimePlan(20.0, machine.clock), lambda step: step_seconds)
    assert fractions[-1] == 1.0
    # A schedule begins and ends, so there are at least two steps.
    assert abs(machine.clock.seconds() - max(20.0, 2 * step_seconds)) <= step_seconds / 2


def test_a_steady_machine_gets_an_even_schedule() -> None:
    machine = FakeMachine()
    fractions = machine.run(TimePlan(50.0, machine.clock), lambda step: 0.5)
    differences = [after - before for before, after in itertools.pairwise(fractions[1:])]
    assert len(fractions) == 100
    assert differences == pytest.approx([1 / 98] * 98)


def test_the_clock_is_read_seldom_far_from_the_end() -> None:
    readings = [0]
    machine = FakeMachine()
    machine.clock = TrainingClock(
        now=lambda: machine.time, synchronise=lambda: readings.__setitem__(0, readings[0] + 1)
    )
    fractions = machine.run(TimePlan(1000.0, machine.clock), lambda step: 0.1)
    assert len(fractions) == pytest.approx(10_000, rel=0.01)
    assert readings[0] < 500


def test_a_time_plan_continues() -> None:
    first = FakeMachine()
    plan = TimePlan(60.0, first.clock)
    before = first.run(plan, _noisy(0), most=200)
    second = FakeMachine()
    second.clock = TrainingClock(first.clock.seconds(), now=lambda: second.time)
    again = TimePlan(60.0, second.clock)
    again.load_state_dict(plan.state_dict())
    assert (again.steps, again.fraction, again.planned_steps) == (plan.steps, plan.fraction, plan.planned_steps)
    after = second.run(again, _noisy(1))
    assert second.clock.seconds() == pytest.approx(60.0, rel=0.03)
    assert before + after == sorted(before + after)
    assert after[0] - before[-1] < 0.01


def test_processes_agree() -> None:
    """Two processes with clocks of their own, which both follow the reading of the first, stop together."""
    machine = FakeMachine()
    readings: list[float] = []
    first = TrainingClock(now=lambda: machine.time, agree=lambda seconds: (readings.append(seconds), seconds)[1])
    second = TrainingClock(now=lambda: 3 * machine.time, agree=lambda _: readings[-1])
    plans = [TimePlan(10.0, first), TimePlan(10.0, second)]
    with first.running(), second.running():
        while not plans[0].finished:
            assert plans[0].fraction == plans[1].fraction
            machine.time += 0.3
            for plan in plans:
                plan.step_done()
    assert plans[1].finished


def test_step_plan() -> None:
    plan = StepPlan(5)
    fractions = []
    while not plan.finished:
        fractions.append(plan.fraction)
        plan.step_done()
    assert fractions == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert StepPlan(1).fraction == 1.0
    with pytest.raises(InvalidInputError, match="at least one step"):
        StepPlan(0)
