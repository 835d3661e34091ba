"""Options of `onelip compare` that choose the engine and go to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from onelip.bench.engines.engine_base import Engine
from onelip.bench.engines.local_engine import LocalEngine, visible_gpus
from onelip.bench.engines.ray_engine import RayEngine
from onelip.bench.engines.simulated_engine import Cluster, simulate
from onelip.bench.engines.slurm_engine import SlurmEngine, SlurmRequest
from onelip.bench.runs.durations import parse_duration
from onelip.bench.study.job_base import Job
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.time_left import short_duration
from onelip.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where the jobs run."""

    engine: Literal["local", "ray", "slurm", "simulate"] = "local"
    """local: processes on this machine. ray: tasks of a Ray cluster (extra `ray`). slurm: array jobs by submitit (extra
    `slurm`). simulate: trains nothing, shows how long the study takes on a simulated cluster. See docs/cluster.md."""
    workers: int | None = None
    """local, ray: jobs at once on this machine; by default one per GPU, and one on a CPU."""
    gpus_per_training: int = 1
    """GPUs that each trial and training is split over, by torchrun's launcher; on a CPU processes."""
    checkpoint_every: str = "30s"
    """Time between checkpoints; a kill costs at most that much work."""
    address: str | None = None
    """ray: address of a running cluster; by default that of this machine, which is started if there is none."""
    cpus_per_job: int | None = None
    """ray, slurm: cores of each job."""
    gpu_memory: int | None = None
    """ray: GiB of each GPU; small trainings by epochs then share one. Those with a time budget never do."""
    no_shared_fs: bool = False
    """ray: only this machine sees --out; checkpoints and results travel through Ray's object store."""
    worker_dir: Path | None = None
    """ray with --no-shared-fs: folder on every node in which jobs work; by default that for temporary files."""
    partition: str | None = None
    """slurm: partition."""
    account: str | None = None
    """slurm: account."""
    constraint: str | None = None
    """slurm: features that nodes must have, such as a100; ray: a resource, such as accelerator_type:A100. Budgets
    mean the same only on one kind of device."""
    time: str = "12h"
    """slurm: limit of one job; a training saves a checkpoint before it and is queued again, so short ones are fine."""
    slurm_local: bool = False
    """slurm: submitit's local executor instead of a cluster, to try it out."""
    nodes: int = 8
    """simulate: machines."""
    gpus_per_node: int = 8
    """simulate: GPUs of each."""
    failures: float = 0.05
    """simulate: part of the nodes that fail within an hour, and of the jobs that are pre-empted."""

    def make_engine(self, study: Path, options: Sequence[StudyOptions]) -> Engine:
        """The engine, ready to start jobs; an extra that is missing is named."""
        parse_duration(self.checkpoint_every)
        self._check(options)
        device, split = options[0].device, self.gpus_per_training
        match self.engine:
            case "local":
                gpus = visible_gpus()
                if device == "cuda" and len(gpus) < split:
                    has = f"{len(gpus)} GPUs" if gpus else "no GPU"
                    raise InvalidInputError(f"there is {has} here for --device cuda; use cpu, or another engine")
                workers = self.workers or (len(gpus) // split if device == "cuda" else 1)
                return LocalEngine(study, workers, self.checkpoint_every, split)
            case "ray":
                return RayEngine(
                    study,
                    address=self.address,
                    workers=self.workers,
                    cpus_per_job=self.cpus_per_job,
                    card_gib=self.gpu_memory,
                    constraint=self.constraint,
                    is_apart=self.no_shared_fs,
                    worker_folder=self.worker_dir,
                    checkpoint_every=self.checkpoint_every,
                    gpus_per_training=split,
                    device=device,
                )
            case "slurm":
                request = SlurmRequest(
                    self.partition, self.account, self.constraint, parse_duration(self.time), self.cpus_per_job
                )
                return SlurmEngine(study, request, self.checkpoint_every, split, is_local=self.slurm_local)
            case "simulate":
                raise AssertionError("a simulation has no folder")

    def arguments(self) -> list[str]:
        """As words of a command line: those that are not as they are by default."""
        words = []
        for one in fields(self):
            value = getattr(self, one.name)
            if value != one.default:
                words += [f"--{one.name.replace('_', '-')}", *([] if value is True else [str(value)])]
        return words

    def _check(self, options: Sequence[StudyOptions]) -> None:
        if self.workers is not None and self.workers < 1:
            raise InvalidInputError(f"workers must be 1 or more, got {self.workers}")
        if self.no_shared_fs and self.engine != "ray":
            raise InvalidInputError(f"--no-shared-fs belongs to --engine ray, not to {self.engine}")
        for one in options:
            if self.gpus_per_training < 1 or one.batch_size % self.gpus_per_training:
                raise InvalidInputError(
                    f"the batch of {one.batch_size} images cannot be split over {self.gpus_per_training} GPUs; "
                    "--gpus-per-training must divide it"
                )

    def simulate(self, jobs: Sequence[Job]) -> None:
        """Run a study on a simulated cluster, in a folder that is thrown away, and say how it went."""
        cluster = Cluster(self.nodes, self.gpus_per_node, self.failures, self.failures)
        engine = simulate(jobs, cluster, self.gpus_per_training)
        hours, lost = engine.busy_seconds / 3600, engine.lost_seconds / 3600
        print(f"{len(jobs)} jobs on {engine.workers} simulated GPUs: {short_duration(engine.clock)}")
        print(f"GPU-hours: {hours:,.0f}, of which {lost:,.1f} were lost with their nodes")
        print(f"node failures: {engine.node_failures}, pre-emptions: {engine.preemptions}")
        print(f"records: {len(engine.completed)} jobs have theirs, each written once")
