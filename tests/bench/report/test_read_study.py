"""Records become rows; each record stands alone, and what cannot be read is listed with its reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from synthetic_study import (
    add_diagnostics,
    add_failures,
    add_memory,
    add_training,
    finish,
    network,
    train_config,
    train_metrics,
)

from onelip.bench.records import RunStatus, run_name, start_run
from onelip.bench.report.read_study import read_study
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.report.write_report import write_report
from onelip.errors import InvalidInputError


def test_training_records_become_rows(tmp_path: Path) -> None:
    config = train_config("soc", "XS", "cifar10", "2h", seed=3, kernel_size=1)
    name = finish(tmp_path, "train", config, train_metrics(0.5, 0.7, 7190.0))
    (tmp_path / name / "log.jsonl").write_text('{"step": 1, "epoch": 1, "train_loss": 2.0}\n{"step": 2, "tra')
    (row,) = read_study(tmp_path).trained
    network = row.network
    assert (network.method, network.size_name, network.dataset, network.kernel_size) == ("soc", "XS", "cifar10", 1)
    assert (row.budget.name, row.budget.hours, row.spec.lr, row.spec.weight_decay) == ("2h", 2.0, 0.05, 7e-6)
    assert (row.result.test_accuracy, row.result.train_seconds, row.result.test_images) == (0.7, 7190.0, 1000)
    assert row.result.certified == {36: 0.5, 72: 0.375, 108: pytest.approx(0.275), 255: pytest.approx(0.1)}
    assert row.losses == [(1.0, 2.0)], "the line that a kill cut short is left out"


def test_a_budget_in_epochs_has_the_time_that_it_took(tmp_path: Path) -> None:
    config = train_config("soc", "XS", "cifar10", "2h") | {"budget": None, "epochs": 12}
    config["network"] |= {"size": None, "width": 8}
    finish(tmp_path, "train", config, train_metrics(0.5, 0.7, 1800.0))
    (row,) = read_study(tmp_path).trained
    assert (row.budget.name, row.budget.hours, row.network.size_name) == ("12 epochs", 0.5, "w8")


def test_records_in_sub_folders_count(tmp_path: Path) -> None:
    add_training(tmp_path / "final", methods=("aol",), sizes=("XS",), seeds=1)
    add_training(tmp_path / "search" / "aol" / "runs", methods=("aol",), sizes=("S",), seeds=1)
    assert {row.network.size for row in read_study(tmp_path).trained} == {"XS", "S"}


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no such folder"):
        read_study(tmp_path / "nothing")


def reasons(study: StudyResults) -> dict[str, str]:
    return {row.status: row.reason for row in study.missing_results}


def test_runs_without_a_result_are_listed_with_their_reasons(tmp_path: Path) -> None:
    add_failures(tmp_path)
    with start_run(tmp_path, "train", train_config("aol", "XS", "cifar10", "2h")) as run:
        run.update(status=RunStatus.INTERRUPTED, reason="stopped by KeyboardInterrupt")
    study = read_study(tmp_path)
    found = reasons(study)
    assert found["diverged"] == "the loss became nan at step 812"
    assert found["does not fit"] == "needs 94.0 GiB, 12.0 GiB were free on this machine"
    assert found["interrupted"] == "stopped by KeyboardInterrupt"
    assert "damaged" in found["not readable"]
    assert not study.trained
    assert not study.times, "a measurement that did not fit has no time"


def test_what_is_absent_is_said(tmp_path: Path) -> None:
    add_training(tmp_path, methods=("aol",), sizes=("XS",), seeds=1)
    absent = " ".join(read_study(tmp_path).absent)
    assert "onelip measure time" in absent
    assert "onelip train" not in absent


def test_diagnostics_are_read_from_any_finished_run(tmp_path: Path) -> None:
    add_diagnostics(tmp_path)
    rows = read_study(tmp_path).diagnosed
    assert {row.network.method for row in rows} == {"aol", "bcop", "cayley", "cpl", "lot", "sll", "soc"}
    assert len(rows[0].layers) == 27


NAN, INFINITY = {"$nonfinite": "nan"}, {"$nonfinite": "inf"}
TIME = {"quantity": "time", "network": network("aol"), "batch_size": 256}
ODD: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("accuracy nan", "train", {}, {"test_accuracy": NAN}),
    ("accuracy infinite", "train", {}, {"test_certified_accuracy_36": INFINITY}),
    ("accuracy above one", "train", {}, {"test_accuracy": 71.0}),
    ("accuracy a text", "train", {}, {"test_accuracy": "high"}),
    ("accuracy huge", "train", {}, {"test_accuracy": 10**400}),
    ("curve a text", "train", {}, {"test_certified_curve": "steep"}),
    ("curve of texts", "train", {}, {"test_certified_curve": ["a", None]}),
    ("images negative", "train", {}, {"test_images": -3}),
    ("epochs huge", "train", {"budget": None, "epochs": 10**500}, {}),
    ("budget a list", "train", {"budget": [1]}, {}),
    ("budget no duration", "train", {"budget": "soon"}, {}),
    ("method a number", "train", {"network": network("aol") | {"method": 7}}, {}),
    ("method very long", "train", {"network": network("a" * 10**6)}, {}),
    ("size unknown", "train", {"network": network("aol") | {"size": "XXL"}}, {}),
    ("size and width", "train", {"network": network("aol") | {"width": 8}}, {}),
    ("network a text", "train", {"network": "aol XS"}, {}),
    ("kernel a text", "train", {"network": network("aol") | {"kernel_size": "3x3"}}, {}),
    ("time without figures", "measure", TIME, {"fits": True, "training": {}}),
    ("time of lists", "measure", TIME, {"fits": True, "training": [1], "inference": 2}),
    ("too large without bytes", "measure", TIME, {"fits": False}),
    ("memory of texts", "measure", TIME | {"quantity": "memory"}, {"fits": True, "parameters": "few"}),
    ("diagnostics a text", "diagnose", TIME, {"diagnostics": "fine"}),
    ("diagnostics of texts", "diagnose", TIME, {"diagnostics": ["a", "b"]}),
    ("diagnostics without variance", "diagnose", TIME, {"diagnostics": [{"path": "input"}]}),
]


def spoil(record: Path, **changes: Any) -> None:
    record.write_text(json.dumps(json.loads(record.read_text()) | changes))


def add_odd_record(runs: Path, seed: int, kind: str, config: dict[str, Any], metrics: dict[str, Any]) -> None:
    """A record that onelip would not write: a good one, changed by hand."""
    whole = train_config("aol", "XS", "cifar10", "1h", seed=seed)
    figures = train_metrics(0.4, 0.6, 1.0) if kind == "train" else {}
    record = runs / finish(runs, kind, whole, {}) / "record.json"
    odd = whole | config
    spoil(record, config=odd, name=run_name(kind, odd), metrics=figures | metrics)


@pytest.mark.parametrize(("name", "kind", "config", "metrics"), ODD, ids=[odd[0] for odd in ODD])
def test_one_odd_record_is_listed_and_costs_nothing_else(
    name: str, kind: str, config: dict[str, Any], metrics: dict[str, Any], tmp_path: Path
) -> None:
    finish(tmp_path, "train", train_config("soc", "XS", "cifar10", "2h"), train_metrics(0.5, 0.7, 1.0))
    add_odd_record(tmp_path, 0, kind, config, metrics)
    study = read_study(tmp_path)
    assert [row.network.method for row in study.trained if row.result.test_accuracy == 0.7] == ["soc"]
    assert [row.reason for row in study.missing_results], "the odd record is listed"
    assert all(len(row.reason) <= 300 for row in study.missing_results)


def test_a_report_is_written_over_odd_records_of_all_kinds(tmp_path: Path) -> None:
    """Machine facts of the wrong type, odd lines of a log, long texts: shown or listed, never an end of the report."""
    good = finish(tmp_path, "train", train_config("soc", "M", "cifar10", "24h"), train_metrics(0.5, 0.7, 1.0))
    (tmp_path / good / "log.jsonl").write_text(
        '{"epoch": 1, "train_loss": 2.0}\n[1]\n{"epoch": "x", "train_loss": 1}\n\n{"epoch": 3, "train_loss": 1.5}\n'
    )
    for index, (_, kind, config, metrics) in enumerate(ODD):
        add_odd_record(tmp_path, index, kind, config, metrics)
    machine = {"cpu": ["a"], "memory_bytes": "much", "gpus": [{"name": 3, "memory_bytes": None}, 7], "cores": {}}
    spoil(tmp_path / good / "record.json", machine=machine, versions={"torch": "v" * 10**6}, commit={"id": 5})
    with start_run(tmp_path, "train", train_config("cpl", "M", "cifar10", "20s")) as run:
        run.update(status=RunStatus.FAILED, reason="long " * 200_000)
    written = write_report(tmp_path, tmp_path / "out")
    page = written.page.read_text()
    assert written.unreadable >= 15
    assert "in the paper: 66.3" in page, "SOC M of the paper lies over the same model of the study"
    assert "lines of log.jsonl were left out" in page
    assert "much" in page
    assert len(page) < 5_000_000


def test_memory_rows_have_their_source(tmp_path: Path) -> None:
    add_memory(tmp_path, sizes=("XS",))
    assert {row.source for row in read_study(tmp_path).memory} == {"predicted"}


def test_the_report_reads_records_only() -> None:
    """Of the benchmark it loads records and published results: nothing that trains or measures."""
    code = (
        "import sys; import onelip.bench.report.write_report, onelip.bench.report.advice_text; "
        "print(*sorted({m.split('.')[2] for m in sys.modules if m.startswith('onelip.bench.')}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["file_lock", "paper", "records", "report", "terminal"]
