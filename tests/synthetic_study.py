"""A folder of run records with made-up numbers, written through the real records API."""

from __future__ import annotations

import functools
import json
import random
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from onelip.bench.paper.complexity import known_counts
from onelip.bench.records import NetworkSpec, RunStatus, start_run
from onelip.bench.report.advice import GIB, BudgetResult, Candidate, Limits
from onelip.bench.report.write_report import WrittenReport, write_report

METHODS = ("aol", "bcop", "cayley", "cpl", "lot", "sll", "soc", "standard")
# Invented: a base certified accuracy, a cost ratio, a memory ratio per method.
_CERTIFIED = {
    "aol": 0.56,
    "bcop": 0.55,
    "cayley": 0.565,
    "cpl": 0.60,
    "lot": 0.61,
    "sll": 0.58,
    "soc": 0.59,
    "standard": 0.0,
}
_TIME = {"aol": 1.05, "bcop": 1.3, "cayley": 1.6, "cpl": 1.4, "lot": 2.4, "sll": 1.35, "soc": 1.7, "standard": 1.0}
_MEMORY = {"aol": 1.1, "bcop": 1.2, "cayley": 2.0, "cpl": 1.5, "lot": 3.1, "sll": 1.5, "soc": 1.6, "standard": 1.0}
_SIZES = ("XS", "S", "M", "L")


def finish(
    runs: Path, kind: str, config: Any, metrics: dict[str, Any], seconds: float = 1.0, job: str | None = None
) -> str:
    """Write one finished run; returns its name."""
    with start_run(runs, kind, config, job=job) as run:
        run.update(status=RunStatus.FINISHED, metrics=metrics, seconds=seconds)
        return run.folder.name


def train_config(method: str, size: str, dataset: str, budget: str, seed: int = 0, **changes: Any) -> dict[str, Any]:
    kernel_size = changes.pop("kernel_size", 3)
    config = {"network": network(method, size, dataset, kernel_size), "budget": budget, "epochs": None}
    return config | {"recipe": "paper", "lr": 0.05, "weight_decay": 7e-6, "seed": seed} | changes


def network(method: str, size: str = "XS", dataset: str = "cifar10", kernel_size: int = 3) -> dict[str, Any]:
    return NetworkSpec(method=method, size=size, dataset=dataset, kernel_size=kernel_size).as_dict()


def train_metrics(certified: float, accuracy: float, seconds: float) -> dict[str, Any]:
    radii = {36: 1.0, 72: 0.75, 108: 0.55, 255: 0.2}
    metrics: dict[str, Any] = {f"test_certified_accuracy_{r}": certified * share for r, share in radii.items()}
    curve = [accuracy - (accuracy - certified) * min(k, 12) / 12 for k in range(13)]
    curve += [certified * (1 - 0.8 * k / 73) for k in range(1, 74)]
    return metrics | {
        "test_accuracy": accuracy,
        "test_images": 1000,
        "test_certified_curve": curve,
        "validation_certified_accuracy_36": certified + 0.01,
        "train_seconds": seconds,
        "epochs": 20.0,
        "test_lipschitz_bound": 1.00001,
    }


