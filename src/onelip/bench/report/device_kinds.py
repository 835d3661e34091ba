"""Time budgets mean the same on one kind of device only: which trainings of a study may be compared."""

from __future__ import annotations

from collections import Counter

from onelip.bench.runs import StoredRun
from onelip.bench.terminal import visible


def within_one_kind(trainings: list[StoredRun]) -> tuple[list[StoredRun], list[tuple[StoredRun, str]], str]:
    """Trainings to compare, those on other kinds of device with where they ran, and a warning if there are any.

    The kind is the one with most trainings under a time budget. Trainings by epochs are the same everywhere.
    """
    timed = {run.folder: str(kind) for run in trainings if run.record.config.get("budget") and (kind := _device(run))}
    kinds = Counter(timed.values())
    if len(kinds) < 2:
        return trainings, [], ""
    usual, count = kinds.most_common(1)[0]
    others = [(run, visible(timed[run.folder])) for run in trainings if timed.get(run.folder, usual) != usual]
    compared = [run for run in trainings if timed.get(run.folder, usual) == usual]
    rest = ", ".join(f"{number} on {visible(kind)}" for kind, number in kinds.most_common()[1:])
    warning = (
        f"The study mixes kinds of device: {count} trainings with a time budget ran on {visible(usual)}, {rest}. "
        f"Within the same time they train for more or less, so only those on {visible(usual)} are compared."
    )
    return compared, others, warning


def _device(run: StoredRun) -> object:
    return run.record.machine.get("device")
