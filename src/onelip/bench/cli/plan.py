"""`onelip plan`: what a study costs on a cluster, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.bench.cli.stages import stages
from onelip.bench.engines.simulated_engine import Cluster, simulate
from onelip.bench.measurement.memory_limits import CARD_OVERHEAD, GIB
from onelip.bench.published import published_epochs
from onelip.bench.runs import dump_json
from onelip.bench.study.job_base import Job
from onelip.bench.study.job_memory import predicted_bytes
from onelip.bench.study.options import PresetName, preset
from onelip.bench.study.planner import plan
from onelip.bench.study.shortlist import SHORTLISTS, try_shortlist
from onelip.bench.study.time_left import short_duration
from onelip.bench.terminal import Terminal, plain_table
from onelip.errors import InvalidInputError

_NOISE = 0.5
_REPETITIONS = 200
_MOST_GPUS_OF_A_NODE = 8
_NOWHERE = Path("nowhere")


@dataclass(frozen=True, kw_only=True)
class PlanCommand:
    """Say how long a study takes on a cluster, what each stage costs in GPU-hours, what fits, and what is cheaper.

    Example: onelip plan --preset paper --gpus 8 --gpu a100-80gb
    """

    preset: PresetName = "paper"
    """What to compare, see `onelip compare`."""
    gpus: int = 8
    """GPUs of the cluster."""
    gpu: str = "a100-80gb"
    """A name that ends in its memory, such as a100-80gb or rtx4090-24gb."""
    failures: float = 0.0
    """Part of the nodes that fail within an hour, and of the jobs that are pre-empted."""

    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print all figures as JSON."""

    def run(self) -> int:
        """Work it out and print it."""
        card = re.fullmatch(r".*?(\d+)\s*gi?b", self.gpu.lower())
        if card is None:
            raise InvalidInputError(f"the name of a GPU ends in its memory, such as a100-80gb, got {self.gpu!r}")
        if self.gpus < 1:
            raise InvalidInputError(f"gpus must be 1 or more, got {self.gpus}")
        with stages(self.quiet) as tell:
            jobs = plan(preset(self.preset).changed(device="cuda"))
            tell(f"simulating {len(jobs):,} jobs on {self.gpus} GPUs")
            of_a_node = max(count for count in range(1, _MOST_GPUS_OF_A_NODE + 1) if self.gpus % count == 0)
            cluster = Cluster(self.gpus // of_a_node, of_a_node, self.failures, self.failures)
            engine = simulate(jobs, cluster)
            facts: dict[str, Any] = {
                "gpus": engine.workers,
                "gpu": self.gpu,
                "seconds": engine.clock,
                "stages": _stages(jobs),
                "memory": _memory(jobs, int(card[1])),
                "shortlists": _shortlists() if self.preset == "paper" else [],
            }
        if self.json:
            print(dump_json(facts))
        else:
            _print(facts, self.gpus)
        return 0


def _stages(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Jobs and GPU-hours of each kind of job, and of all."""
    found: dict[str, list[float]] = {}
    for job in jobs:
        budget = job.details.get("budget") or ""
        name = f"{job.kind} {budget}".strip() if job.kind in ("trial", "train") else job.kind
        found.setdefault(name, []).append((job.estimated_seconds(_NOWHERE) or 0.0) / 3600 if job.uses_device else 0.0)
    found["all"] = [one for hours in found.values() for one in hours]
    return [{"stage": name, "jobs": len(hours), "gpu_hours": sum(hours)} for name, hours in found.items()]


def _memory(jobs: Sequence[Job], card_gib: int) -> dict[str, Any]:
    """Predicted memory against the card. Networks with smaller kernels need no more than those with 3 x 3."""
    trained = [job for job in jobs if job.kind == "train" and job.network.kernel_size == 3]
    needed = {job.network.label: ((predicted_bytes(job) or 0) + CARD_OVERHEAD) / GIB for job in trained}
    large = {label: size for label, size in needed.items() if size > card_gib}
    largest = max(needed.values(), default=0.0)
    return {"card_gib": card_gib, "largest_gib": largest, "networks": len(needed), "too_large_gib": large}


def _shortlists() -> list[dict[str, Any]]:
    """How often cheaper plans find the same best three."""
    rows = []
    for shortlist in SHORTLISTS:
        exact = try_shortlist(shortlist)
        noisy = try_shortlist(shortlist, noise=_NOISE, repetitions=_REPETITIONS)
        row = {"methods": ", ".join(f"{count} for {hours}h" for hours, count in shortlist.items())}
        row |= {"gpu_hours": exact.hours, "full_gpu_hours": exact.full_hours, "comparisons": exact.comparisons}
        rows.append(row | {"same_best_three": exact.same_best, "with_noise": noisy.same_best})
    return rows


def _print(facts: dict[str, Any], gpus: int) -> None:
    say = Terminal().print  # lines are broken at the width of the terminal
    rows = [
        (row["stage"], str(row["jobs"]), f"{row['gpu_hours']:,.0f}", f"{row['gpu_hours'] / gpus / 24:.1f}")
        for row in facts["stages"]
    ]
    say(plain_table(("stage",), ("jobs", "GPU-hours", f"days on {gpus} GPUs"), rows))
    say("Trainings for as long as the trials of their search are one of these trials, and only certified.")
    say(f"On {facts['gpus']} x {facts['gpu']}: {short_duration(facts['seconds'])}, simulated job by job.")
    memory = facts["memory"]
    large = memory["too_large_gib"]
    fit = f"{len(large)} of {memory['networks']} networks do not fit" if large else "every network fits"
    say(f"Memory: the largest training needs {memory['largest_gib']:.1f} of {memory['card_gib']} GiB; {fit}.")
    for label, size in large.items():
        say(f"  does not fit: {label} ({size:.0f} GiB)")
    say("Trainings have a time budget, and so a GPU each: shared, they would slow each other down.")
    if not facts["shortlists"]:
        return
    known = [row.epochs for row in published_epochs() if row.epochs is not None]
    say(f"Within 2h the paper's GPU made {min(known)} to {max(known)} epochs, by method, size and data set.")
    say("\nCheaper: all methods for 2h, and of each data set, kernel and size only the best for longer.")
    cheaper = [
        (
            row["methods"],
            f"{row['gpu_hours']:,} of {row['full_gpu_hours']:,}",
            *(f"{100 * row[name]:.0f} %" for name in ("same_best_three", "with_noise")),
        )
        for row in facts["shortlists"]
    ]
    say(plain_table(("methods",), ("GPU-hours", "same best three", "with noise"), cheaper))
    say(
        f"How often the best three are those of the full protocol, in the {facts['shortlists'][-1]['comparisons']} "
        f"comparisons that the paper has published, and if results vary by {_NOISE} points from run to run. The "
        "searches and the one seed stay: of trials and other seeds the paper has published nothing that a cheaper plan "
        "could be tried on."
    )


COMMAND = PlanCommand
