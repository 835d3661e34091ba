"""Draw docs/images/costs.png: time of a training step and of inference, and training memory, against a plain ConvNet.

    python benchmarks/costs_figure.py docs/images/costs.png

Times are medians of interleaved rounds on this machine, memory is predicted without allocating it. The figures are
written next to the picture as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl
import torch
from rich.progress import track

from onelip.layers import list_methods
from onelip.measurement.memory import predict_memory
from onelip.measurement.throughput import Rounds, measure_throughput
from onelip.measurement.workload import Workload

ROUNDS = Rounds(least=5, most=9, tolerance=0.0, seconds=30.0)
COLUMNS = {"training step": "#0072b2", "inference": "#e69f00", "training memory": "#009e73"}


def ratios() -> dict[str, dict[str, float]]:
    """Ratio to the reference for every method, XS network, 256 images of 32 x 32."""
    reference = predict_memory(Workload("reference", "XS", "cifar10", 256)).training
    found = {}
    for method in track(list_methods(), description="measuring"):
        workload = Workload(method.key, "XS", "cifar10", 256)
        timed = measure_throughput(workload, torch.device("cpu"), ROUNDS)
        memory = predict_memory(workload).training / reference
        values = (timed.training.ratio.median, timed.inference.ratio.median, memory)
        found[method.title] = dict(zip(COLUMNS, values, strict=True))
    return found


def draw(found: dict[str, dict[str, float]], path: Path) -> None:
    """Grouped bars, cheapest training step first."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    titles = sorted(found, key=lambda title: found[title]["training step"])
    figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    for index, (name, colour) in enumerate(COLUMNS.items()):
        places = [place + 0.27 * (index - 1) for place in range(len(titles))]
        heights = [found[title][name] for title in titles]
        bars = axes.bar(places, heights, width=0.25, color=colour, label=name)
        axes.bar_label(bars, fmt="%.1f", fontsize=6, padding=1)
    axes.axhline(1, color="0.3", linewidth=0.8)
    axes.set_xticks(range(len(titles)), titles, rotation=20, ha="right")
    axes.set_ylabel("relative to plain convolutions")
    axes.set_title("ConvNet XS, batch of 256 images of 32 x 32, two CPU cores", fontsize=10)
    axes.legend(frameon=False, ncols=3, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160)


def main() -> None:
    path = Path(sys.argv[1])
    found = ratios()
    path.with_suffix(".json").write_text(json.dumps(found, indent=2) + "\n")
    draw(found, path)


if __name__ == "__main__":
    main()
