"""What each ingredient of fast training is worth: short runs of equal processor time, several seeds, one change each.

    OMP_NUM_THREADS=1 python benchmarks/ladder.py --runs-dir ladder [--seconds 60] [--seeds 3] [--variants "batch 128"]

The base is FastNet S with the recipe fast. Choices are made on validation images, which are left out of training; no
run sees the test set. Runs are taken seed by seed, so that what else the machine does meets all variants alike; a run
that is finished is not repeated. ± is the standard error from the draw of images and from the seeds. `gain` is the mean
difference to the base at equal seeds and images, with the standard error over the seeds.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

from onelip.bench.records import NetworkSpec, RunOptions
from onelip.bench.training import train

VARIANTS: dict[str, dict[str, object]] = {
    "base": {},
    "temperature 2": {"temperature": 2.0},
    "temperature 1": {"temperature": 1.0},
    "temperature 1/4": {"temperature": 0.25},
    "learning rate x 2": {"lr": 0.01},
    "learning rate / 2": {"lr": 0.0025},
    "batch 128": {"batch_size": 128},
    "batch 512": {"batch_size": 512},
    "no augmentation": {"augmentation": "none"},
    "mirror images": {"augmentation": "flip"},
    "shifts by 2 pixels": {"augmentation": "shift-flip"},
    "crops by 4 pixels": {"augmentation": "crop-flip"},
    "float32": {"precision": "float32"},
    "NAdam": {"optimizer": "nadam"},
    "SGD": {"optimizer": "sgd", "lr": 0.05},
    "Lookahead": {"lookahead": True},
    "averaged weights": {"ema_decay": 0.98},
    "EMMA": {"loss": "emma"},
    "LA": {"loss": "annealing"},
    "CR": {"loss": "regularised"},
    "zeros around images": {"padding_mode": "zeros"},
    "width 48": {"size": "XS"},
    "width 96": {"size": "M"},
    "BCOP": {"method": "bcop"},
    "AOL": {"method": "aol", "lr": 0.002},
}
"""One change of the base each; `size`, `method` and `padding_mode` are the network's, all else the run's."""

ACCURACY, CERTIFIED = "validation_accuracy", "validation_certified_accuracy_36"


def spec_of(change: dict[str, object], seconds: float, seed: int) -> RunOptions:
    """The run of a variant."""
    network = {"model": "fastnet", "size": "S", "dataset": "cifar10"}
    network |= {key: change[key] for key in ("size", "method", "padding_mode") if key in change}
    settings = {key: value for key, value in change.items() if key not in network}
    return RunOptions(
        network=NetworkSpec(**network),  # pyright: ignore[reportArgumentType]
        budget=f"{seconds:g}s",
        clock="cores",
        recipe="fast",
        seed=seed,
        **settings,  # pyright: ignore[reportArgumentType]
    )


def summary(values: list[float], images: int) -> str:
    """Mean in percent and its standard error: all seeds are judged by the same images."""
    mean = statistics.fmean(values)
    over_seeds = standard_error(values) if len(values) > 1 else 0.0
    return f"{100 * mean:.1f} ± {100 * math.hypot(math.sqrt(mean * (1 - mean) / images), over_seeds):.1f}"


def standard_error(values: list[float]) -> float:
    """Of the mean of independent values."""
    return statistics.stdev(values) / math.sqrt(len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    arguments = parser.parse_args()
    names = ["base", *(name for name in arguments.variants if name != "base")]
    records: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    base = spec_of({}, arguments.seconds, 0)
    images = round(base.validation_fraction * base.network.data.train_size)
    for seed in range(arguments.seeds):
        for name in names:
            record = train(spec_of(VARIANTS[name], arguments.seconds, seed), arguments.runs_dir)
            records[name].append(record.metrics)
            latest = record.metrics
            print(f"seed {seed}  {name:20s} {latest[ACCURACY]:.3f} {latest[CERTIFIED]:.3f}", flush=True)
    print("\n| variant | steps | accuracy | certified at 36/255 | gain |\n|---|---:|---:|---:|---:|")
    for name, runs in records.items():
        steps = statistics.fmean(run["steps"] for run in runs)
        gains = [run[CERTIFIED] - plain[CERTIFIED] for run, plain in zip(runs, records["base"], strict=True)]
        gain = "" if name == "base" else f"{100 * statistics.fmean(gains):+.1f}"
        if gain and len(gains) > 1:
            gain += f" ± {100 * standard_error(gains):.1f}"
        columns = (summary([run[key] for run in runs], images) for key in (ACCURACY, CERTIFIED))
        print(f"| {name} | {steps:,.0f} | {' | '.join(columns)} | {gain} |")


if __name__ == "__main__":
    main()
