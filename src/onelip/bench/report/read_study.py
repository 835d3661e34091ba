"""Run records as typed rows of a report; `onelip.bench.records.views` knows how records are laid out.

Each record stands alone. One that cannot be read, or holds something else than its kind promises, is listed with the
reason, and all others count. Parts that are missing are no errors: a study may have measured nothing yet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from onelip.atomic_files import read_regular
from onelip.bench.records import (
    GENERATION,
    LARGEST_PLAN,
    RECORD_FILE,
    STUDY_FILE,
    RunStatus,
    StoredRun,
    canonical_json,
    load_records,
    parse_json,
    read_dataclass,
    view,
)
from onelip.bench.records.durations import format_duration, parse_duration
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.records.views import (
    Finite,
    Number,
    Share,
    TooLarge,
    Training,
    TrainResult,
    diagnosed_layers,
    shown_network,
)
from onelip.bench.report.study_rows import (
    Budget,
    CountedOperations,
    DiagnosedNetwork,
    LoggedEpoch,
    MeasuredMemory,
    MeasuredTime,
    MissingResult,
    StudyResults,
    TrainedRun,
)
from onelip.bench.terminal import visible
from onelip.errors import InvalidInputError

LOG_FILE = "log.jsonl"
"""Written by the training beside its record."""

_MOST_LOSSES, _LONGEST_LOG = 400, 50_000_000
_MOST_MISSING, _MOST_NOT_FINITE = 2000, 20

_Row = TypeVar("_Row")


def read_study(folder: Path) -> StudyResults:
    """Read all records below `folder`, at any depth: a study keeps trials and measurements in folders of their own."""
    if not folder.is_dir():
        raise InvalidInputError(f"{folder}: no such folder of runs")
    places = sorted({path.parent.parent for path in folder.rglob(RECORD_FILE)})
    loaded = [load_records(place) for place in places]
    runs = sorted((r for part in loaded for r in part.runs), key=_order)
    missing = [MissingResult("not readable", visible(line)) for part in loaded for line in part.problems]
    plan = _read_plan(folder, missing)
    missing += [*_unfinished(runs), *_never_run(plan, runs)]

    def rows(make: Callable[[StoredRun], _Row], chosen: Iterable[StoredRun]) -> tuple[_Row, ...]:
        found: list[_Row] = []
        for run in chosen:
            try:
                found.append(make(run))
            except InvalidInputError as error:
                missing.append(_without_result(run, "not readable", str(error)))
        return tuple(found)

    finished = [run for run in runs if run.status is RunStatus.FINISHED]
    fitting = [run for run in finished if run.record.kind == "measure" and run.record.metrics.get("fits") is True]

    def measured(kind: Callable[..., _Row], quantity: str) -> tuple[_Row, ...]:
        def row(run: StoredRun) -> _Row:
            seen = view(run.record)
            return kind(**vars(seen.spec), **vars(seen.result))

        return rows(row, [run for run in fitting if run.record.config.get("quantity") == quantity])

    trainings, others, mixed = within_one_kind([run for run in finished if run.record.kind == "train"])
    missing += [
        _without_result(run, "not compared", f"a time budget on another device: {kind}") for run, kind in others
    ]
    notes = plan.get("notes")
    return StudyResults(
        folder=folder,
        runs=tuple(runs),
        trained=rows(lambda run: _trained(run, missing), trainings),
        times=measured(MeasuredTime, "time"),
        memory=measured(MeasuredMemory, "memory"),
        operations=measured(CountedOperations, "macs"),
        diagnosed=rows(_diagnosed, [run for run in finished if run.record.metrics.get("diagnostics")]),
        missing_results=_shortened(missing),
        notes=tuple(visible(note) for note in notes[:20]) if isinstance(notes, list) else (),
        mixed_devices=mixed,
    )


def _shortened(missing: list[MissingResult]) -> tuple[MissingResult, ...]:
    """As many as people read; a plan or record of somebody else may have any number."""
    rest = len(missing) - _MOST_MISSING
    if rest <= 0:
        return tuple(missing)
    return *missing[:_MOST_MISSING], MissingResult("not shown", f"{rest:,} more results are missing")


def _order(run: StoredRun) -> tuple[int, str, Path]:
    """A measurement that was made when others of the same figure were there comes after them; times decide nothing."""
    generation = run.record.metrics.get(GENERATION)
    return generation if type(generation) is int else 0, run.folder.name, run.folder


def _trained(run: StoredRun, missing: list[MissingResult]) -> TrainedRun:
    seen = view(run.record)
    assert isinstance(seen.spec, Training)
    assert isinstance(seen.result, TrainResult)
    odd = [
        f"{visible(name)} is {value}"
        for name, value in run.record.metrics.items()
        if isinstance(value, float) and name.startswith("test_") and "accuracy" in name and not math.isfinite(value)
    ]
    if odd:
        more = f" and {len(odd) - _MOST_NOT_FINITE:,} more" if len(odd) > _MOST_NOT_FINITE else ""
        missing.append(_without_result(run, "not finite", ", ".join(odd[:_MOST_NOT_FINITE]) + more))
    setting = canonical_json({name: value for name, value in run.record.config.items() if name != "seed"})
    budget = _budget(seen.spec, seen.result.train_seconds)
    return TrainedRun(seen.spec, seen.result, budget, setting, _log(run, missing))


def _budget(spec: Training, took: float | None) -> Budget:
    if spec.budget is not None:
        seconds = parse_duration(spec.budget)
        return Budget(format_duration(seconds) + " cores" * (spec.clock == "cores"), seconds / 3600)
    epochs = spec.epochs
    if epochs is None:
        raise InvalidInputError("config has neither a budget nor epochs")
    return Budget(f"{epochs} epoch{'s' * (epochs != 1)}", None if took is None else took / 3600, epochs)


@dataclass(frozen=True)
class _LogLine:
    """An entry of a log; one without an epoch is no entry."""

    epoch: Number
    train_loss: Finite = None
    validation_certified_accuracy_36: Share = None


def _log(run: StoredRun, missing: list[MissingResult]) -> tuple[LoggedEpoch, ...]:
    """The entries, thinned; a last line that a kill cut short is left out."""
    path = run.folder / LOG_FILE
    try:
        lines = read_regular(path, _LONGEST_LOG).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        missing.append(_without_result(run, "not readable", f"{LOG_FILE}: {error.strerror}"))
        return ()
    entries: list[LoggedEpoch] = []
    odd = 0
    for number, line in enumerate(lines, 1):
        try:
            entry = read_dataclass(_LogLine, parse_json(line), "entry", is_open=True)
            if (loss := entry.train_loss) is not None:
                entries.append(LoggedEpoch(entry.epoch, loss, entry.validation_certified_accuracy_36))
        except (ValueError, RecursionError):
            odd += number < len(lines)
    if odd:
        missing.append(_without_result(run, "not readable", f"{odd} lines of {LOG_FILE} were left out"))
    return tuple(entries[:: max(1, len(entries) // _MOST_LOSSES)])


def _diagnosed(run: StoredRun) -> DiagnosedNetwork:
    network, setting = shown_network(run.record.network), run.record.config.get("setting")
    layers = diagnosed_layers(run.record.metrics["diagnostics"])
    return DiagnosedNetwork(run.folder.name, network, visible(setting or "own"), layers)


def _unfinished(runs: Iterable[StoredRun]) -> Iterator[MissingResult]:
    for run in runs:
        record, status, metrics = run.record, run.status, run.record.metrics
        if status is not RunStatus.FINISHED:
            reason = record.reason or ("still running" if status is RunStatus.RUNNING else "its process was killed")
            yield _without_result(run, status.value, reason)
        elif "evaluation_failure" in metrics:  # of a training in a study
            yield _without_result(run, "not certified", str(metrics["evaluation_failure"]))
        elif metrics.get("fits", True) is not True:
            yield _without_result(run, "does not fit", _too_large(run))


def _too_large(run: StoredRun) -> str:
    try:
        result = view(run.record).result
    except InvalidInputError as error:
        return str(error)
    if not isinstance(result, TooLarge):
        return "is no measurement of this kind"
    needed, free = result.needed_bytes / 2**30, result.available_bytes / 2**30
    return f"needs {needed:.1f} GiB, {free:.1f} GiB were free on this machine"


def _without_result(run: StoredRun, status: str, reason: str) -> MissingResult:
    network, folder = _network(run.record.config), visible(run.folder.name)
    return MissingResult(status, visible(reason), visible(run.record.kind), network, folder)


def _read_plan(folder: Path, missing: list[MissingResult]) -> dict[str, Any]:
    """Content of `study.json`, which says what jobs there are; empty for a folder of runs without one."""
    path = folder / STUDY_FILE
    try:
        content = parse_json(read_regular(path, LARGEST_PLAN).decode()) if path.exists() else {"jobs": []}
        if isinstance(content, dict) and isinstance(content.get("jobs"), list):
            return content
        reason = "it is not the plan of a study"
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error)
    missing.append(MissingResult("not readable", visible(f"{path}: {reason}")))
    return {}


def _never_run(plan: dict[str, Any], runs: list[StoredRun]) -> Iterator[MissingResult]:
    """One row for each planned training that has no record of its own."""
    present = {run.record.job for run in runs if run.record.kind == "train"}
    failed = {run.record.job: run.record.reason for run in runs if run.record.status is RunStatus.FAILED}
    for job in plan.get("jobs", []):
        if not isinstance(job, dict) or job.get("kind") != "train" or str(job.get("name")) in present:
            continue
        spec, needs = job.get("spec"), job.get("needs")
        names = [job.get("search")] if isinstance(spec, dict) else needs if isinstance(needs, list) else []
        causes = [f"{need} failed: {failed[need]}" for need in names if isinstance(need, str) and need in failed]
        reason = causes[0] if causes else "planned, not begun"
        network = _network(spec if isinstance(spec, dict) else job)  # plans of earlier versions have the network alone
        yield MissingResult("not run", visible(reason), "train", network, visible(job.get("name", "")))


def _network(tree: dict[str, Any]) -> NetworkSpec | None:
    """The network of a run that has no result; None if this is the odd part of its record."""
    try:
        return shown_network(read_dataclass(NetworkSpec, tree.get("network"), "network", is_open=True))
    except InvalidInputError:
        return None


def within_one_kind(trainings: list[StoredRun]) -> tuple[list[StoredRun], list[tuple[StoredRun, str]], str]:
    """Trainings to compare, those on other kinds of device with where they ran, and a warning if there are any.

    The kind is the one with most trainings under a time budget. Trainings by epochs are the same everywhere.
    """
    pairs = [(run, visible(run.record.machine.get("device") or "")) for run in trainings]
    pairs = [(run, kind if run.record.config.get("budget") else "") for run, kind in pairs]
    kinds = Counter(kind for _, kind in pairs if kind).most_common()
    if len(kinds) < 2:
        return trainings, [], ""
    (usual, count), *rarer = kinds
    others = [(run, kind) for run, kind in pairs if kind not in ("", usual)]
    compared = [run for run, kind in pairs if kind in ("", usual)]
    rest = ", ".join(f"{number} on {kind}" for kind, number in rarer)
    warning = (
        f"The study mixes kinds of device: {count} trainings with a time budget ran on {usual}, {rest}. "
        f"Within the same time they train for more or less, so only those on {usual} are compared."
    )
    return compared, others, warning
