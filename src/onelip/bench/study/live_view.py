"""What the terminal shows of a study: tables of its jobs, and where it is while it runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from onelip.bench.measurement.memory import GIB
from onelip.bench.records import view
from onelip.bench.records.durations import parse_duration
from onelip.bench.records.views import TrainResult
from onelip.bench.study.attempts import read_attempts
from onelip.bench.study.estimates import predicted_bytes, seconds_per_epoch
from onelip.bench.study.job_base import Job, JobState, JobStatus, budget_word
from onelip.bench.terminal import Terminal, plain_table


@dataclass
class TimeLeft:
    """Counts and an estimate of the time that is left; fed by what an engine reports.

    Estimates are made before anything has run. What jobs of one sort really took, relative to their estimates, corrects
    those that are still to come.
    """

    jobs: Sequence[Job]
    study: Path
    workers: int = 1
    now: Callable[[], float] = time.monotonic
    states: dict[str, JobState] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self.now()
        self.estimates = {job.name: job.estimated_seconds(self.study) for job in self.jobs}
        self._took: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def started(self, job: Job) -> None:
        """A job begins."""
        self.running[job.name] = self.now()
        if self.estimates.get(job.name) is None:  # a measurement made since may tell
            self.estimates[job.name] = job.estimated_seconds(self.study)

    def used(self, job: Job) -> float:
        """Seconds since the job began; 0 for one that does not run."""
        now = self.now()
        return now - self.running.get(job.name, now)

    def ended(self, job: Job, state: JobState) -> None:
        """A job ended."""
        estimate = self.estimates.get(job.name)
        if job.name in self.running and estimate and state.status is JobStatus.DONE:
            self._took[_sort(job)].append((self.used(job), estimate))
        self.running.pop(job.name, None)
        self.states[job.name] = state

    def count(self, status: JobStatus, kind: str | None = None) -> int:
        """Jobs with this status."""
        wanted = {job.name for job in self.jobs if kind in (None, job.kind)}
        return sum(state.status is status for name, state in self.states.items() if name in wanted)

    def expected(self, job: Job) -> float | None:
        """Corrected estimate of a whole job."""
        estimate, took = self.estimates.get(job.name), self._took[_sort(job)]
        if estimate is None or not took:
            return estimate
        return estimate * sum(actual for actual, _ in took) / sum(guess for _, guess in took)

    def seconds_left(self) -> tuple[float, bool]:
        """An estimate, and whether it is complete: jobs of which nothing is known are left out of it."""
        ended = {name for name, state in self.states.items() if state.status in (JobStatus.DONE, JobStatus.FAILED)}
        expected = [(job, self.expected(job)) for job in self.jobs if job.name not in ended]
        known = [(job, seconds) for job, seconds in expected if seconds is not None]
        left = sum(max(0.0, seconds - self.used(job)) for job, seconds in known)
        return left / self.workers, len(known) == len(expected)


def _sort(job: Job) -> str:
    """Jobs whose estimates are wrong in the same way."""
    return str(job.details.get("quantity") or job.kind)


def short_duration(seconds: float) -> str:
    """For people: 45 s, 7 min 30 s, 3 h 20 min, 4 d 6 h."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    for size, name, small, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            whole, rest = divmod(round(seconds / small), size // small)
            return f"{whole} {name} {rest} {small_name}" if rest else f"{whole} {name}"
    raise AssertionError


_KINDS = {"measure": "measured", "trial": "tried", "search": "chosen", "train": "trained"}
_FAILURES_SHOWN = 5
_RUNNING_SHOWN = 12

_NETWORK, _RUN = ("method", "size", "data set"), ("k", "budget", "seed", "epochs")
_table = partial(plain_table, padding=0)


