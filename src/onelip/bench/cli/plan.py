"""`onelip plan`: what a study costs on a cluster, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onelip.bench.engines.simulated_engine import Cluster, simulate
from onelip.bench.measurement.memory_limits import CARD_OVERHEAD, GIB
from onelip.bench.published import published_epochs
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

    def run(self) -> int:
        """Print it."""
        card = re.fullmatch(r".*?(\d+)\s*gi?b", self.gpu.lower())
        if card is None:
            raise InvalidInputError(f"the name of a GPU ends in its memory, such as a100-80gb, got {self.gpu!r}")
        if self.gpus < 1:
            raise InvalidInputError(f"gpus must be 1 or more, got {self.gpus}")
        jobs = plan(preset(self.preset).changed(device="cuda"))
        _print_stages(jobs, self.gpus)
        of_a_node = max(count for count in range(1, _MOST_GPUS_OF_A_NODE + 1) if self.gpus % count == 0)
        cluster = Cluster(self.gpus // of_a_node, of_a_node, self.failures, self.failures)
        engine = simulate(jobs, cluster)
        _say(f"On {engine.workers} x {self.gpu}: {short_duration(engine.clock)}, simulated job by job.")
        _print_fit(jobs, int(card[1]))
        if self.preset == "paper":
            _print_epochs()
            _print_shortlist()
        return 0


def _print_stages(jobs: Sequence[Job], gpus: int) -> None:
    stages: dict[str, list[float]] = {}
    for job in jobs:
        budget = job.details.get("budget") or ""
        name = f"{job.kind} {budget}".strip() if job.kind in ("trial", "train") else job.kind
        stages.setdefault(name, []).append((job.estimated_seconds(_NOWHERE) or 0.0) / 3600 if job.uses_device else 0.0)
    stages["all"] = [one for hours in stages.values() for one in hours]
    rows = [
        (name, str(len(hours)), f"{sum(hours):,.0f}", f"{sum(hours) / gpus / 24:.1f}") for name, hours in stages.items()
    ]
    columns = ("jobs", "GPU-hours", f"days on {gpus} GPUs")
    Terminal().print(plain_table(("stage",), columns, rows))
    _say("Trainings for as long as the trials of their search are one of these trials, and only certified.")


def _print_fit(jobs: Sequence[Job], card_gib: int) -> None:
    """Predicted memory against the card. Networks with smaller kernels need no more than those with 3 x 3."""
    trained = [job for job in jobs if job.kind == "train" and job.network.kernel_size == 3]
    needed = {job.network.label: (predicted_bytes(job) or 0) + CARD_OVERHEAD for job in trained}
    large = [f"{label} ({size / GIB:.0f} GiB)" for label, size in needed.items() if size > card_gib * GIB]
    largest = max(needed.values(), default=0) / GIB
    fit = f"{len(large)} of {len(needed)} networks do not fit" if large else "every network fits"
    _say(f"Memory: the largest training needs {largest:.1f} of {card_gib} GiB; {fit}.")
    for label in large:
        _say(f"  does not fit: {label}")
    _say("Trainings have a time budget, and so a GPU each: shared, they would slow each other down.")


def _print_epochs() -> None:
    known = [row.epochs for row in published_epochs() if row.epochs is not None]
    _say(f"Within 2h the paper's GPU made {min(known)} to {max(known)} epochs, by method, size and data set.")


def _print_shortlist() -> None:
    rows, compared = [], 0
    for shortlist in SHORTLISTS:
        exact = try_shortlist(shortlist)
        noisy = try_shortlist(shortlist, noise=_NOISE, repetitions=_REPETITIONS)
        words = ", ".join(f"{count} for {hours}h" for hours, count in shortlist.items())
        same = (f"{100 * one.same_best:.0f} %" for one in (exact, noisy))
        rows.append((words, f"{exact.hours:,} of {exact.full_hours:,}", *same))
        compared = exact.comparisons
    _say("\nCheaper: all methods for 2h, and of each data set, kernel and size only the best for longer.")
    Terminal().print(plain_table(("methods",), ("GPU-hours", "same best three", "with noise"), rows))
    _say(
        f"How often the best three are those of the full protocol, in the {compared} comparisons that the paper has "
        f"published, and if results vary by {_NOISE} points from run to run. The searches and the one seed stay: of "
        "trials and other seeds the paper has published nothing that a cheaper plan could be tried on."
    )


def _say(text: str) -> None:
    """Broken into lines at the width of the terminal."""
    Terminal().print(text)


COMMAND = PlanCommand