def add_training(
    runs: Path,
    *,
    methods: Iterable[str] = METHODS,
    sizes: Sequence[str] = ("XS", "S"),
    datasets: Iterable[str] = ("cifar10-mini",),
    budgets: Sequence[tuple[str, float]] = (("20s", 20.0), ("1m", 60.0)),
    seeds: int = 2,
    kernel_size: int = 3,
) -> None:
    for dataset in datasets:
        for method in methods:
            for size in sizes:
                for index, (budget, seconds) in enumerate(budgets):
                    for seed in range(seeds):
                        certified = _CERTIFIED[method] * (0.8 + 0.05 * _SIZES.index(size) + 0.07 * index)
                        certified = certified * (1 + 0.004 * seed) * (0.55 if kernel_size == 1 else 1)
                        accuracy = max(certified, 0.05) + 0.12 + (0.65 if method == "standard" else 0)
                        config = train_config(method, size, dataset, budget, seed, kernel_size=kernel_size)
                        name = finish(runs, "train", config, train_metrics(certified, accuracy, seconds), seconds * 1.2)
                        entries = [
                            {"step": 16 * e, "epoch": e, "train_loss": 2.3 / (1 + 0.2 * e * (1 + certified))}
                            for e in range(20)
                        ]
                        (runs / name / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def _summary(median: float) -> dict[str, float]:
    return {"median": median, "low": median * 0.98, "high": median * 1.02, "lower_quartile": median * 0.99,
            "upper_quartile": median * 1.01, "count": 12}  # fmt: skip


def add_times(runs: Path, *, sizes: Sequence[str] = ("XS", "S"), dataset: str = "cifar10-mini") -> None:
    for method in METHODS:
        for size in sizes:
            scale = 2.2 ** _SIZES.index(size)
            ratio = _TIME[method] * scale**0.1
            training = {"seconds": _summary(0.8 * ratio * scale), "reference_seconds": _summary(0.8 * scale)}
            inference = {"seconds": _summary(0.2 * ratio * scale), "reference_seconds": _summary(0.2 * scale)}
            metrics = {
                "fits": True,
                "training": training | {"ratio": _summary(ratio)},
                "inference": inference | {"ratio": _summary(1 + (ratio - 1) / 2)},
                "images_per_second_training": 256 / (0.8 * ratio * scale),
                "images_per_second_inference": 256 / (0.2 * ratio * scale),
                "seconds_per_epoch": 16 * 0.8 * ratio * scale,
            }
            finish(runs, "measure", _workload("time", method, size, dataset) | {"hardware": "a test machine"}, metrics)


def _workload(quantity: str, method: str, size: str, dataset: str) -> dict[str, Any]:
    return {
        "quantity": quantity,
        "network": network(method, size, dataset),
        "batch_size": 256,
        "code": "0" * 12,
    }


def add_memory(runs: Path, *, sizes: Sequence[str] = ("XS", "S"), dataset: str = "cifar10-mini") -> None:
    for method, ratio in [*_MEMORY.items(), ("reference", 1.0)]:
        for size in sizes:
            base = 2**29 * 2 ** _SIZES.index(size)
            metrics = {
                "fits": True,
                "parameters": 2**20,
                "training": int(base * ratio),
                "inference": int(base * ratio**0.3 / 10),
                "smallest_card_gib": 8,
            }
            finish(runs, "measure", _workload("memory", method, size, dataset) | {"device": "meta"}, metrics)


def add_macs(runs: Path, *, sizes: Sequence[str] = ("XS",), dataset: str = "cifar10-mini") -> None:
    for method, ratio in [*_TIME.items(), ("reference", 1.0)]:
        for size in sizes:
            step = int(10**9 * ratio)
            metrics = {"fits": True, "parameters": 10**6, "input": 10**8, "training_step": step, "inference": step // 3}
            finish(runs, "measure", _workload("macs", method, size, dataset), metrics)


def layers(decay: float) -> list[dict[str, Any]]:
    """Diagnostics in the form of `Diagnostics.as_records()`."""
    rows: list[dict[str, Any]] = [{"path": "input", "kind": "input", "variance": 150.0}]
    for index in range(26):
        row = {"path": f"blocks.{index}", "kind": "AOLConv2d", "output_shape": [16, 32, 32]}
        row |= {"variance": 150.0 * decay**index, "norm_estimate": decay**0.2, "bound": 1.0, "bound_product": 1.0}
        rows.append(row | {"gradient_norm": 0.1 * decay ** (26 - index)})
    return rows


def add_diagnostics(runs: Path, *, size: str = "XS", dataset: str = "cifar10-mini") -> None:
    for method in METHODS[:-1]:
        decay = 0.9 + 0.1 * _CERTIFIED[method]
        config = {"network": network(method, size, dataset)}
        finish(runs, "diagnose", config, {"diagnostics": layers(decay)})


def add_failures(runs: Path) -> None:
    """A diverged run, one whose reason looks like HTML, a measurement that does not fit, and a damaged record."""
    with start_run(runs, "train", train_config("cpl", "M", "cifar10-mini", "20s")) as run:
        run.update(status=RunStatus.DIVERGED, reason="the loss became nan at step 812")
    with start_run(runs, "train", train_config("lot", "L", "cifar10-mini", "20s")) as run:
        run.update(status=RunStatus.FAILED, reason="RuntimeError: <script>alert('x')</script> & <b>bold</b>")
    too_large = {"fits": False, "needed_bytes": 94 * 2**30, "available_bytes": 12 * 2**30}
    finish(runs, "measure", _workload("time", "lot", "L", "cifar10-mini") | {"hardware": "a test machine"}, too_large)
    damaged = runs / "train-soc-XS-cifar10-s0-0123456789ab"
    damaged.mkdir()
    (damaged / "record.json").write_text("{not json")


@functools.cache
def written_report() -> tuple[tempfile.TemporaryDirectory[str], WrittenReport]:
    """The report of `full_study`, built once per process; the folder lives as long as the process."""
    folder = tempfile.TemporaryDirectory()
    study = full_study(Path(folder.name) / "study")
    return folder, write_report(study, Path(folder.name) / "report", counts=known_counts())


def full_study(runs: Path) -> Path:
    """Everything at once."""
    with patch("os.fsync"):  # a hundred records, none of which has to survive a power failure
        _fill(runs)
    return runs


def _fill(runs: Path) -> None:
    add_training(runs)
    add_training(runs, methods=("aol", "soc"), sizes=("XS",), kernel_size=1, seeds=1)
    add_times(runs)
    add_memory(runs)
    add_macs(runs)
    add_diagnostics(runs)
    add_failures(runs)


def random_candidates(generator: random.Random, count: int) -> list[Candidate]:
    """Few distinct values, so that ties and unknown costs are common."""
    found = []
    for index in range(count):
        hours = generator.sample([0.5, 2.0, 10.0, None], generator.randint(1, 3))
        results = tuple(BudgetResult(str(h), h, 0.7, generator.choice([0.5, 0.55, 0.6]), 0.01) for h in hours)
        memory = generator.choice([None, GIB, 4 * GIB, 20 * GIB])
        latency = generator.choice([None, 0.5, 1.0, 2.5])
        method = generator.choice(["aol", "cpl", "lot", "soc"])
        found.append(Candidate("d", method, f"{index}", results, "r", memory, "m", latency, "l"))
    return found


def random_limits(generator: random.Random) -> Limits:
    return Limits(
        generator.choice([None, 2.0 * GIB, 5.0 * GIB, 80.0 * GIB]),
        generator.choice([None, 0.1, 2.0, 24.0]),
        generator.choice([None, 0.4, 1.0, 3.0]),
    )
