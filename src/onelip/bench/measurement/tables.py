"""Tables of `onelip measure`: one for each data set and size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from onelip.bench.measurement.campaign import Outcome, Quantity
from onelip.bench.measurement.memory import GIB
from onelip.bench.measurement.workload import REFERENCE

Metrics = dict[str, Any]

_COLUMNS: dict[Quantity, tuple[str, ...]] = {
    "time": ("train ms", "ratio", "95 %", "infer ms", "ratio", "95 %", "epoch"),
    "memory": ("train GiB", "ratio", "infer GiB", "ratio", "smallest card"),
    "macs": ("parameters", "input", "step", "ratio", "inference", "ratio"),
}

_NOTES: dict[Quantity, str] = {
    "time": "Medians per batch; ratio to the plain reference network with its 95 % confidence interval.",
    "memory": "Live tensors at the peak, 1 GiB = 2^30 bytes; a card needs 1 GiB more (context, scratch space).",
    "macs": "Multiply-accumulates of one batch: forward transformations, forward and backward step, inference.",
}


def print_outcomes(quantity: Quantity, outcomes: list[Outcome], runs_dir: Path) -> None:
    """Print all tables, and where the records are."""
    console = Console(markup=False, highlight=False)
    works = [outcome.job.workload for outcome in outcomes]
    for dataset, size in dict.fromkeys((work.dataset, work.size_name) for work in works):
        group = [o for o in outcomes if (o.job.workload.dataset, o.job.workload.size_name) == (dataset, size)]
        console.print(_table(quantity, group, f"ConvNet {size}, {dataset}, batch {group[0].job.workload.batch_size}"))
    console.print(_NOTES[quantity])
    old = sum(not outcome.is_new for outcome in outcomes)
    console.print(f"{len(outcomes)} records, {old} from an earlier run, in {runs_dir}")
    for outcome in outcomes:
        if outcome.failure:
            console.print(f"{outcome.job.workload.method}: {outcome.failure} ({outcome.folder.name})")


def _table(quantity: Quantity, outcomes: list[Outcome], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in _COLUMNS[quantity]:
        table.add_column(name, justify="right", no_wrap=True)
    reference = next((o.metrics for o in outcomes if o.job.workload.method == REFERENCE and o.fits), None)
    for outcome in outcomes:
        table.add_row(outcome.job.workload.method, *_cells(quantity, outcome, reference))
    return table


def _cells(quantity: Quantity, outcome: Outcome, reference: Metrics | None) -> list[str]:
    if outcome.failure:
        return ["failed"]
    if not outcome.fits:
        return [f"needs {outcome.metrics['needed_bytes'] / GIB:.1f} GiB"]
    return _ROWS[quantity](outcome.metrics, reference)


def _time_row(metrics: Metrics, _reference: Metrics | None) -> list[str]:
    cells: list[str] = []
    for phase in ("training", "inference"):
        timing = metrics[phase]
        ratio = timing["ratio"]
        interval = f"{ratio['low']:.2f}-{ratio['high']:.2f}"
        cells += [f"{timing['seconds']['median'] * 1000:.1f}", f"{ratio['median']:.2f}", interval]
    return [*cells, f"{metrics['seconds_per_epoch']:.0f} s"]


def _memory_row(metrics: Metrics, reference: Metrics | None) -> list[str]:
    cells: list[str] = []
    for phase in ("training", "inference"):
        cells += [f"{metrics[phase] / GIB:.2f}", _ratio(metrics, reference, phase)]
    card = metrics["smallest_card_gib"]
    needs = f"needs {metrics['training'] / GIB:.0f} GiB"
    return [*cells, needs if card is None else f"{card} GB"]


def _macs_row(metrics: Metrics, reference: Metrics | None) -> list[str]:
    forward = [short_number(metrics["parameters"]), short_number(metrics["input"])]
    step = [short_number(metrics["training_step"]), _ratio(metrics, reference, "training_step")]
    return [*forward, *step, short_number(metrics["inference"]), _ratio(metrics, reference, "inference")]


_ROWS: dict[Quantity, Callable[[Metrics, Metrics | None], list[str]]] = {
    "time": _time_row,
    "memory": _memory_row,
    "macs": _macs_row,
}


def _ratio(metrics: Metrics, reference: Metrics | None, name: str) -> str:
    return "-" if reference is None else f"{metrics[name] / reference[name]:.2f}"


def short_number(value: float) -> str:
    """Three digits and a factor: 1.21 G; a dash for nothing."""
    for factor, sign in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {sign}"
    return f"{value:.3g}" if value else "-"
