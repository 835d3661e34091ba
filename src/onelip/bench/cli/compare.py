"""`onelip compare`: the whole comparison, from nothing to a report."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from onelip.bench.cli.engine_options import EngineOptions
from onelip.bench.cli.report import write_study_report
from onelip.bench.data import load
from onelip.bench.engines.driver import Driver
from onelip.bench.measurement.memory_limits import GIB, available_memory
from onelip.bench.runs import dump_json
from onelip.bench.runs.dataset_option import DATASETS_ALIAS, DatasetOption
from onelip.bench.runs.devices import usable_device
from onelip.bench.runs.durations import Clock
from onelip.bench.runs.recipes import RecipeName
from onelip.bench.study.job_base import Job, JobState, JobStatus, state_of
from onelip.bench.study.job_memory import predicted_bytes
from onelip.bench.study.job_tables import plan_table, result_table
from onelip.bench.study.live_view import LiveView
from onelip.bench.study.options import PresetName, StudyOptions, beside_preset, preset
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import add_to_study, check_trusted, stored_options
from onelip.bench.study.time_left import TimeLeft, short_duration
from onelip.bench.terminal import Terminal, say
from onelip.errors import InvalidInputError
from onelip.factories import find_factory, is_factory_name, search_working_folder


@dataclass(frozen=True, kw_only=True)
class CompareCommand:
    """Compare methods: measure, search, train, certify, diagnose, and write a report.

    onelip compare                   8 methods on embedded data, below 10 minutes

    onelip compare --preset cpu      CIFAR-10 on a CPU, about a night

    onelip compare --preset minutes  CIFAR-10, the paper's budgets divided by 60

    onelip compare --preset paper    the paper's protocol, on all GPUs found here

    Ctrl-C stops it, `onelip compare --out DIR` continues; nothing is done twice.

    More options on the same folder add jobs. Several processes share the work.
    """

    preset: PresetName | None = None
    """What to compare; the options below replace parts of it. By default what --out holds already, else quick."""
    model: tuple[str, ...] = ()
    """Architectures: convnet, fastnet, ... with every method; and functions of your own, module:function, of
    num_classes and input_shape, each as it is. By default convnet."""
    methods: tuple[str, ...] = ()
    """Methods, see `onelip methods`; by default aol bcop cayley cpl lot sll soc and the plain baseline, standard."""
    sizes: tuple[Literal["XS", "S", "M", "L"], ...] = ()
    """Sizes of the paper's ConvNet."""
    width: int | None = None
    """Channels after the first layer, instead of --sizes."""
    datasets: Annotated[tuple[DatasetOption, ...], DATASETS_ALIAS] = ()
    """Data sets, see `onelip data list`, folders with one sub-folder of images per class, or .npz files."""
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
    clock: Clock | None = None
    """What --budgets count: time on the clock, or processor time, which other programs on the machine leave alone."""
    seeds: int | None = None
    """Final trainings of each network, with the seeds 0, 1, ..."""
    batch_size: int | None = None
    """Images per step, in training and in measurements."""
    recipe: RecipeName | None = None
    """Recipe of the trainings: the paper's, or the one for minutes (docs/training.md)."""
    measure: Literal["full", "short", "none"] | None = None
    """Times as `onelip measure time`, or within seconds with wide intervals, or no costs at all."""
    out: Path = Path("study")
    """Folder of the study."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where jobs compute; auto is cuda where this machine has one. CUDA_VISIBLE_DEVICES chooses among GPUs."""
    engine_options: EngineOptions = field(default_factory=EngineOptions)
    dry_run: bool = False
    """Only print the jobs, with estimated time and memory; writes nothing."""
    quiet: bool = False
    """Show no progress, only the results."""
    json: bool = False
    """Print the state and the result of every job as JSON instead of tables."""
    no_report: bool = False
    """Do not write the report at the end; `onelip report DIR` does it at any time."""

    def run(self) -> int:
        """Compare; 1 if a job has failed, 130 after Ctrl-C."""
        if self.out.exists() and not self.out.is_dir():
            raise InvalidInputError(f"{self.out}: is a file; --out needs a folder")
        search_working_folder()
        options = self._options()
        models = list(dict.fromkeys(name for one in options for name in one.models))
        check_trusted(models, self.model)
        for name in filter(is_factory_name, models):
            find_factory(name)  # one that is missing is told now, not by the first job
        jobs = plan(*options)
        if self.engine_options.engine == "simulate":
            self.engine_options.simulate(jobs)
            return 0
        console = Terminal()
        if self.dry_run:
            _print_plan(jobs, self.out, self.engine_options.workers or 1, console)
            return 0
        try:
            states = self._work(options, jobs)
        except KeyboardInterrupt:
            done = sum(job.recorded(self.out).status is JobStatus.DONE for job in jobs)
            say(f"interrupted, {done} of {len(jobs)} jobs are done; {self._continuation()} continues")
            return 130
        if self.json:
            rows = [{"job": job.name, **asdict(states[job.name])} for job in jobs]
            print(dump_json(rows))
        else:
            _print_summary(jobs, states, self.out, console)
            if any(state.status is JobStatus.FAILED for state in states.values()):
                console.print(f"{self._continuation()} tries them again.", soft_wrap=True)
        if not self.no_report:
            write_study_report(self.out, quiet=self.quiet or self.json)
        return 1 if any(state.status is JobStatus.FAILED for state in states.values()) else 0

    def _options(self) -> list[StudyOptions]:
        """Those given, or all that the study had so far if none is."""
        networks = ("methods", "sizes", "width", "datasets", "kernel_sizes", "measure")
        runs = ("budgets", "epochs", "clock", "search_runs", "search_budget", "seeds", "batch_size", "recipe")
        given = {name: getattr(self, name) for name in (*networks, *runs)}
        stored = stored_options(self.out)
        # Those that the study has already are named to say that they may be imported.
        known = {name for one in stored for name in one.models}
        given["models"] = () if known.issuperset(self.model) else self.model
        is_plain = self.preset is None and all(value in (None, ()) for value in given.values())
        if is_plain and stored:
            return stored
        # Another device than this machine's may be that of a cluster's nodes.
        device = usable_device() if self.device == "auto" else self.device
        name = self.preset or "quick"
        chosen, beside = [preset(name).changed(**given, device=device)], beside_preset(name)
        shared = {key: given[key] for key in ("datasets", "budgets", "epochs", "clock", "seeds")}
        if beside is not None and all(value in (None, ()) for key, value in given.items() if key not in shared):
            chosen.append(beside.changed(**shared, device=device))
        return chosen

    def _continuation(self) -> str:
        """The command that goes on with the study: on the same engine, with models of the user's own named again."""
        own = [name for name in self.model if is_factory_name(name)]
        words = ["--out", str(self.out), *(["--model", *own] if own else []), *self.engine_options.arguments()]
        return f"`onelip compare {shlex.join(words)}`"

    def _work(self, options: Sequence[StudyOptions], jobs: Sequence[Job]) -> dict[str, JobState]:
        """Options, jobs and engine to records."""
        for name in dict.fromkeys(name for one in options for name in one.datasets):
            load(name)  # a data set that is missing is told now, not by the first training hours later
        engine = self.engine_options.make_engine(self.out, options)
        add_to_study(self.out, options, jobs)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` stops a study as Ctrl-C does
        shown = Terminal(stderr=True, quiet=self.quiet)
        with LiveView(TimeLeft(jobs, self.out, engine.workers), _title(jobs, self.out), shown) as view:
            return Driver(jobs, self.out, engine, view).run()


def _title(jobs: Sequence[Job], study: Path) -> str:
    methods = {job.network.method for job in jobs if job.kind == "train"}
    datasets = dict.fromkeys(job.network.dataset for job in jobs)
    counts = [
        f"{count} {word}{'s' if count != 1 else ''}" for count, word in ((len(methods), "method"), (len(jobs), "job"))
    ]
    return f"comparing {counts[0]} on {', '.join(datasets)} in {study}: {counts[1]}"


def _print_plan(jobs: Sequence[Job], study: Path, workers: int, console: Terminal) -> None:
    states = {job.name: state_of(job, study) for job in jobs}
    with Terminal(stderr=True).status("predicting memory") as status:
        needed = 0
        for job in jobs:
            status.update(f"predicting memory: {job.label}")
            needed = max(needed, predicted_bytes(job) or 0)
    console.print(plan_table(jobs, states, study))
    to_do = [job for job in jobs if states[job.name].status is not JobStatus.DONE]
    seconds = [job.estimated_seconds(study) for job in to_do]
    total = sum(one for one in seconds if one is not None) / workers
    about = "more than" if None in seconds else "about"
    on = f" with {workers} workers" if workers > 1 else ""
    console.print(f"{len(to_do)} of {len(jobs)} jobs to do, {about} {short_duration(total)}{on}, then the report.")
    console.print(f"Memory is the predicted peak of live tensors; the largest is {needed / GIB:.2f} GiB.")
    if jobs[0].device == "cpu" and needed > available_memory():
        console.print(f"Only {available_memory() / GIB:.2f} GiB are free here: the largest jobs will fail.")


def _print_summary(jobs: Sequence[Job], states: Mapping[str, JobState], study: Path, console: Terminal) -> None:
    results = result_table(jobs, study)
    if results.row_count:
        console.print(results)
        console.print("Test set; certified accuracy at radius 36/255, proven.")
    failed = [job for job in jobs if states[job.name].status is JobStatus.FAILED]
    done = sum(state.status is JobStatus.DONE for state in states.values())
    console.print(f"{done} of {len(jobs)} jobs are done" + (f", {len(failed)} failed:" if failed else "."))
    for job in failed:
        console.print(f"failed: {job.label}: {states[job.name].reason}", soft_wrap=True)


COMMAND = CompareCommand