class LiveView:
    """Observer of a driver that prints to stderr; every ended job leaves a line, the live part is below them."""

    def __init__(self, progress: TimeLeft, title: str, console: Console | None = None) -> None:
        self.progress, self.title = progress, title
        self.console = console or Terminal(stderr=True)
        self._jobs = {job.name: job for job in self.progress.jobs}
        self._live = Live(console=self.console, get_renderable=self.render, transient=True, refresh_per_second=2)

    def __enter__(self) -> LiveView:
        if self.console.is_terminal:
            self._live.start()
        else:
            self.console.print(self.title, soft_wrap=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live.is_started:
            self._live.stop()

    def started(self, job: Job) -> None:
        """A job begins."""
        self.progress.started(job)

    def know(self, job: Job, state: JobState) -> None:
        """Another session or driver has done it: it counts, without a line."""
        self.progress.states[job.name] = state

    def ended(self, job: Job, state: JobState) -> None:
        """Leave a line about it."""
        took = self.progress.used(job)
        self.progress.ended(job, state)
        done = self.progress.count(JobStatus.DONE) + self.progress.count(JobStatus.FAILED)
        line = Text(f"[{done:>{len(str(len(self._jobs)))}}/{len(self._jobs)}] {job.label}: ")
        if state.status is JobStatus.FAILED:
            line.append(f"failed: {state.reason}", "bold red")
        else:
            line.append(state.result or state.status.value)
        line.append(f" ({short_duration(took)})", "dim")
        self.console.print(line, soft_wrap=not self.console.is_terminal)

    def render(self) -> RenderableType:
        """The live part."""
        running = [self._jobs[name] for name in self.progress.running]
        states = self.progress.states
        failed = [name for name in self._jobs if name in states and states[name].status is JobStatus.FAILED]
        parts: list[RenderableType] = [Text(""), Text(self.title, "bold"), self._bars()]
        parts += [self._running(job) for job in running[:_RUNNING_SHOWN]]
        if len(running) > _RUNNING_SHOWN:
            parts.append(Text(f"and {len(running) - _RUNNING_SHOWN} more are started", "cyan"))
        left, complete = self.progress.seconds_left()
        elapsed = short_duration(self.progress.now() - self.progress.began)
        eta = f"{'about' if complete else 'more than'} {short_duration(left)} left"
        parts.append(Text(f"{elapsed} so far, {eta}; Ctrl-C stops, the same command continues", "dim"))
        for name in failed[:_FAILURES_SHOWN]:
            line = f"failed: {self._jobs[name].label}: {states[name].reason}"
            parts.append(Text(line, "red", no_wrap=True, overflow="ellipsis"))
        if len(failed) > _FAILURES_SHOWN:
            parts.append(Text(f"and {len(failed) - _FAILURES_SHOWN} more failed", "red"))
        return Group(*parts)

    def _bars(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        for kind, word in _KINDS.items():
            if total := sum(job.kind == kind for job in self._jobs.values()):
                done = self.progress.count(JobStatus.DONE, kind)
                bar = ProgressBar(total, done, width=30, complete_style="green", finished_style="green")
                grid.add_row(word, bar, f"{done} of {total}")
        return grid

    def _running(self, job: Job) -> Text:
        expected, part = self.progress.expected(job), job.part_done(self.progress.study)
        of = "" if expected is None else f" of about {short_duration(expected)}"
        news = "" if part is None else f", {100 * part:.0f} % trained" if part < 1 else ", certifying"
        parts = ("▸ ", "cyan"), (job.label, "bold"), f"  {short_duration(self.progress.used(job))}{of}{news}"
        return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def plan_table(jobs: Sequence[Job], states: Mapping[str, JobState], study: Path) -> Table:
    """One row per job with its estimated time and memory; the trials of a search are one row with it."""
    table = _table(("job", *_NETWORK), (*_RUN, "time", "GiB"))
    for job in jobs:
        if job.kind == "trial":
            continue
        parts = job.needs if job.kind == "search" else (job,)
        seconds = [part.estimated_seconds(study) for part in parts]
        known = [one for one in seconds if one is not None]
        needed, budget = predicted_bytes(parts[0]), budget_word(job.details)
        time = states[job.name].status.value
        if time == "pending":
            time = short_duration(sum(known)) if len(known) == len(seconds) else "?"
        table.add_row(
            job.details.get("quantity") or job.kind,
            *_network_cells(job),
            str(job.network.kernel_size) if budget else "",
            f"{job.details['trials']} x {budget}" if job.kind == "search" else budget,
            str(job.details["seed"]) if job.kind == "train" else "",
            _epochs(job, study),
            time,
            "" if needed is None else f"{needed / GIB:.2f}",
        )
    return table


def _network_cells(job: Job) -> tuple[str, str, str]:
    return job.network.short_name, job.network.size_name, job.network.dataset


def _epochs(job: Job, study: Path) -> str:
    """How many fit into the budget, once the study has measured a step; the paper's table of epochs."""
    if job.details.get("budget") is None or job.network.kernel_size != 3:
        return ""
    epoch = seconds_per_epoch(study, job.network, job.details["batch_size"])
    return "" if epoch is None else f"{parse_duration(job.details['budget']) / epoch:.3g}"


def state_table(jobs: Sequence[Job], states: Mapping[str, JobState], study: Path) -> Table:
    """One row per job: how it stands, where it was worked on last and how often."""
    columns = ("job", "state", "host", "engine")
    table = _table(columns, ("attempts", "time"), wrapped=("job", "host"))
    for job in jobs:
        state, attempts = states[job.name], read_attempts(job, study)
        last = (attempts[-1].host, attempts[-1].engine, str(len(attempts))) if attempts else ("", "", "")
        table.add_row(job.label, state.status.value, *last, short_duration(state.seconds) if state.seconds else "")
    return table


def result_table(jobs: Sequence[Job], study: Path) -> Table:
    """One row per finished training, the best certified accuracy first."""
    rows: list[tuple[float, tuple[str, ...]]] = []
    for job in jobs:
        done = job.kind == "train" and job.recorded(study).status is JobStatus.DONE
        record = job.record(study) if done else None
        if record is not None and isinstance(result := view(record).result, TrainResult):
            run = (str(job.network.kernel_size), budget_word(job.details), str(job.details["seed"]))
            certified = result.certified.get(36, 0.0)
            figures = (
                f"{result.epochs or 0:.3g}",
                f"{100 * (result.test_accuracy or 0):.1f}",
                f"{100 * certified:.1f}",
            )
            rows.append((certified, (*_network_cells(job), *run, *figures)))
    ranked = [cells for _, cells in sorted(rows, key=lambda row: -row[0])]
    return _table(_NETWORK, (*_RUN, "accuracy %", "certified %"), ranked)
