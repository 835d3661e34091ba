"""The plan of a study, where there is one: what a reader must know about it, and trainings that were never run.

`onelip compare` writes `study.json`; see docs/comparing.md. It says which jobs there are, and nothing about how they
stand: that is in the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from onelip.bench.report.rows import TroubleRow
from onelip.bench.runs import STUDY_FILE, StoredRun, parse_json, size_name

_SAME = ("method", "size", "width", "dataset", "kernel_size", "budget", "epochs", "batch_size", "seed")


def read_plan(folder: Path) -> dict[str, Any]:
    """Content of `study.json`; empty for a folder of runs without one, ValueError if it is damaged."""
    path = folder / STUDY_FILE
    if not path.exists():
        return {}
    content = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not isinstance(content.get("jobs"), list):
        raise ValueError(f"{path}: is not the plan of a study")
    return content


def not_run(plan: dict[str, Any], runs: Iterable[StoredRun]) -> Iterator[TroubleRow]:
    """One row for each planned training that has no record of its own."""
    runs = list(runs)
    present = {_identity(run.record.config) for run in runs if run.record.kind == "train" and not _is_trial(run)}
    failed = {run.folder.name: run.record.reason for run in runs if run.record.status.value == "failed"}
    for job in plan.get("jobs", []):
        if job["kind"] != "train" or _identity(job) in present:
            continue
        causes = [f"{need} failed: {failed[need]}" for need in job["needs"] if need in failed]
        size = size_name(job)
        reason = causes[0] if causes else "planned, not begun"
        yield TroubleRow(job["name"], "train", job["method"], size, job["dataset"], "not run", reason)


def _identity(facts: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(facts.get(name) for name in _SAME)


def _is_trial(run: StoredRun) -> bool:
    """Of a search, and not the one that won and was certified as a final training."""
    return run.folder.parent.parent.parent.name == "searches" and "test_accuracy" not in run.record.metrics
