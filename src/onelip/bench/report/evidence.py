"""Run records as typed rows: the only file of the report that knows how records are laid out.

Parts that are missing are not errors. A study may have measured nothing yet, or trained nothing; `Evidence.missing`
says what is not there and which command adds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from onelip.bench.report.planned import not_run, read_plan
from onelip.bench.report.rows import (
    CostKey,
    DiagnosticRow,
    Evidence,
    MacsRow,
    MemoryRow,
    TimeRow,
    TrainingRow,
    TroubleRow,
)
from onelip.bench.runs import RECORD_FILE, STUDY_FILE, RunStatus, StoredRun, load_records, parse_json
from onelip.bench.runs.durations import format_duration, parse_duration
from onelip.errors import InvalidInputError
from onelip.protocol import RADIUS_NUMERATORS

LOG_FILE = "log.jsonl"
"""Written by the training beside its record."""

NOT_A_SETTING = ("network", "seed", "budget", "epochs", "method", "size", "width", "dataset", "kernel_size")
"""Fields of run and network that name a model, its budget or its repetition; all others are its hyper-parameters."""


def read_evidence(folder: Path) -> Evidence:
    """Read all records below `folder`, at any depth: a study keeps trials and measurements in folders of their own."""
    loaded = [load_records(place) for place in _places(folder)]
    runs = tuple(sorted((r for part in loaded for r in part.runs), key=lambda r: (r.record.created_at, r.folder.name)))
    finished = [run for run in runs if run.status is RunStatus.FINISHED]
    measured = [run for run in finished if run.record.kind == "measure"]
    trained = [run for run in finished if run.record.kind == "train"]
    notes: list[str] = [line for part in loaded for line in part.problems]
    plan = _plan(folder, notes)
    return Evidence(
        folder=folder,
        runs=runs,
        training=_rows(trained, _training_row, notes),
        times=_rows(_fitting(measured, "time"), _time_row, notes),
        memory=_rows(_fitting(measured, "memory"), _memory_row, notes),
        macs=_rows(_fitting(measured, "macs"), _macs_row, notes),
        diagnostics=_rows([run for run in finished if run.record.metrics.get("diagnostics")], _diagnostic_row, notes),
        trouble=(*_trouble(runs), *not_run(plan, runs)),
        problems=tuple(notes),
        notes=tuple(plan.get("notes", ())),
    )


def _plan(folder: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return read_plan(folder)
    except ValueError as error:
        problems.append(f"{folder / STUDY_FILE}: the plan of the study cannot be read ({error})")
        return {}


def _places(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InvalidInputError(f"{folder}: no such folder of runs")
    return sorted({path.parent.parent for path in folder.rglob(RECORD_FILE)})


_Row = TypeVar("_Row")


def _rows(runs: Iterable[StoredRun], make: Callable[[StoredRun], _Row], notes: list[str]) -> tuple[_Row, ...]:
    """Rows of all runs; one whose record lacks what this report reads becomes a note instead."""
    rows: list[_Row] = []
    for run in runs:
        try:
            rows.append(make(run))
        except (KeyError, TypeError, ValueError) as error:
            notes.append(f"{run.folder.name}: not in the report, its record has no usable {error}")
    return tuple(rows)


def _training_row(run: StoredRun) -> TrainingRow:
    record = run.record
    config, metrics = record.config, record.metrics
    budget, hours = _budget(config, metrics)
    network, all_settings = record.network, config | record.network.as_dict()
    setting = tuple(sorted((name, str(value)) for name, value in all_settings.items() if name not in NOT_A_SETTING))
    found = {radius: _fraction(metrics, f"test_certified_accuracy_{radius}") for radius in RADIUS_NUMERATORS}
    return TrainingRow(
        run=run.folder.name,
        method=network.method,
        size=network.size_name,
        dataset=network.dataset,
        kernel_size=network.kernel_size,
        budget=budget,
        budget_hours=hours,
        learning_rate=_first_number(config, "lr"),
        weight_decay=_first_number(config, "weight_decay"),
        seed=record.seed,
        setting=setting,
        accuracy=_fraction(metrics, "test_accuracy"),
        certified={radius: value for radius, value in found.items() if value is not None},
        validation_certified=_fraction(metrics, "validation_certified_accuracy_36"),
        epochs=_first_number(metrics, "epochs"),
        train_seconds=_first_number(metrics, "train_seconds"),
        lipschitz_bound=_first_number(metrics, "test_lipschitz_bound"),
        history=_history(run.folder),
        created_at=record.created_at,
    )


def _budget(config: dict[str, Any], metrics: dict[str, Any]) -> tuple[str, float | None]:
    """Name of the budget and its hours; a budget in epochs has the hours that it took."""
    budget = config.get("budget")
    if budget is not None:
        seconds = parse_duration(budget) if isinstance(budget, str) else float(budget)
        return format_duration(seconds), seconds / 3600
    took = _first_number(metrics, "train_seconds")
    hours = None if took is None else took / 3600
    return f"{config['epochs']} epochs", hours


def _history(folder: Path) -> tuple[dict[str, Any], ...]:
    """Entries of the training's log, one per validation; a last line that a kill cut short is left out."""
    path = folder / LOG_FILE
    entries: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            entries.append(parse_json(line))
        except ValueError:
            break
    return tuple(entries)


