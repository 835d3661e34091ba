"""The plan of a study, where there is one: what a reader must know about it, and trainings that were never run.

`onelip compare` writes `study.json`; see docs/comparing.md. It says which jobs there are, and nothing about how they
stand: that is in the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from onelip.bench.report.rows import TroubleRow
from onelip.bench.runs import STUDY_FILE, NetworkSpec, StoredRun, parse_json, read_dataclass


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
    present = {run.record.job for run in runs if run.record.kind == "train"}
    failed = {run.folder.name: run.record.reason for run in runs if run.record.status.value == "failed"}
    for job in plan.get("jobs", []):
        if job["kind"] != "train" or job["name"] in present:
            continue
        causes = [f"{need} failed: {failed[need]}" for need in job["needs"] if need in failed]
        network = read_dataclass(NetworkSpec, job["network"], f"{STUDY_FILE}: {job['name']}.network")
        reason = causes[0] if causes else "planned, not begun"
        yield TroubleRow(job["name"], "train", network.method, network.size_name, network.dataset, "not run", reason)
