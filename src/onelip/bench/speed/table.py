"""The table of `onelip bench speed`: measured ratios, goals with a mark, and the ratios of public code."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from onelip.bench.measurement.statistics import Summary
from onelip.bench.speed.contestants import ONELIP
from onelip.bench.speed.measure import SpeedResult
from onelip.bench.speed.results import SpeedReport
from onelip.bench.speed.targets import QUANTITIES, Goal

MET, MISSED = "✓", "✗"
_SHORT_NAMES = {"training": "train", "inference": "infer", "memory": "memory"}


def print_speed(report: SpeedReport, console: Console | None = None) -> None:
    """One table for our methods and one for other packages, then what the figures mean and what failed."""
    console = console or Console(markup=False, highlight=False)
    rows = report.cheapest_first()
    ours = [row for row in rows if row.contestant.package == ONELIP]
    theirs = [row for row in rows if row.contestant.package != ONELIP]
    with_goals = any(report.goals(row) for row in ours)
    for group, has_goals in ((ours, with_goals), (theirs, False)):
        if group:
            console.print(_table(report, group, has_goals))
    console.print(_note(report, with_goals))
    for name, reason in report.failures.items():
        console.print(f"{name}: {reason}")


def _table(report: SpeedReport, rows: Sequence[SpeedResult], with_goals: bool) -> Table:
    # No padding: the box has a space between columns, and ten of them must fit into 80 characters.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("method", no_wrap=True)
    for quantity in QUANTITIES:
        names = [_SHORT_NAMES[quantity], *(["goal", "public"] if with_goals else [])]
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.contestant.key, *_cells(report, row, with_goals))
    return table


def _cells(report: SpeedReport, row: SpeedResult, with_goals: bool) -> list[str]:
    goals, cells = report.goals(row), []
    measured = {
        "training": _ratio(row.training.ratio),
        "inference": _ratio(row.inference.ratio),
        "memory": f"{row.memory_ratio:.2f}",
    }
    for quantity, text in measured.items():
        cells.append(text)
        if with_goals:
            cells += _goal(goals.get(quantity), row.ratios[quantity])
    return cells


def _ratio(ratio: Summary) -> str:
    return f"{ratio.median:.2f} ±{(ratio.high - ratio.low) / 2:.2f}"


def _goal(goal: Goal | None, ratio: float) -> list[str]:
    if goal is None:
        return ["", ""]
    mark = MET if goal.is_met_by(ratio) else MISSED
    return [f"{goal.target:.1f} {mark}", "" if goal.public is None else f"{goal.public:.1f}"]


def _note(report: SpeedReport, with_goals: bool) -> str:
    note = f"Ratios to plain convolutions, {report.setting}; medians, ± half of the 95 % interval."
    return f"{note} Goals: {MET} met, {MISSED} missed; public: existing code." if with_goals else note
