"""Tables of `onelip measure`: one for each data set and size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onelip.bench.measurement.measurements import Outcome, Quantity
from onelip.bench.measurement.memory import GIB
from onelip.bench.records.durations import parse_duration
from onelip.bench.report.report_table import NOTHING, with_prefix
from onelip.bench.terminal import Terminal, plain_table
from onelip.protocol import REFERENCE

Metrics = dict[str, Any]

_COLUMNS: dict[Quantity, tuple[str, ...]] = {
    "time": ("train ms", "ratio", "95 %", "infer ms", "ratio", "95 %"),
    "memory": ("train GiB", "ratio", "infer GiB", "ratio", "smallest card"),
    "macs": ("parameters", "input", "step", "ratio", "inference", "ratio"),
    "certify": ("pass ms", "certify ms", "ratio", "95 %", "bounds s", "L - 1"),
}

_NOTES: dict[Quantity, str] = {
    "time": "Medians per batch; ratio to the plain reference network with its 95 % confidence interval.",
    "memory": "Live tensors at the peak, 1 GiB = 2^30 bytes; a card needs 1 GiB more (context, scratch space).",
    "macs": "Multiply-accumulates of one batch: forward transformations, forward and backward step, inference.",
    "certify": "Medians per batch; ratio to the plain float64 pass; bounds are proven once per network.",
}


def print_outcomes(outcomes: Sequence[Outcome], runs_dir: Path, budget: str | None) -> None:
    """Print all tables, and where the records are; `budget` asks for the epochs that fit in this time."""
    console = Terminal()
    quantity = outcomes[0].measurement.quantity
    epochs = () if quantity != "time" else ("epoch",) if budget is None else (f"in {budget}",)
    networks = [outcome.measurement.network for outcome in outcomes]
    for dataset, size in dict.fromkeys((network.dataset, network.size_name) for network in networks):
        group = [o for o, n in zip(outcomes, networks, strict=True) if (n.dataset, n.size_name) == (dataset, size)]
        reference = next((o.metrics for o in group if o.measurement.network.method == REFERENCE and o.fits), None)
        rows = [[o.measurement.network.method, *_cells(o, reference, budget)] for o in group]
        model = group[-1].measurement.network.model  # the first may be the reference, a ConvNet
        architecture = f"ConvNet {size}" if model == "convnet" else f"{model} {size}".removesuffix(" -")
        title = f"{architecture}, {dataset}, batch {group[0].measurement.batch_size}"
        console.print(plain_table(("method",), (*_COLUMNS[quantity], *epochs), rows, title=title, padding=0))
    console.print(_NOTES[quantity])
    old = sum(not outcome.is_new for outcome in outcomes)
    console.print(f"{len(outcomes)} records, {old} from an earlier run, in {runs_dir}")
    for outcome in outcomes:
        if outcome.failure:
            console.print(f"{outcome.measurement.network.method}: {outcome.failure} ({outcome.folder.name})")


def _cells(outcome: Outcome, reference: Metrics | None, budget: str | None) -> list[str]:
    metrics = outcome.metrics
    if outcome.failure:
        return ["failed"]
    if not outcome.fits:
        return [f"needs {metrics['needed_bytes'] / GIB:.1f} GiB"]

    def ratio(name: str) -> str:
        return "-" if reference is None else f"{metrics[name] / reference[name]:.2f}"

    match outcome.measurement.quantity:
        case "time":
            epoch = metrics["seconds_per_epoch"]
            last = f"{epoch:.0f} s" if budget is None else f"{parse_duration(budget) / epoch:.3g}"
            phases = (metrics[phase] for phase in ("training", "inference"))
            return [*(cell for t in phases for cell in (_milliseconds(t["seconds"]), *_interval(t["ratio"]))), last]
        case "memory":
            figures = [c for name in ("training", "inference") for c in (f"{metrics[name] / GIB:.2f}", ratio(name))]
            card = metrics["smallest_card_gib"]
            return [*figures, f"needs {metrics['training'] / GIB:.0f} GiB" if card is None else f"{card} GB"]
        case "macs":
            forward = [short_number(metrics[name]) for name in ("parameters", "input")]
            phases = ("training_step", "inference")
            return [*forward, *(cell for name in phases for cell in (short_number(metrics[name]), ratio(name)))]
        case "certify":
            timing = metrics["certificates"]
            seconds = [_milliseconds(timing[name]) for name in ("reference_seconds", "seconds")]
            bounds = [f"{metrics['bounds_seconds']:.1f}", f"{metrics['lipschitz'] - 1:.1e}"]
            return [*seconds, *_interval(timing["ratio"]), *bounds]


def _milliseconds(seconds: Metrics) -> str:
    return f"{seconds['median'] * 1000:.{1 if seconds['median'] < 1 else 0}f}"


def _interval(ratio: Metrics) -> tuple[str, str]:
    """Median and confidence interval, which fewer than six rounds do not have."""
    decimals = 2 if ratio["median"] < 9 else 1  # nine characters at most, so that 80 columns hold the table
    interval = f"{ratio['low']:.{decimals}f}-{ratio['high']:.{decimals}f}" if math.isfinite(ratio["high"]) else "-"
    return f"{ratio['median']:.{decimals}f}", interval


def short_number(value: float) -> str:
    """Three digits and a factor: 1.21 G; a dash for nothing."""
    return with_prefix(value) if value else NOTHING
