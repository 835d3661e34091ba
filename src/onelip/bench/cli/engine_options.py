"""Options of `onelip compare` that choose the engine and go to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from onelip.bench.cli.options import AT_LEAST_1, DURATION
from onelip.bench.engines.engine_base import Engine
from onelip.bench.engines.local_engine import LocalEngine, visible_gpus
from onelip.bench.engines.ray_engine import RayEngine
from onelip.bench.engines.slurm_engine import SlurmEngine, SlurmRequest
from onelip.bench.records.durations import parse_duration
from onelip.bench.records.machine import usable_cores
from onelip.bench.study.options import StudyOptions
from onelip.errors import InvalidInputError


@Parameter(name="*", group=Group("Where jobs run"))
@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where the jobs run."""

    engine: Literal["local", "ray", "slurm"] = "local"
    """local: processes on this machine. ray: tasks of a Ray cluster (extra `ray`). slurm: array jobs by submitit (extra
    `slurm`). See docs/cluster.md."""
    workers: Annotated[int | None, AT_LEAST_1] = None
    """local, ray: jobs at once on this machine; by default one per GPU. On a CPU one, and one per core where budgets
    are processor time; times are always measured alone."""
    gpus_per_training: Annotated[int, AT_LEAST_1] = 1
    """GPUs that each trial and training is split over, by torchrun's launcher; on a CPU processes."""
    checkpoint_every: Annotated[str, DURATION] = "30s"
    """Time between checkpoints; a kill costs at most that much work."""
    address: str | None = None
    """ray: address of a running cluster; by default that of this machine, which is started if there is none."""
    cpus_per_job: Annotated[int | None, AT_LEAST_1] = None
    """ray, slurm: cores of each job."""
    gpu_memory: Annotated[int | None, AT_LEAST_1] = None
    """ray: GiB of each GPU; small trainings by epochs then share one. Those with a time budget never do."""
    partition: str | None = None
    """slurm: partition."""
    account: str | None = None
    """slurm: account."""
    constraint: str | None = None
    """slurm: features that nodes must have, such as a100; ray: a resource, such as accelerator_type:A100. Budgets
    mean the same only on one kind of device."""
    time: Annotated[str, DURATION] = "12h"
    """slurm: limit of one job; a training saves a checkpoint before it and is queued again, so short ones are fine."""
    slurm_local: bool = False
    """slurm: submitit's local executor instead of a cluster, to try it out."""

    def make_engine(self, study: Path, options: Sequence[StudyOptions]) -> Engine:
        """The engine, ready to start jobs; an extra that is missing is named."""
        device, split = options[0].device, self.gpus_per_training
        shared = {"checkpoint_every": self.checkpoint_every, "gpus_per_training": split}
        match self.engine:
            case "local":
                # Processor time leaves room for neighbours, and small networks do not fill several cores.
                on_cpu = usable_cores() // split if all(one.clock == "cores" for one in options) else 1
                workers = self.workers or (len(visible_gpus()) // split if device == "cuda" else max(1, on_cpu))
                return LocalEngine(study, workers, **shared)
            case "ray":
                return RayEngine(
                    study,
                    address=self.address,
                    workers=self.workers,
                    cpus_per_job=self.cpus_per_job,
                    card_gib=self.gpu_memory,
                    constraint=self.constraint,
                    device=device,
                    **shared,
                )
            case "slurm":
                request = SlurmRequest(
                    self.partition, self.account, self.constraint, parse_duration(self.time), self.cpus_per_job
                )
                return SlurmEngine(study, request, is_local=self.slurm_local, **shared)

    def arguments(self) -> list[str]:
        """As words of a command line: those that are not as they are by default."""
        words = []
        for one in fields(self):
            value = getattr(self, one.name)
            if value != one.default:
                words += [f"--{one.name.replace('_', '-')}", *([] if value is True else [str(value)])]
        return words

    def check(self, options: Sequence[StudyOptions]) -> None:
        """Refuse what no machine could do, before a plan is made."""
        for one in options:
            if one.batch_size % self.gpus_per_training:
                raise InvalidInputError(
                    f"the batch of {one.batch_size} images cannot be split over {self.gpus_per_training} GPUs; "
                    "--gpus-per-training must divide it"
                )

    def check_gpus(self, options: Sequence[StudyOptions]) -> None:
        """Refuse to work here with GPUs that are not here."""
        gpus = visible_gpus()
        if self.engine == "local" and options[0].device == "cuda" and len(gpus) < self.gpus_per_training:
            has = f"{len(gpus)} GPUs" if gpus else "no GPU"
            raise InvalidInputError(f"there is {has} here for --device cuda; use cpu, or another engine")
