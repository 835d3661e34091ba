"""What a study shows while it runs: a live view on a terminal, one line per job elsewhere."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from onelip.bench.study.job_base import Job, JobState, JobStatus
from onelip.bench.study.time_left import TimeLeft, short_duration
from onelip.bench.terminal import Terminal

_KINDS = {"measure": "measured", "trial": "tried", "search": "chosen", "train": "trained"}
_FAILURES_SHOWN = 5
_RUNNING_SHOWN = 12


class LiveView:
    """Observer of a driver that prints to stderr; every ended job leaves a line, the live part is below them."""

    def __init__(self, progress: TimeLeft, title: str, console: Console | None = None) -> None:
        self.progress, self.title = progress, title
        self.console = console or Terminal(stderr=True)
        self._jobs = {job.name: job for job in self.progress.jobs}
        self._live = Live(
            console=self.console,
            get_renderable=self.render,
            transient=True,
            refresh_per_second=2,
        )

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
        took = self.progress.now() - self.progress.running.get(job.name, self.progress.now())
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
        parts: list[RenderableType] = [Text(""), Text(self.title, "bold"), self._bars()]
        running = list(self.progress.running)
        parts += [self._running(self._jobs[name]) for name in running[:_RUNNING_SHOWN]]
        if len(running) > _RUNNING_SHOWN:
            parts.append(Text(f"and {len(running) - _RUNNING_SHOWN} more are started", "cyan"))
        parts.append(Text(self._totals(), "dim"))
        states = self.progress.states
        failed = [name for name in self._jobs if name in states and states[name].status is JobStatus.FAILED]
        for name in failed[:_FAILURES_SHOWN]:
            line = f"failed: {self._jobs[name].label}: {states[name].reason}"
            parts.append(Text(line, "red", no_wrap=True, overflow="ellipsis"))
        if len(failed) > _FAILURES_SHOWN:
            parts.append(Text(f"and {len(failed) - _FAILURES_SHOWN} more failed", "red"))
        return Group(*parts)

    def _bars(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        for kind, word in _KINDS.items():
            total = sum(job.kind == kind for job in self._jobs.values())
            if total:
                done = self.progress.count(JobStatus.DONE, kind)
                bar = ProgressBar(total, done, width=30, complete_style="green", finished_style="green")
                grid.add_row(word, bar, f"{done} of {total}")
        return grid

    def _running(self, job: Job) -> Text:
        used = self.progress.now() - self.progress.running[job.name]
        expected = self.progress.expected(job)
        of = "" if expected is None else f" of about {short_duration(expected)}"
        part = job.part_done(self.progress.study)
        news = "" if part is None else f", {100 * part:.0f} % trained" if part < 1 else ", certifying"
        text = Text("▸ ", "cyan", no_wrap=True, overflow="ellipsis")
        text.append(job.label, "bold")
        text.append(f"  {short_duration(used)}{of}{news}", "default")
        return text

    def _totals(self) -> str:
        left, complete = self.progress.seconds_left()
        elapsed = short_duration(self.progress.now() - self.progress.began)
        eta = f"{'about' if complete else 'more than'} {short_duration(left)} left"
        return f"{elapsed} so far, {eta}; Ctrl-C stops, the same command continues"