def _first_number(tree: dict[str, Any], *names: str) -> float | None:
    for name in names:
        value = tree.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def _fraction(metrics: dict[str, Any], name: str) -> float | None:
    value = _first_number(metrics, name)
    return None if value is None or math.isnan(value) else value


def _fitting(runs: list[StoredRun], quantity: str) -> list[StoredRun]:
    return [r for r in runs if r.record.config.get("quantity") == quantity and r.record.metrics.get("fits")]


def _cost_key(run: StoredRun) -> CostKey:
    network = run.record.network
    return CostKey(network.method, network.size_name, network.dataset, int(run.record.config["batch_size"]))


def _time_row(run: StoredRun) -> TimeRow:
    config, metrics = run.record.config, run.record.metrics
    training, inference = metrics["training"], metrics["inference"]
    return TimeRow(
        key=_cost_key(run),
        hardware=str(config.get("hardware", "unknown hardware")),
        train_seconds=training["seconds"]["median"],
        train_ratio=_interval(training["ratio"]),
        inference_seconds=inference["seconds"]["median"],
        inference_ratio=_interval(inference["ratio"]),
        images_per_second=metrics["images_per_second_inference"],
        epoch_seconds=metrics["seconds_per_epoch"],
        reference_train_seconds=training["reference_seconds"]["median"],
        reference_inference_seconds=inference["reference_seconds"]["median"],
    )


def _interval(summary: dict[str, float]) -> tuple[float, float, float]:
    return summary["median"], summary["low"], summary["high"]


def _memory_row(run: StoredRun) -> MemoryRow:
    config, metrics = run.record.config, run.record.metrics
    source = "predicted" if config["device"] == "meta" else f"measured on {config['device']}"
    return MemoryRow(_cost_key(run), source, metrics["parameters"], metrics["training"], metrics["inference"])


def _macs_row(run: StoredRun) -> MacsRow:
    metrics = run.record.metrics
    counts = (metrics[name] for name in ("parameters", "input", "training_step", "inference"))
    return MacsRow(_cost_key(run), *counts)


def _diagnostic_row(run: StoredRun) -> DiagnosticRow:
    network = run.record.network
    layers = tuple(run.record.metrics["diagnostics"])
    if any("path" not in layer or "variance" not in layer for layer in layers):
        raise KeyError("path and variance in its diagnostics")
    return DiagnosticRow(run.folder.name, network.method, network.size_name, network.dataset, layers)


def _trouble(runs: Iterable[StoredRun]) -> Iterable[TroubleRow]:
    for run in runs:
        record, status = run.record, run.status
        if status is RunStatus.FINISHED:
            metrics = record.metrics
            if "evaluation_failure" in metrics:  # of a training in a study
                yield _trouble_row(run, "not certified", metrics["evaluation_failure"])
            if metrics.get("fits", True):
                continue
            gib = 2**30
            reason = (
                f"needs {metrics['needed_bytes'] / gib:.1f} GiB, "
                f"{metrics['available_bytes'] / gib:.1f} GiB were free on this machine"
            )
            yield _trouble_row(run, "does not fit", reason)
        else:
            reason = record.reason or ("still running" if status is RunStatus.RUNNING else "its process was killed")
            yield _trouble_row(run, status.value, reason)


def _trouble_row(run: StoredRun, status: str, reason: str) -> TroubleRow:
    network = run.record.network
    names = (network.method, network.size_name, network.dataset)
    return TroubleRow(run.folder.name, run.record.kind, *names, status, reason)
