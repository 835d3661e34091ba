"""`onelip measure time|memory|macs`: what networks cost, relative to plain convolutions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from onelip.bench.cli import CommandInfo
from onelip.errors import InvalidInputError

if TYPE_CHECKING:
    from onelip.bench.measurement import Job, Outcome, Rounds
    from onelip.bench.measurement.campaign import Quantity


@dataclass(frozen=True)
class Combinations:
    """Which networks are measured: every method in every size on the images of every data set."""

    methods: tuple[str, ...] = ()
    """Keys of methods, such as aol lot soc; all methods if none is given."""
    sizes: tuple[Literal["XS", "S", "M", "L"], ...] | None = None
    """Sizes of the paper's ConvNet; XS if nothing is said."""
    width: int | None = None
    """Channels after the first layer, instead of --sizes."""
    datasets: tuple[str, ...] = ("cifar10", "tiny-imagenet")
    """Data sets; only the shapes of their images matter, nothing is downloaded."""
    batch_size: int = 256
    """Images per batch."""
    runs_dir: Path = Path("runs")
    """Folder for the records. A combination that has one (for this code and hardware) is not measured again."""

    def measure(
        self, quantity: Quantity, device: str = "cpu", predicted: bool = False, rounds: Rounds | None = None
    ) -> int:
        """Measure all combinations, with a progress bar, and print the table; 1 if one of them failed."""
        from onelip.bench.measurement.tables import print_outcomes

        jobs = self._jobs(quantity, device, predicted, rounds)
        outcomes = _run(jobs, self.runs_dir)
        print_outcomes(quantity, outcomes, self.runs_dir)
        return 1 if any(outcome.failure for outcome in outcomes) else 0

    def _jobs(self, quantity: Quantity, device: str, predicted: bool, rounds: Rounds | None) -> list[Job]:
        from onelip.bench.measurement import REFERENCE, Job, Workload
        from onelip.layers import get_method, list_methods

        if self.sizes == () or not self.datasets:
            raise InvalidInputError("name at least one size and one data set")
        if self.sizes is not None and self.width is not None:
            raise InvalidInputError("pass either --sizes or --width, not both")
        keys = [get_method(name).key for name in self.methods] or [method.key for method in list_methods()]
        # A timing holds the reference's time already; elsewhere the reference is a row of its own.
        rows = keys if quantity == "time" else [REFERENCE, *keys]
        return [
            Job(quantity, Workload(method, size, dataset, self.batch_size, self.width), device, predicted, rounds)
            for dataset in dict.fromkeys(self.datasets)
            for size in dict.fromkeys(self.sizes or (None,))
            for method in dict.fromkeys(rows)
        ]


@dataclass(frozen=True)
class Time:
    """Time a training step and inference with cached parameter transformations, in turns with the reference.

    The reference is the same network with plain convolutions. Medians over rounds are reported; on a CPU the
    rounds go on until the ratio is known to 2 % or --seconds have passed, on CUDA there are 100 batches.
    """

    combinations: Combinations
    seconds: float | None = None
    """Limit for the training steps, and again for the forward passes, of each network on a CPU: by default 60. At
    least seven rounds are measured in any case."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto is cuda where there is one."""

    def run(self) -> int:
        """Measure and print."""
        device = usable_device(self.device)
        return self.combinations.measure("time", device, rounds=self._rounds(device))

    def _rounds(self, device: str) -> Rounds | None:
        """None for the usual ones, so that their records stay the same."""
        import torch

        from onelip.bench.measurement.throughput import default_rounds

        if self.seconds is None:
            return None
        check_seconds(self.seconds)
        return replace(default_rounds(torch.device(device)), seconds=self.seconds)


@dataclass(frozen=True)
class Memory:
    """Peak memory of training (parameters, gradients, momentum, activations, temporaries) and of inference.

    On CUDA it is the allocator's peak, on a CPU the exact sum of all live tensors. With --predict the same sum is
    taken on tensors without data: it takes seconds for networks of any size and no memory.
    """

    combinations: Combinations
    predict: bool = False
    """Predict instead of running the networks."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto is cuda where there is one. Without effect on a prediction."""

    def run(self) -> int:
        """Measure or predict, and print."""
        device = "cpu" if self.predict else usable_device(self.device)
        return self.combinations.measure("memory", device, self.predict)


@dataclass(frozen=True)
class Macs:
    """Count multiply-accumulates of one batch: parameter and input transformation apart, and a training step.

    They are counted on tensors without data, so no device is needed.
    """

    combinations: Combinations

    def run(self) -> int:
        """Count and print."""
        return self.combinations.measure("macs")


@dataclass(frozen=True)
class Measure:
    """Measure time, memory or operation counts of networks, relative to plain convolutions."""

    quantity: (
        Annotated[Time, tyro.conf.subcommand("time")]
        | Annotated[Memory, tyro.conf.subcommand("memory")]
        | Annotated[Macs, tyro.conf.subcommand("macs")]
    )

    def run(self) -> int:
        """Do what was asked for."""
        return self.quantity.run()


def check_seconds(seconds: float) -> None:
    """Refuse what is no limit for a time."""
    if not 0 < seconds < float("inf"):
        raise InvalidInputError(f"--seconds must be a positive number, not {seconds}")


def usable_device(name: str) -> str:
    """The device of this name, "auto" resolved; refuses what this machine does not have."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidInputError(f"there is no device {name!r}, use auto, cpu, cuda or cuda:<number>") from None
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        raise InvalidInputError(f"the device {name!r} cannot be used here, use cpu or auto")
    return name


def _run(jobs: list[Job], runs_dir: Path) -> list[Outcome]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from onelip.bench.measurement import run_job

    outcomes: list[Outcome] = []
    columns = (TextColumn("{task.description:30}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(jobs))
        for job in jobs:
            work = job.workload
            progress.update(bar, description=f"{work.dataset} {work.size_name} {work.method}")
            outcomes.append(run_job(job, runs_dir))
            progress.advance(bar)
    return outcomes


COMMAND = CommandInfo("measure", Measure)
