"""Tables of what networks cost: time, memory, operations, and the theory beside the counts; and the layers' checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from onelip.bench.paper.complexity import CountedCosts, LayerShape, TheoryRow, pretty, theory_table
from onelip.bench.report.report_table import (
    DATASET,
    METHOD,
    SIZE,
    Column,
    ReportTable,
    duration,
    memory,
    ratio,
    three_places,
    with_prefix,
    words,
)
from onelip.bench.report.study_rows import DiagnosedNetwork, StudyResults
from onelip.bench.report.trained_models import current, main_memory, main_times, relative_to_plain

_NETWORK = (METHOD, SIZE, DATASET)
_WITHIN = ("Data set", "Size")
_BOLD = "Bold: the lowest, and what cannot be told from it, of the same data set and size."


Counts = Mapping[str, CountedCosts]
"""What was counted of one layer of the usual shape, by method."""


def cost_tables(study: StudyResults, counts: Counts | None) -> list[ReportTable]:
    """Tables of all costs; those without rows are left out later. Without counts there is no table of theory."""
    tables = [_time_table(study), _memory_table(study), _operations_table(study), _layer_table(study)]
    return [*tables, *([layer_theory_table(counts)] if counts else [])]


def _time_table(study: StudyResults) -> ReportTable:
    times = main_times(study)
    is_fused = any(row.fused for row in times)
    batches, larger = (
        " and ".join(map(str, sorted(set(sizes))))
        for sizes in ([row.batch_size for row in times], [row.inference_batch for row in times])
    )
    where = times[0].hardware if times else ""
    inference = "" if larger == batches else f" (inference: {larger})"
    fused = " The fused network is a copy in plain torch modules (onelip.fuse)." if is_fused else ""
    return ReportTable.of_items(
        times,
        name="time",
        section="costs",
        title="Time",
        caption=f"Median time of a batch of {batches} images{inference} on {where}. vs. plain: "
        "relative to the plain network, timed in turns with it, and in brackets the 95 % interval. "
        f"Inference has its parameter transformations cached.{fused} {_BOLD}",
        columns=(
            *_NETWORK,
            Column("vs. plain", "Training", best="lowest", of="training.ratio"),
            Column("batch", "Training", duration, of="training.seconds.median"),
            Column("epoch", "Training", duration, of="seconds_per_epoch"),
            Column("vs. plain", "Inference", best="lowest", of="inference.ratio"),
            Column("batch", "Inference", duration, of="inference.seconds.median"),
            Column("images/s", "Inference", three_places, of="images_per_second"),
            *([Column("fused vs. plain", "Inference", of="fused.ratio")] if is_fused else []),
        ),
        best_within=_WITHIN,
    )


def _memory_table(study: StudyResults) -> ReportTable:
    rows = main_memory(study)
    return ReportTable.of_items(
        rows,
        name="memory",
        section="costs",
        title="Memory",
        caption="Live tensors at the peak of training and of inference; 1 GiB is 2^30 bytes, 1 MiB 2^20. "
        f"vs. plain: relative to the plain network. {_BOLD}",
        columns=(
            *_NETWORK,
            Column("peak", "Training", memory, of="training"),
            Column("vs. plain", "Training", ratio, best="lowest", of=_relative(rows, "training")),
            Column("peak", "Inference", memory, of="inference"),
            Column("vs. plain", "Inference", ratio, best="lowest", of=_relative(rows, "inference")),
            Column("Parameters", show=memory, of="parameters"),
            words("Source", "source"),
        ),
        best_within=_WITHIN,
    )


def _relative(rows: list[Any], field: str) -> Callable[[Any], float | None]:
    """For a column: a cost of a row's network in units of the plain one's."""
    found = relative_to_plain(rows, field)
    return lambda row: found.get(row.network)


def _operations_table(study: StudyResults) -> ReportTable:
    counts = current(row for row in study.operations if row.network.method != "standard")
    return ReportTable.of_items(
        counts,
        name="operations",
        section="costs",
        title="Counted operations",
        caption="Multiply-accumulates of one batch: both transformations in the forward pass, a whole training step, "
        "and inference with cached parameter transformations. Operations are not a "
        "time: see the table of times for that.",
        columns=(
            *_NETWORK,
            Column("parameter transf.", "Forward", with_prefix, of="parameters"),
            Column("input transf.", "Forward", with_prefix, of="input"),
            Column("total", "Training step", with_prefix, of="training_step"),
            Column("vs. plain", "Training step", ratio, of=_relative(counts, "training_step")),
            Column("total", "Inference", with_prefix, of="inference"),
            Column("vs. plain", "Inference", ratio, of=_relative(counts, "inference")),
        ),
    )


_THEORY_COSTS = {
    "input_macs": "Input: MACs",
    "input_memory": "Input: memory",
    "parameter_macs": "Parameters: MACs",
    "parameter_memory": "Parameters: memory",
}


def layer_theory_table(counts: Counts, source: str = "", title: str = "Theory and counts") -> ReportTable:
    """Formula, its value and the count, for both transformations; `source` leaves the other algorithms out."""
    shape, in_use = LayerShape(), {row.method: row for row in theory_table()}
    columns: list[Column] = []
    for cost, group in _THEORY_COSTS.items():

        def counted(row: TheoryRow, cost: str = cost) -> float | None:
            return getattr(counts[row.method], cost) if row == in_use[row.method] else None

        columns += [
            Column("formula", group, numeric=False, of=lambda row, cost=cost: pretty(getattr(row.costs, cost))),
            Column("value", group, with_prefix, of=lambda row, cost=cost: row.at(shape).get(cost)),
            Column("counted", group, with_prefix, of=counted),
        ]
    described = ", ".join(f"{name} = {value}" for name, value in asdict(shape).items())
    return ReportTable.of_items(
        [row for row in theory_table() if source in ("", row.source)],
        name=f"theory-{source}" if source else "theory",
        section="theory",
        title=title,
        caption=f"Costs of one layer with {described}. b images of s x s pixels and c channels, kernel k x k, t "
        "inner iterations; C = b s² c² k², M = b s² c, P = c² k². MACs are multiply-accumulates, memory is in numbers "
        "kept for the backward pass. Counts are of what onelip runs: its own algorithm where it has one, "
        "else the published.",
        columns=(replace(METHOD, of="method"), words("Algorithm", "source"), *columns),
    )


def _layer_table(study: StudyResults) -> ReportTable:
    """One row per diagnosed network: how variance and norm go from input to output."""
    return ReportTable.of_items(
        study.diagnosed,
        name="layers",
        section="layers",
        title="Sanity checks by layer",
        caption="Batch activation variance (must not grow), largest spectral norm of a layer by power iteration (from "
        "below), proven Lipschitz bound of the network (from above), and the norm of the loss gradient at the first "
        "layer's output relative to the last one's (far below 1: vanishing gradients).",
        columns=(
            *_NETWORK,
            Column("input", "Variance", three_places, of=lambda row: row.layers[0].variance),
            Column("output", "Variance", three_places, of=lambda row: row.layers[-1].variance),
            Column(
                "Largest layer norm", show="{:.4f}".format, of=lambda row: max(row.known("norm_estimate"), default=None)
            ),
            Column("Proven bound", show="{:.4f}".format, of=lambda row: row.layers[-1].bound_product),
            Column("Gradient first/last", show=three_places, of=_vanishing),
            words("Run", "run"),
        ),
    )


def _vanishing(row: DiagnosedNetwork) -> float | None:
    gradients = row.known("gradient_norm")
    return gradients[0] / gradients[-1] if gradients and gradients[-1] else None
