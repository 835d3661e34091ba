"""Time budgets on several kinds of device: one kind is compared, and the reader is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic_study import train_config, train_metrics

from onelip.bench.cli.advise import Command
from onelip.bench.records import RunStatus, start_run
from onelip.bench.report.findings import warnings
from onelip.bench.report.read_study import read_study


def _train(study: Path, method: str, device: str | None, **config: Any) -> None:
    values = train_config(method, "XS", "cifar10", "2h") | config
    with start_run(study / "runs", "train", values, device=device) as run:
        run.update(status=RunStatus.FINISHED, metrics=train_metrics(0.4, 0.6, 7200.0))


def test_budgets_are_compared_within_one_kind_of_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method, device in (("aol", "A100"), ("bcop", "A100"), ("soc", "V100"), ("lot", None)):
        _train(tmp_path, method, device)
    _train(tmp_path, "cpl", "V100", budget=None, epochs=3)
    study = read_study(tmp_path)
    assert {run.network.method for run in study.trained} == {"aol", "bcop", "lot", "cpl"}, "epochs are epochs anywhere"
    (left_out,) = (row for row in study.missing_results if row.status == "not compared")
    assert left_out.network is not None
    assert left_out.network.method == "soc"
    assert "V100" in left_out.reason
    first = warnings(study)[0]
    assert "mixes kinds of device" in first
    assert "2 trainings with a time budget ran on A100, 1 on V100" in first
    Command(study=tmp_path).run()
    assert "mixes kinds of device" in capsys.readouterr().err


def test_one_kind_needs_no_warning(tmp_path: Path) -> None:
    _train(tmp_path, "aol", "A100")
    _train(tmp_path, "bcop", "A100")
    study = read_study(tmp_path)
    assert (len(study.trained), study.mixed_devices) == (2, "")


def test_a_run_that_continues_on_another_kind_names_both(tmp_path: Path) -> None:
    config = train_config("aol", "XS", "cifar10", "2h")
    for device in ("A100", "This and That", "A100"):  # a name that has the word in it stays one
        with start_run(tmp_path, "train", config, device=device) as run:
            run.save_checkpoint({}, {})
            run.update(metrics={"train_seconds": 1.0})
            found = run.record.machine
    assert (found["devices"], found["device"]) == (["A100", "This and That"], "A100 and This and That")
