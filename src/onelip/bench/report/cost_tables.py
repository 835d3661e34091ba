"""Tables of what networks cost: time, memory, operations, and the theory beside the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onelip.bench.report.rows import Evidence
from onelip.bench.report.style import REFERENCE
from onelip.bench.report.summaries import main_memory, main_times, memory_ratios, newest
from onelip.bench.report.tables import Column, Row, Table, duration, gibibytes, method, number, si, text, with_best


@dataclass(frozen=True)
class TheoryLine:
    """Costs of one layer of a method: formulas as one reads them, their values, and what was counted (or None).

    The keys are input_macs, input_memory, parameter_macs, parameter_memory.
    """

    method: str
    source: str
    formulas: Mapping[str, str]
    values: Mapping[str, float]
    counted: Mapping[str, float] | None


@dataclass(frozen=True)
class Theory:
    """The complexity table for one layer, described in words."""

    layer: str
    lines: tuple[TheoryLine, ...]


def cost_tables(evidence: Evidence) -> list[Table]:
    """Tables of all measurements that are there."""
    tables = [_time_table(evidence), _memory_table(evidence), _macs_table(evidence)]
    return [table for table in tables if table.rows]


_WORKLOAD = tuple(Column(name, numeric=False) for name in ("Data set", "Size", "Method"))


def _same_network(row: Row) -> object:
    return row[0].text, row[1].text


def _time_table(evidence: Evidence) -> Table:
    times = main_times(evidence)
    rows: list[Row] = [
        (
            text(row.key.dataset),
            text(row.key.size),
            method(row.key.method),
            duration(row.train_seconds),
            number(row.train_ratio[0], "{:.2f}".format),
            text(_interval(row.train_ratio)),
            duration(row.epoch_seconds),
            duration(row.inference_seconds),
            number(row.inference_ratio[0], "{:.2f}".format),
            text(_interval(row.inference_ratio)),
            si(row.images_per_second),
        )
        for row in times
    ]
    hardware = times[0].hardware if times else ""
    columns = [Column(name, "Training") for name in ("batch", "ratio", "95 %", "epoch")]
    columns += [Column(name, "Inference") for name in ("batch", "ratio", "95 %", "images/s")]
    return Table(
        name="time",
        section="costs",
        title="Time",
        caption=f"Median time of a batch on {hardware}. Ratio: to the same network with plain convolutions, timed in "
        "turns, with its 95 % confidence interval. Inference has its parameter transformations cached. Bold: lowest "
        "ratio of its data set and size.",
        columns=(*_WORKLOAD, *columns),
        rows=with_best(rows, (4, 8), lowest=True, same=_same_network),
    )


def _interval(ratio: tuple[float, float, float]) -> str:
    return f"{ratio[1]:.2f} to {ratio[2]:.2f}"


def _memory_table(evidence: Evidence) -> Table:
    memory = main_memory(evidence)
    ratios = memory_ratios(memory)
    rows: list[Row] = []
    for row in memory:
        train, inference = ratios.get((row.key.method, row.key.size, row.key.dataset), (None, None))
        rows.append(
            (
                text(row.key.dataset),
                text(row.key.size),
                method(row.key.method),
                gibibytes(row.training),
                number(train, "{:.2f}".format),
                gibibytes(row.inference),
                number(inference, "{:.2f}".format),
                number(row.parameters / 2**20, "{:.3g}".format),
                text(row.source),
            )
        )
    columns = [Column("GiB", "Training"), Column("ratio", "Training")]
    columns += [Column("GiB", "Inference"), Column("ratio", "Inference"), Column("MiB", "Parameters")]
    return Table(
        name="memory",
        section="costs",
        title="Memory",
        caption="Live tensors at the peak of training and of inference, 1 GiB = 2^30 bytes. Ratio: to the same network "
        "with plain convolutions. Bold: lowest ratio of its data set and size.",
        columns=(*_WORKLOAD, *columns, Column("Source", numeric=False)),
        rows=with_best(rows, (4, 6), lowest=True, same=_same_network),
    )


def _macs_table(evidence: Evidence) -> Table:
    counts = newest(evidence.macs)
    plain = {(r.key.size, r.key.dataset, r.key.batch_size): r for r in counts if r.key.method == REFERENCE}
    rows: list[Row] = []
    for row in counts:
        base = plain.get((row.key.size, row.key.dataset, row.key.batch_size))
        names = (text(row.key.dataset), text(row.key.size), method(row.key.method))
        ratios = (row.training_step / base.training_step, row.inference / base.inference) if base else (None, None)
        values = (si(row.parameters), si(row.input), si(row.training_step), number(ratios[0], "{:.2f}".format))
        rows.append((*names, *values, si(row.inference), number(ratios[1], "{:.2f}".format)))
    titles = ("parameter transf.", "input transf.", "training step", "ratio", "inference", "ratio")
    return Table(
        name="operations",
        section="costs",
        title="Counted operations",
        caption="Multiply-accumulates of one batch: both transformations in the forward pass, a whole training step, "
        "and "
        "inference with cached parameter transformations. Ratio: to plain convolutions.",
        columns=(*_WORKLOAD, *(Column(title) for title in titles)),
        rows=tuple(rows),
    )


_THEORY_COSTS = {
    "input_macs": "Input: MACs",
    "input_memory": "Input: memory",
    "parameter_macs": "Parameters: MACs",
    "parameter_memory": "Parameters: memory",
}


def theory_table(theory: Theory) -> Table:
    """Formula, its value and the count, for both transformations."""
    rows: list[Row] = []
    for line in theory.lines:
        cells: list[Row] = []
        for cost in _THEORY_COSTS:
            counted = si(line.counted[cost] if line.counted else None)
            cells.append((text(line.formulas[cost]), si(line.values[cost]), counted))
        rows.append((method(line.method), text(line.source), *(cell for group in cells for cell in group)))
    columns = [Column("Method", numeric=False), Column("Algorithm", numeric=False)]
    for group in _THEORY_COSTS.values():
        columns += [Column("formula", group, numeric=False), Column("value", group), Column("counted", group)]
    return Table(
        name="theory",
        section="theory",
        title="Theory and counts",
        caption=f"Costs of one layer with {theory.layer}. b images of s x s pixels and c channels, kernel k x k, t "
        "inner "
        "iterations; C = b s² c² k², M = b s² c, P = c² k². MACs are multiply-accumulates, memory is in numbers kept "
        "for "
        "the backward pass. Counts are of what onelip runs: its own algorithm where it has one, else the published.",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def layer_table(evidence: Evidence) -> Sequence[Table]:
    """One row per diagnosed network: how variance and norm go from input to output."""
    rows: list[Row] = []
    for found in evidence.diagnostics:
        layers = [layer for layer in found.layers if layer["path"] != "input"]
        norms = [layer["norm_estimate"] for layer in layers if layer.get("norm_estimate") is not None]
        gradients = [layer["gradient_norm"] for layer in layers if layer.get("gradient_norm") is not None]
        rows.append(
            (
                text(found.dataset),
                text(found.size),
                method(found.method),
                number(found.layers[0]["variance"]),
                number(found.layers[-1]["variance"]),
                number(max(norms, default=None), "{:.6f}".format),
                number(layers[-1].get("bound_product") if layers else None, "{:.6f}".format),
                number(gradients[0] / gradients[-1] if gradients and gradients[-1] else None),
                text(found.run),
            )
        )
    columns = [Column("input", "Variance"), Column("output", "Variance"), Column("largest layer norm")]
    columns += [Column("proven bound"), Column("gradient first/last"), Column("Run", numeric=False)]
    table = Table(
        name="layers",
        section="layers",
        title="Sanity checks by layer",
        caption="Batch activation variance (must not grow), largest spectral norm of a layer by power iteration (from "
        "below), proven Lipschitz bound of the network (from above), and the norm of the loss gradient at the first "
        "layer's "
        "output relative to the last one's (vanishing gradients are far below 1).",
        columns=(*_WORKLOAD, *columns),
        rows=tuple(rows),
    )
    return [table] if rows else []
