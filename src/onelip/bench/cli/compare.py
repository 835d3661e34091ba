"""`onelip compare`: the whole comparison, from nothing to a report."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onelip.bench.cli import CommandInfo
from onelip.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

    from onelip.bench.study.jobs import Job, JobState
    from onelip.bench.study.options import StudyOptions
    from onelip.bench.study.session import StudySession


@dataclass(frozen=True, kw_only=True)
class CompareCommand:
    """Compare methods: measure, search, train, certify, diagnose, and write a report.

    onelip compare                   8 methods on embedded data, below 10 minutes

    onelip compare --preset cpu      CIFAR-10 on a CPU, about a night

    onelip compare --preset paper    the paper's protocol, on all GPUs found here

    Ctrl-C stops it, `onelip compare --out DIR` continues; nothing is done twice.

    More options on the same folder add jobs. Several processes share the work.
    """

    preset: Literal["quick", "cpu", "paper"] | None = None
    """What to compare; the options below replace parts of it. By default what --out holds already, else quick."""
    methods: tuple[str, ...] = ()
    """Methods, see `onelip methods`; by default aol bcop cayley cpl lot sll soc and the plain baseline, standard."""
    sizes: tuple[Literal["XS", "S", "M", "L"], ...] = ()
    """Sizes of the paper's ConvNet."""
    width: int | None = None
    """Channels after the first layer, instead of --sizes."""
    datasets: tuple[str, ...] = ()
    """Data sets, see `onelip data list`."""
    budgets: tuple[str, ...] = ()
    """Training times of the final trainings, such as 2h 10h 24h."""
    epochs: int | None = None
    """Passes over the training set, instead of --budgets."""
    kernel_sizes: tuple[int, ...] = ()
    """Sides of the kernels; the first on all data sets, others on the first data set only, as in the paper."""
    search_runs: int | None = None
    """Trials of each search for learning rate and weight decay; 0 takes the methods' defaults."""
    search_budget: str | None = None
    """Training time of a trial; by default the shortest of --budgets."""
    seeds: int | None = None
    """Final trainings of each network, with the seeds 0, 1, ..."""
    batch_size: int | None = None
    """Images per step, in training and in measurements."""
    recipe: Literal["paper", "short"] | None = None
    """Recipe of the trainings: the paper's, or the one for minutes (docs/training.md)."""
    measure: Literal["full", "short", "none"] | None = None
    """Times as `onelip measure time`, or within seconds with wide intervals, or no costs at all."""
    out: Path = Path("study")
    """Folder of the study."""
    device: str = "auto"
    """cpu or cuda; auto is cuda where there is one."""
    workers: int | None = None
    """Processes that share the jobs; by default one per GPU, and one on a CPU."""
    shard: str = "1/1"
    """i/n: only the i-th of n parts, for batch systems: --shard $SLURM_ARRAY_TASK_ID/16 with --array=1-16."""
    checkpoint_every: str = "30s"
    """Time between checkpoints; a kill costs at most that much work."""
    dry_run: bool = False
    """Only print the jobs, with estimated time and memory; writes nothing."""
    no_report: bool = False
    """Do not write the report at the end; `onelip report DIR` does it at any time."""

    def run(self) -> int:
        """Compare; 1 if a job has failed, 130 after Ctrl-C."""
        from rich.console import Console

        session = self._session()
        jobs = session.jobs()
        console = Console(highlight=False, markup=False)
        if self.dry_run:
            _print_plan(session, jobs, console)
            return 0
        try:
            states = session.run()
        except KeyboardInterrupt:
            _say_how_to_continue(session, jobs)
            return 130
        _print_summary(session, jobs, states, console)
        if not self.no_report:
            self._report(session)
        return 1 if any(state.status.value == "failed" for state in states.values()) else 0

    def _session(self) -> StudySession:
        from onelip.bench.runs.durations import parse_duration
        from onelip.bench.study.session import StudySession

        device, gpus = _device(self.device)
        workers = max(1, gpus) if self.workers is None else self.workers
        if workers < 1:
            raise InvalidInputError(f"workers must be 1 or more, got {self.workers}")
        if self.out.exists() and not self.out.is_dir():
            raise InvalidInputError(f"{self.out}: is a file; --out needs a folder")
        return StudySession(
            self._options(), self.out, device, workers, _part(self.shard), parse_duration(self.checkpoint_every)
        )

    def _options(self) -> list[StudyOptions]:
        """Those given, or all that the study had so far if none is."""
        from onelip.bench.study.options import preset
        from onelip.bench.study.plan_file import stored_options

        names = ("methods", "sizes", "width", "datasets", "budgets", "epochs", "kernel_sizes", "search_runs")
        given = {
            name: getattr(self, name) for name in (*names, "search_budget", "seeds", "batch_size", "recipe", "measure")
        }
        stored = stored_options(self.out)
        is_plain = self.preset is None and all(value in (None, ()) for value in given.values())
        if is_plain and stored:
            return stored
        return [preset(self.preset or "quick").changed(**given)]

    def _report(self, session: StudySession) -> None:
        from onelip.bench.cli.report import ReportOptions
        from onelip.bench.study.jobs import JobStatus

        everything = session.states(session.all_jobs())
        elsewhere = sum(state.status is JobStatus.RUNNING for state in everything.values())
        if elsewhere:
            print(f"{elsewhere} jobs are being done by other processes; the last one to end writes the report")
        else:
            ReportOptions(study=self.out).run()


