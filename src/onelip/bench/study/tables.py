"""Tables of `onelip compare`: the plan before, the results after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from onelip.bench.measurement.memory_limits import GIB
from onelip.bench.runs import read_record
from onelip.bench.runs.durations import parse_duration
from onelip.bench.study.costs import predicted_bytes
from onelip.bench.study.jobs import Job, JobState, JobStatus, budget_word
from onelip.bench.study.measuring import seconds_per_epoch
from onelip.bench.study.progress import short_duration
from onelip.bench.study.training import TrainJob


def plan_table(jobs: Sequence[Job], states: Mapping[str, JobState], study: Path) -> Table:
    """One row per job with its estimated time and memory."""
    table = _table(("job", "method", "size", "data set"), ("k", "budget", "seed", "epochs", "time", "GiB"))
    for job in jobs:
        facts = job.facts
        seconds, needed = job.estimated_seconds(study), predicted_bytes(job)
        time = states[job.name].status.value
        if time == "pending":
            time = "?" if seconds is None else short_duration(seconds)
        table.add_row(
            facts.get("quantity") or job.kind,
            job.network.method,
            job.network.size_name,
            job.network.dataset,
            str(job.network.kernel_size) if job.kind != "measure" else "",
            f"{facts['trials']} x {budget_word(facts)}" if job.kind == "search" else budget_word(facts),
            str(facts["seed"]) if job.kind == "train" else "",
            _epochs(job, study),
            time,
            "" if needed is None else f"{needed / GIB:.2f}",
        )
    return table


def _epochs(job: Job, study: Path) -> str:
    """How many fit into the budget, once the study has measured a step; the paper's table of epochs."""
    budget = job.facts.get("budget")
    if budget is None:
        return ""
    epoch = seconds_per_epoch(study, job.network, job.facts["batch_size"])
    return "" if epoch is None else f"{parse_duration(budget) / epoch:.3g}"


def result_table(jobs: Sequence[Job], study: Path) -> Table:
    """One row per finished training, the best certified accuracy first."""
    table = _table(("method", "size", "data set"), ("k", "budget", "seed", "epochs", "accuracy %", "certified %"))
    rows: list[tuple[float, list[str]]] = []
    for job in jobs:
        if not isinstance(job, TrainJob) or job.recorded(study).status is not JobStatus.DONE:
            continue
        config = job.resolved(study)
        assert config is not None
        metrics, facts, network = read_record(job.folder(config, study)).metrics, job.facts, job.network
        certified = metrics["test_certified_accuracy_36"]
        cells = [network.method, network.size_name, network.dataset, str(network.kernel_size), budget_word(facts)]
        cells += [str(facts["seed"]), f"{metrics['epochs']:.3g}", f"{100 * metrics['test_accuracy']:.1f}"]
        rows.append((certified, [*cells, f"{100 * certified:.1f}"]))
    for _, cells in sorted(rows, key=lambda row: -row[0]):
        table.add_row(*cells)
    return table


def _table(words: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for title in words:
        table.add_column(title, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table
