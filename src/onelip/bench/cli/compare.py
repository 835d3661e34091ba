"""Compare methods: measure, search, train, certify and report.

```
onelip compare                   8 methods on embedded data, 6 minutes
onelip compare --preset cpu      CIFAR-10 on a CPU, about a night
onelip compare --preset minutes  CIFAR-10, the paper's budgets / 60
onelip compare --preset paper    the paper's protocol, on all GPUs here
onelip compare --methods aol soc --datasets my_images/ --budgets 5m
```

Ctrl-C stops it and `onelip compare --out DIR` continues; nothing is done twice. More options on the same folder add
jobs. Several processes share the work. `--dry-run` prints the jobs and what they need.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from onelip.bench.cli.engine_options import EngineOptions
from onelip.bench.cli.options import DATASETS, FOLDER, METHODS, Output, dataset_name
from onelip.bench.cli.report import write_study_report
from onelip.bench.data import load
from onelip.bench.engines.driver import Driver
from onelip.bench.measurement.memory import GIB, available_memory
from onelip.bench.records import dump_json
from onelip.bench.records.durations import Clock
from onelip.bench.records.machine import free_cores, usable_cores, usable_device
from onelip.bench.records.specs import RecipeName
from onelip.bench.study.estimates import predicted_bytes
from onelip.bench.study.job_base import Job, JobState, JobStatus, budget_word, state_of
from onelip.bench.study.live_view import LiveView, TimeLeft, plan_table, result_table, short_duration
from onelip.bench.study.options import PresetName, StudyOptions, beside_preset, preset
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import add_to_study, check_trusted, stored_options
from onelip.bench.terminal import Terminal, plain_table, say
from onelip.factories import find_factory, is_factory_name, search_working_folder

_CORES_FOR_TWO_SEEDS = 4
"""With as many, the preset quick has time for a second seed, so that its report knows how much results vary."""


@dataclass(frozen=True, kw_only=True)
class Command(Output):
    preset: PresetName | None = None
    """What to compare; the options below replace parts of it. By default what --out holds already, else quick."""
    model: tuple[str, ...] = ()
    """Architectures: convnet, fastnet, ... with every method; and functions of your own, module:function, of
    num_classes and input_shape, each as it is. By default convnet."""
    methods: Annotated[tuple[str, ...], METHODS] = ()
    """Methods, see `onelip methods`; by default aol bcop cayley cpl lot sll soc and the plain baseline, standard."""
    sizes: tuple[Literal["XS", "S", "M", "L"], ...] = ()
    """Sizes of the paper's ConvNet."""
    width: int | None = None
    """Channels after the first layer, instead of --sizes."""
    datasets: Annotated[tuple[str, ...], DATASETS] = ()
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
    out: Annotated[Path, FOLDER] = Path("study")
    """Folder of the study."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where jobs compute; auto is cuda where this machine has one. CUDA_VISIBLE_DEVICES chooses among GPUs."""
    engine_options: EngineOptions = field(default_factory=EngineOptions)
    dry_run: bool = False
    """Only print the jobs, with estimated time and memory; writes nothing."""
    no_report: bool = False
    """Do not write the report at the end; `onelip report DIR` does it at any time."""

    def run(self) -> int:
        """Compare; 1 if a job has failed, 130 after Ctrl-C."""
        options = self._options()
        self.engine_options.check(options)
        search_working_folder()
        models = list(dict.fromkeys(name for one in options for name in one.models))
        check_trusted(models, self.model)
        for name in filter(is_factory_name, models):
            find_factory(name)  # one that is missing is told now, not by the first job
        jobs = plan(*options)
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
        given["datasets"] = tuple(dataset_name(name) for name in self.datasets)
        given["models"] = () if known.issuperset(self.model) else self.model
        is_plain = self.preset is None and all(value in (None, ()) for value in given.values())
        if is_plain and stored:
            return stored
        # Another device than this machine's may be that of a cluster's nodes.
        device = usable_device() if self.device == "auto" else self.device
        name = self.preset or "quick"
        if name == "quick" and given["seeds"] is None and device == "cpu" and usable_cores() >= _CORES_FOR_TWO_SEEDS:
            given["seeds"] = 2
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
        self.engine_options.check_gpus(options)
        for name in dict.fromkeys(name for one in options for name in one.datasets):
            load(name)  # a data set that is missing is told now, not by the first training hours later
        engine = self.engine_options.make_engine(self.out, options)
        add_to_study(self.out, options, jobs)
        if self.engine_options.engine == "local" and not self.quiet:
            _tell_if_busy(jobs)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` stops a study as Ctrl-C does
        shown = Terminal(stderr=True, quiet=self.quiet)
        with LiveView(TimeLeft(jobs, self.out, engine.workers), _title(jobs, self.out), shown) as view:
            return Driver(jobs, self.out, engine, view).run()


def _tell_if_busy(jobs: Sequence[Job]) -> None:
    """Say what other programs take from measurements and trainings on this machine."""
    free, wanted = free_cores(), usable_cores()
    if free is not None and free < wanted - 0.5 and any(job.uses_device and job.device == "cpu" for job in jobs):
        say(
            f"{free:.1f} of {wanted} cores are free: other programs make measured times too long, and trainings with a "
            "budget of the wall clock too short; records say how much of the processor they had"
        )


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
    console.print(plain_table(("stage",), ("jobs", "hours"), _stages(to_do, study)))
    if any(job.device == "cuda" for job in jobs):
        console.print("Hours are those of GPUs; days on a cluster are these hours by its GPUs and by 24.")
    console.print(f"Memory is the predicted peak of live tensors; the largest is {needed / GIB:.2f} GiB.")
    if jobs[0].device == "cpu" and needed > available_memory():
        console.print(f"Only {available_memory() / GIB:.2f} GiB are free here: the largest jobs will fail.")


def _stages(jobs: Sequence[Job], study: Path) -> list[tuple[str, str, str]]:
    """Jobs of each kind and budget, and the hours that they take on their device, as far as known."""
    found: dict[str, list[float]] = {}
    for job in jobs:
        name = f"{job.kind} {budget_word(job.details)}".strip() if job.trains else job.kind
        found.setdefault(name, []).append((job.estimated_seconds(study) or 0.0) / 3600 if job.uses_device else 0.0)
    found["all"] = [one for hours in found.values() for one in hours]
    return [(name, f"{len(hours):,}", f"{sum(hours):,.1f}") for name, hours in found.items()]


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