def _device(name: str) -> tuple[str, int]:
    """cpu or cuda, and how many GPUs there are to use."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if gpus else "cpu"
    if name == "cpu":
        return "cpu", 0
    if name == "cuda" and gpus:
        return "cuda", gpus
    raise InvalidInputError(
        f"the device {name!r} cannot be used here, use auto, cpu or cuda; CUDA_VISIBLE_DEVICES chooses among GPUs"
    )


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise InvalidInputError(f"{text!r} is not a part of a study; write i/n with i from 1 to n, such as 2/8")
    return int(found[1]), int(found[2])


def _print_plan(session: StudySession, jobs: Sequence[Job], console: Console) -> None:
    from rich.console import Console as RichConsole

    from onelip.bench.measurement.memory_limits import GIB, available_memory
    from onelip.bench.study.costs import predicted_bytes
    from onelip.bench.study.jobs import JobStatus
    from onelip.bench.study.progress import short_duration
    from onelip.bench.study.tables import plan_table

    states = session.states(jobs)
    with RichConsole(stderr=True).status("predicting memory") as status:
        needed = 0
        for job in jobs:
            status.update(f"predicting memory: {job.label}")
            needed = max(needed, predicted_bytes(job) or 0)
    console.print(plan_table(jobs, states, session.study))
    to_do = [job for job in jobs if states[job.name].status is not JobStatus.DONE]
    seconds = [job.estimated_seconds(session.study) for job in to_do]
    total = sum(one for one in seconds if one is not None) / session.workers
    about = "more than" if None in seconds else "about"
    on = f" with {session.workers} workers" if session.workers > 1 else ""
    console.print(f"{len(to_do)} of {len(jobs)} jobs to do, {about} {short_duration(total)}{on}, then the report.")
    console.print(f"Memory is the predicted peak of live tensors; the largest is {needed / GIB:.2f} GiB.")
    if session.device == "cpu" and needed > available_memory():
        console.print(f"Only {available_memory() / GIB:.2f} GiB are free here: the largest jobs will fail.")


def _print_summary(
    session: StudySession, jobs: Sequence[Job], states: Mapping[str, JobState], console: Console
) -> None:
    from onelip.bench.study.jobs import JobStatus
    from onelip.bench.study.tables import result_table

    results = result_table(jobs, session.study)
    if results.row_count:
        console.print(results)
        console.print("Test set; certified accuracy at radius 36/255, proven.")
    failed = [job for job in jobs if states[job.name].status is JobStatus.FAILED]
    done = sum(state.status is JobStatus.DONE for state in states.values())
    console.print(f"{done} of {len(jobs)} jobs are done" + (f", {len(failed)} failed:" if failed else "."))
    for job in failed:
        console.print(f"failed: {job.label}: {states[job.name].reason}", soft_wrap=True)
    if failed:
        console.print(f"{_continuation(session)} tries them again.", soft_wrap=True)


def _say_how_to_continue(session: StudySession, jobs: Sequence[Job]) -> None:
    from onelip.bench.study.jobs import JobStatus

    done = sum(state.status is JobStatus.DONE for state in session.states(jobs).values())
    print(
        f"onelip: interrupted, {done} of {len(jobs)} jobs are done; {_continuation(session)} continues", file=sys.stderr
    )


def _continuation(session: StudySession) -> str:
    part = "" if session.part[1] == 1 else f" --shard {session.part[0]}/{session.part[1]}"
    return f"`onelip compare --out {shlex.quote(str(session.study))}{part}`"


COMMAND = CommandInfo("compare", CompareCommand)
