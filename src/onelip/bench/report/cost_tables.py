"""Tables of what networks cost: time, memory, operations, and the theory beside the counts; and the layers' checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onelip.bench.report.report_table import (
    METHOD,
    Column,
    ReportTable,
    duration,
    memory,
    ratio,
    three_places,
    with_prefix,
    words,
)
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.report.trained_models import current, main_memory, main_times, relative_to_plain

_NETWORK = (METHOD, words("Size"), words("Data set"))
_WITHIN = ("Data set", "Size")
_BOLD = "Bold: the lowest, and what cannot be told from it, of the same data set and size."


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
class LayerTheory:
    """The complexity table for one layer, described in words."""

    layer: str
    lines: tuple[TheoryLine, ...]


def cost_tables(study: StudyResults, theory: LayerTheory | None) -> list[ReportTable]:
    """Tables of all costs; those without rows are left out later."""
    tables = [_time_table(study), _memory_table(study), _operations_table(study), _layer_table(study)]
    return [*tables, *([layer_theory_table(theory)] if theory else [])]


def _time_table(study: StudyResults) -> ReportTable:
    times = main_times(study)
    rows = [
        (
            row.network.method,
            row.network.size_name,
            row.network.dataset,
            row.training.ratio,
            row.training.seconds.median,
            row.epoch_seconds,
            row.inference.ratio,
            row.inference.seconds.median,
            row.batch_size / row.inference.seconds.median,
        )
        for row in times
    ]
    columns = []
    for group, last, show in (("Training", "epoch", duration), ("Inference", "images/s", three_places)):
        columns += [Column("vs. plain", group, best="lowest"), Column("batch", group, show=duration)]
        columns.append(Column(last, group, show=show))
    batches = " and ".join(sorted({str(row.batch_size) for row in times}))
    return ReportTable(
        name="time",
        section="costs",
        title="Time",
        caption=f"Median time of a batch of {batches} images on {times[0].hardware if times else ''}. vs. plain: "
        "relative to the plain network, timed in turns with it, and in brackets the 95 % interval. "
        f"Inference has its parameter transformations cached. {_BOLD}",
        columns=(*_NETWORK, *columns),
        rows=rows,
        best_within=_WITHIN,
    )


def _memory_table(study: StudyResults) -> ReportTable:
    rows = main_memory(study)
    training, inference = (relative_to_plain(rows, field) for field in ("training", "inference"))
    values = [
        (
            row.network.method,
            row.network.size_name,
            row.network.dataset,
            row.training,
            training.get(row.network),
            row.inference,
            inference.get(row.network),
            row.parameters,
            row.source,
        )
        for row in rows
    ]
    columns = []
    for group in ("Training", "Inference"):
        columns += [Column("peak", group, show=memory), Column("vs. plain", group, show=ratio, best="lowest")]
    return ReportTable(
        name="memory",
        section="costs",
        title="Memory",
        caption="Live tensors at the peak of training and of inference; 1 GiB is 2^30 bytes, 1 MiB 2^20. "
        f"vs. plain: relative to the plain network. {_BOLD}",
        columns=(*_NETWORK, *columns, Column("Parameters", show=memory), words("Source")),
        rows=values,
        best_within=_WITHIN,
    )


def _operations_table(study: StudyResults) -> ReportTable:
    counts = current(row for row in study.operations if row.network.method != "standard")
    training, inference = (relative_to_plain(counts, field) for field in ("training_step", "inference"))
    rows = []
    for row in counts:
        network = row.network
        step = (row.parameters, row.input, row.training_step, training.get(network))
        rows.append((network.method, network.size_name, network.dataset, *step, row.inference, inference.get(network)))
    columns = [Column(title, "Forward", show=with_prefix) for title in ("parameter transf.", "input transf.")]
    for group in ("Training step", "Inference"):
        columns += [Column("total", group, show=with_prefix), Column("vs. plain", group, show=ratio)]
    return ReportTable(
        name="operations",
        section="costs",
        title="Counted operations",
        caption="Multiply-accumulates of one batch: both transformations in the forward pass, a whole training step, "
        "and inference with cached parameter transformations. Operations are not a "
        "time: see the table of times for that.",
        columns=(*_NETWORK, *columns),
        rows=rows,
    )


_THEORY_COSTS = {
    "input_macs": "Input: MACs",
    "input_memory": "Input: memory",
    "parameter_macs": "Parameters: MACs",
    "parameter_memory": "Parameters: memory",
}


def layer_theory_table(theory: LayerTheory) -> ReportTable:
    """Formula, its value and the count, for both transformations."""
    rows = []
    for line in theory.lines:
        counted = line.counted or dict.fromkeys(_THEORY_COSTS)
        cells = [(line.formulas[cost], line.values[cost], counted[cost]) for cost in _THEORY_COSTS]
        rows.append((line.method, line.source, *(cell for group in cells for cell in group)))
    columns: list[Column] = []
    for group in _THEORY_COSTS.values():
        columns += [Column("formula", group, numeric=False), Column("value", group, show=with_prefix)]
        columns.append(Column("counted", group, show=with_prefix))
    return ReportTable(
        name="theory",
        section="theory",
        title="Theory and counts",
        caption=f"Costs of one layer with {theory.layer}. b images of s x s pixels and c channels, kernel k x k, t "
        "inner iterations; C = b s² c² k², M = b s² c, P = c² k². MACs are multiply-accumulates, memory is in numbers "
        "kept for the backward pass. Counts are of what onelip runs: its own algorithm where it has one, "
        "else the published.",
        columns=(METHOD, words("Algorithm"), *columns),
        rows=rows,
    )


def _layer_table(study: StudyResults) -> ReportTable:
    """One row per diagnosed network: how variance and norm go from input to output."""
    rows = []
    for found in study.diagnosed:
        layers = found.layers[1:]
        norms = [layer.norm_estimate for layer in layers if layer.norm_estimate is not None]
        gradients = [layer.gradient_norm for layer in layers if layer.gradient_norm is not None]
        rows.append(
            (
                found.network.method,
                found.network.size_name,
                found.network.dataset,
                found.layers[0].variance,
                found.layers[-1].variance,
                max(norms, default=None),
                layers[-1].bound_product if layers else None,
                gradients[0] / gradients[-1] if gradients and gradients[-1] else None,
                found.run,
            )
        )
    columns = [Column(title, "Variance", show=three_places) for title in ("input", "output")]
    columns += [Column("Largest layer norm", show="{:.4f}".format), Column("Proven bound", show="{:.4f}".format)]
    return ReportTable(
        name="layers",
        section="layers",
        title="Sanity checks by layer",
        caption="Batch activation variance (must not grow), largest spectral norm of a layer by power iteration (from "
        "below), proven Lipschitz bound of the network (from above), and the norm of the loss gradient at the first "
        "layer's output relative to the last one's (far below 1: vanishing gradients).",
        columns=(*_NETWORK, *columns, Column("Gradient first/last", show=three_places), words("Run")),
        rows=rows,
    )
