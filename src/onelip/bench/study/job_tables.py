"""Tables of the jobs of a study: the plan before, the states while it runs, the results after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from onelip.bench.measurement.memory_limits import GIB
from onelip.bench.runs.durations import parse_duration
from onelip.bench.study.attempts import read_attempts
from onelip.bench.study.job_base import Job, JobState, JobStatus, budget_word
from onelip.bench.study.job_memory import predicted_bytes
from onelip.bench.study.known_records import known_record
from onelip.bench.study.measured import seconds_per_epoch
from onelip.bench.study.search_job import SearchJob
from onelip.bench.study.time_left import short_duration
from onelip.bench.study.train_job import TrainJob
from onelip.bench.terminal import plain_table


def plan_table(jobs: Sequence[Job], states: Mapping[str, JobState], study: Path) -> Table:
    """One row per job with its estimated time and memory; the trials of a search are one row with it."""
    table = plain_table(
        ("job", "method", "size", "data set"), ("k", "budget", "seed", "epochs", "time", "GiB"), padding=0
    )
    for job in jobs:
        if job.kind == "trial":
            continue
        parts = job.needs if isinstance(job, SearchJob) else (job,)
        seconds = [part.estimated_seconds(study) for part in parts]
        needed = predicted_bytes(parts[0])
        time = states[job.name].status.value
        if time == "pending":
            known = [one for one in seconds if one is not None]
            time = short_duration(sum(known)) if len(known) == len(seconds) else "?"
        budget = budget_word(job.details)
        table.add_row(
            job.details.get("quantity") or job.kind,
            job.network.short_name,
            job.network.size_name,
            job.network.dataset,
            str(job.network.kernel_size) if budget else "",
            f"{job.details['trials']} x {budget}" if job.kind == "search" else budget,
            str(job.details["seed"]) if job.kind == "train" else "",
            _epochs(job, study),
            time,
            "" if needed is None else f"{needed / GIB:.2f}",
        )
    return table


def _epochs(job: Job, study: Path) -> str:
    """How many fit into the budget, once the study has measured a step; the paper's table of epochs."""
    if job.details.get("budget") is None or job.network.kernel_size != 3:
        return ""
    epoch = seconds_per_epoch(study, job.network, job.details["batch_size"])
    return "" if epoch is None else f"{parse_duration(job.details['budget']) / epoch:.3g}"


def state_table(jobs: Sequence[Job], states: Mapping[str, JobState], study: Path) -> Table:
    """One row per job: how it stands, where it was worked on last and how often."""
    columns = ("job", "state", "host", "engine")
    table = plain_table(columns, ("attempts", "time"), wrapped=("job", "host"), padding=0)
    for job in jobs:
        state, attempts = states[job.name], read_attempts(job, study)
        table.add_row(
            job.label,
            state.status.value,
            attempts[-1].host if attempts else "",
            attempts[-1].engine if attempts else "",
            str(len(attempts)) if attempts else "",
            short_duration(state.seconds) if state.seconds else "",
        )
    return table


def result_table(jobs: Sequence[Job], study: Path) -> Table:
    """One row per finished training, the best certified accuracy first."""
    table = plain_table(
        ("method", "size", "data set"), ("k", "budget", "seed", "epochs", "accuracy %", "certified %"), padding=0
    )
    rows: list[tuple[float, list[str]]] = []
    for job in jobs:
        if not isinstance(job, TrainJob) or job.recorded(study).status is not JobStatus.DONE:
            continue
        folder = job.folder(study)
        assert folder is not None
        record = known_record(folder)
        assert record is not None
        metrics, network = record.metrics, job.network
        certified = metrics["test_certified_accuracy_36"]
        cells = [
            network.short_name,
            network.size_name,
            network.dataset,
            str(network.kernel_size),
            budget_word(job.details),
        ]
        cells += [str(job.spec.seed), f"{metrics['epochs']:.3g}", f"{100 * metrics['test_accuracy']:.1f}"]
        rows.append((certified, [*cells, f"{100 * certified:.1f}"]))
    for _, cells in sorted(rows, key=lambda row: -row[0]):
        table.add_row(*cells)
    return table
