"""Run records as typed rows: the only file of the report that knows how records are laid out.

Each record stands alone. One that cannot be read, or holds something else than its kind promises, is listed with the
reason, and all others count. Parts that are missing are no errors: a study may have measured nothing yet.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from onelip.atomic_files import read_regular
from onelip.bench.report.device_kinds import within_one_kind
from onelip.bench.report.record_fields import RecordFields, UnreadableRecordError
from onelip.bench.report.study_rows import (
    PREDICTED_SOURCES,
    Budget,
    CountedOperations,
    DiagnosedLayer,
    DiagnosedNetwork,
    LoggedEpoch,
    MeasuredMemory,
    MeasuredTime,
    MissingResult,
    PhaseTime,
    RunFacts,
    StudyResults,
    TrainedRun,
)
from onelip.bench.runs import (
    GENERATION,
    LARGEST_PLAN,
    RECORD_FILE,
    STUDY_FILE,
    RunRecord,
    RunStatus,
    StoredRun,
    canonical_json,
    load_records,
    parse_json,
)
from onelip.bench.runs.durations import format_duration, parse_duration
from onelip.bench.runs.specs import NetworkSpec
from onelip.bench.terminal import visible
from onelip.errors import InvalidInputError
from onelip.protocol import RADIUS_NUMERATORS

LOG_FILE = "log.jsonl"
"""Written by the training beside its record."""

_MOST_LAYERS, _MOST_LOSSES, _MOST_RADII, _LONGEST_LOG = 2000, 400, 1000, 50_000_000
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

    def rows(make: Callable[[StoredRun], _Row], chosen: Iterable[StoredRun]) -> tuple[_Row, ...]:
        found: list[_Row] = []
        for run in chosen:
            try:
                found.append(make(run))
            except (UnreadableRecordError, InvalidInputError) as error:
                missing.append(_without_result(run, "not readable", str(error)))
        return tuple(found)

    finished = [run for run in runs if run.status is RunStatus.FINISHED]
    measured = [run for run in finished if run.record.kind == "measure" and run.record.metrics.get("fits") is True]

    def measures(quantity: str) -> list[StoredRun]:
        return [run for run in measured if run.record.config.get("quantity") == quantity]

    plan = _read_plan(folder, missing)
    missing += [*_unfinished(runs), *_never_run(plan, runs)]
    notes = plan.get("notes")
    trainings, others, mixed = within_one_kind([run for run in finished if run.record.kind == "train"])
    missing += [
        _without_result(run, "not compared", f"a time budget on another device: {kind}") for run, kind in others
    ]
    return StudyResults(
        folder=folder,
        runs=rows(_run_facts, runs),
        trained=rows(lambda run: _trained(run, missing), trainings),
        times=rows(_measured_time, measures("time")),
        memory=rows(_measured_memory, measures("memory")),
        operations=rows(_counted_operations, measures("macs")),
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
    config, metrics = RecordFields(run.record.config, "config"), RecordFields(run.record.metrics, "metrics")
    certified = {radius: metrics.share(f"test_certified_accuracy_{radius}") for radius in RADIUS_NUMERATORS}
    curve = metrics.tree.get("test_certified_curve") or []
    if not isinstance(curve, list) or len(curve) > _MOST_RADII:
        raise UnreadableRecordError(f"metrics.test_certified_curve is no list of at most {_MOST_RADII} shares")
    shares = RecordFields({str(k): value for k, value in enumerate(curve)}, "metrics.test_certified_curve")
    odd: list[str] = []
    for name, value in metrics.tree.items():
        if (
            isinstance(value, float)
            and name.startswith("test_")
            and "accuracy" in name
            and metrics.optional(name) is None
        ):
            odd.append(f"{visible(name)} is {value}")
    if odd:
        more = f" and {len(odd) - _MOST_NOT_FINITE:,} more" if len(odd) > _MOST_NOT_FINITE else ""
        missing.append(_without_result(run, "not finite", ", ".join(odd[:_MOST_NOT_FINITE]) + more))
    return TrainedRun(
        run=run.folder.name,
        network=config.network(),
        budget=_budget(config, metrics),
        setting=canonical_json({name: value for name, value in config.tree.items() if name != "seed"}),
        recipe=visible(config.tree["recipe"]) if config.tree.get("recipe") else None,
        learning_rate=config.optional("lr"),
        weight_decay=config.optional("weight_decay"),
        test_images=metrics.whole("test_images") if "test_images" in metrics.tree else None,
        accuracy=metrics.share("test_accuracy"),
        certified={radius: value for radius, value in certified.items() if value is not None},
        curve=tuple(shares.share(index) or 0.0 for index in shares.tree),
        validation_certified=metrics.share("validation_certified_accuracy_36"),
        epochs=metrics.optional("epochs"),
        train_seconds=metrics.optional("train_seconds"),
        log=_log(run, missing),
    )


def _budget(config: RecordFields, metrics: RecordFields) -> Budget:
    given = config.tree.get("budget")
    if given is not None:
        seconds = parse_duration(config.text("budget")) if isinstance(given, str) else config.number("budget")
        cores = " cores" if config.tree.get("clock") == "cores" else ""
        return Budget(format_duration(seconds) + cores, seconds / 3600)
    took, epochs = metrics.optional("train_seconds"), config.whole("epochs")
    return Budget(f"{epochs} epoch{'s' * (epochs != 1)}", None if took is None else took / 3600, epochs)


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
            entry = RecordFields(parse_json(line))
            loss = entry.optional("train_loss")
            if loss is not None:
                certified = entry.share("validation_certified_accuracy_36")
                entries.append(LoggedEpoch(entry.number("epoch"), loss, certified))
        except (ValueError, RecursionError, UnreadableRecordError):
            odd += number < len(lines)
    if odd:
        missing.append(_without_result(run, "not readable", f"{odd} lines of {LOG_FILE} were left out"))
    return tuple(entries[:: max(1, len(entries) // _MOST_LOSSES)])


def _measured_time(run: StoredRun) -> MeasuredTime:
    config, metrics = RecordFields(run.record.config, "config"), RecordFields(run.record.metrics, "metrics")

    def phase(name: str) -> PhaseTime:
        part = metrics.part(name)
        return PhaseTime(part.timing("seconds"), part.timing("reference_seconds"), part.timing("ratio"))

    hardware = visible(config.tree.get("hardware", "unknown hardware")).replace(", 1 threads", ", 1 thread")
    phases = phase("training"), phase("inference")
    return MeasuredTime(
        config.network(), config.whole("batch_size"), hardware, *phases, metrics.number("seconds_per_epoch")
    )


def _measured_memory(run: StoredRun) -> MeasuredMemory:
    config, metrics = RecordFields(run.record.config, "config"), RecordFields(run.record.metrics, "metrics")
    device = PREDICTED_SOURCES.get(config.text("device"), config.text("device"))
    figures = (metrics.whole(name) for name in ("parameters", "training", "inference"))
    return MeasuredMemory(config.network(), config.whole("batch_size"), device, *figures)


def _counted_operations(run: StoredRun) -> CountedOperations:
    config, metrics = RecordFields(run.record.config, "config"), RecordFields(run.record.metrics, "metrics")
    counts = (metrics.whole(name) for name in ("parameters", "input", "training_step", "inference"))
    return CountedOperations(config.network(), config.whole("batch_size"), *counts)


def _diagnosed(run: StoredRun) -> DiagnosedNetwork:
    layers = run.record.metrics["diagnostics"]
    if not isinstance(layers, list) or len(layers) > _MOST_LAYERS:
        raise UnreadableRecordError(f"metrics.diagnostics is no list of at most {_MOST_LAYERS} layers")
    network, setting = RecordFields(run.record.config, "config").network(), run.record.config.get("setting")
    return DiagnosedNetwork(run.folder.name, network, visible(setting or "own"), diagnosed_layers(layers))


def diagnosed_layers(records: Iterable[Any]) -> tuple[DiagnosedLayer, ...]:
    """The layers of `Diagnostics.as_records()`."""
    parts = [RecordFields(layer, f"diagnostics[{index}]") for index, layer in enumerate(records)]
    names = ("norm_estimate", "bound_product", "gradient_norm")
    return tuple(
        DiagnosedLayer(
            visible(part.tree.get("path", "")), part.number("variance"), *(part.optional(name) for name in names)
        )
        for part in parts
    )


def _run_facts(run: StoredRun) -> RunFacts:
    record = run.record
    return RunFacts(
        run=visible(run.folder.name),
        kind=visible(record.kind),
        status=run.status,
        seed=record.seed if isinstance(record.seed, int) else None,
        seconds=RecordFields({"seconds": record.seconds}).optional("seconds") or 0.0,
        created_at=record.created_at,
        updated_at=record.updated_at,
        command=_command_line(record.command),
        machine=_machine(record),
    )


def _command_line(command: list[str]) -> str:
    """The command as one would type it: the program without its folder, arguments quoted where needed."""
    words = [str(word) for word in command[:50]]
    if not words:
        return ""
    program = "onelip" if words[0].endswith("onelip/__main__.py") else words[0].rsplit("/", 1)[-1] or words[0]
    return visible(shlex.join([program, *words[1:]]))


def _machine(record: RunRecord) -> tuple[str, ...]:
    """Processor, cores, threads, memory, GPUs, system, versions and commit; what is odd is shown as it is."""
    machine, commit = record.machine, record.commit

    def gibibytes(tree: dict[str, Any]) -> str:
        value = tree.get("memory_bytes")
        try:
            return "" if value is None else f"{RecordFields(tree).number('memory_bytes') / 2**30:.0f} GiB"
        except UnreadableRecordError:
            return visible(value)

    gpus = machine.get("gpus")
    cards = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    dirty = "+" if commit and commit.get("dirty") else ""
    return (
        visible(machine.get("cpu", "")),
        visible(f"{machine.get('usable_cores', '?')} of {machine.get('cores', '?')}"),
        visible(machine.get("torch_threads", "")),
        gibibytes(machine),
        visible(", ".join(f"{gpu.get('name')} ({gibibytes(gpu)})" for gpu in cards) or "none"),
        visible(machine.get("os", "")),
        visible(", ".join(f"{name} {version}" for name, version in record.versions.items())),
        "installed package" if commit is None else visible(str(commit.get("id", ""))[:12] + dirty),
    )


def _unfinished(runs: Iterable[StoredRun]) -> Iterator[MissingResult]:
    for run in runs:
        record, status, metrics = run.record, run.status, run.record.metrics
        if status is not RunStatus.FINISHED:
            reason = record.reason or ("still running" if status is RunStatus.RUNNING else "its process was killed")
            yield _without_result(run, status.value, reason)
        elif "evaluation_failure" in metrics:  # of a training in a study
            yield _without_result(run, "not certified", str(metrics["evaluation_failure"]))
        elif metrics.get("fits", True) is not True:
            try:
                needed, free = (RecordFields(metrics).number(f"{name}_bytes") for name in ("needed", "available"))
                reason = f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB were free on this machine"
            except UnreadableRecordError as error:
                reason = str(error)
            yield _without_result(run, "does not fit", reason)


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
        needs = job.get("needs")
        names = [need for need in needs if isinstance(need, str)] if isinstance(needs, list) else []
        causes = [f"{need} failed: {failed[need]}" for need in names if need in failed]
        reason = causes[0] if causes else "planned, not begun"
        yield MissingResult("not run", visible(reason), "train", _network(job), visible(job.get("name", "")))


def _network(tree: dict[str, Any]) -> NetworkSpec | None:
    """The network of a run that has no result; None if this is the odd part of its record."""
    try:
        return RecordFields(tree).network()
    except (UnreadableRecordError, InvalidInputError):
        return None
