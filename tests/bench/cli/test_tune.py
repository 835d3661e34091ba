"""`onelip tune`, and where its thresholds are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onelip import tuning
from onelip.bench import cli
from onelip.bench.cli import doctor
from onelip.bench.measurement import PREDICTED, PREDICTED_ON_GPU, Measurement, run_measurement
from onelip.bench.runs import NetworkSpec, read_record
from onelip.bench.runs.machine import device_name, machine_facts
from onelip.linalg.thresholds import (
    VARIABLE,
    Thresholds,
    forced_thresholds,
    kept_thresholds,
    read_thresholds,
    thresholds,
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    kept_thresholds.cache_clear()
    yield tmp_path / "thresholds.json"
    kept_thresholds.cache_clear()


@pytest.fixture
def fast_at_frequencies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which every layer takes four fifths of the time by frequency."""

    def seconds(action: Any, calls: int) -> float:
        return 0.8 if thresholds().whole_share > 1 else 1.0

    monkeypatch.setattr(tuning, "_seconds", seconds)
    for action in ("_train", "_evaluate"):
        monkeypatch.setattr(tuning, action, lambda module, x: None)


@pytest.mark.usefixtures("fast_at_frequencies")
def test_measure_show_and_reset(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["tune", "--show"]) == 0
    assert "larger images 0.35 0.35" in " ".join(capsys.readouterr().out.split())
    assert cli.run(["tune"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    assert "+25.0%" in printed
    assert str(file) in printed.replace("\n", "")
    assert read_thresholds() == Thresholds(1.2, 0.55, 2**22)
    assert cli.run(["tune", "--show"]) == 0
    assert "larger images 0.35 0.55" in " ".join(capsys.readouterr().out.split())
    assert cli.run(["tune", "--reset"]) == 0
    assert read_thresholds() == Thresholds()
    assert "thresholds.json.old" in capsys.readouterr().out.replace("\n", "")
    assert cli.run(["tune", "--reset"]) == 0
    assert "nothing to reset" in capsys.readouterr().out
    assert cli.run(["tune", "--reset", "--show"]) == 2


@pytest.mark.parametrize("arguments", [["tune"], ["tune", "--show"], ["doctor"], ["theory"]])
def test_a_damaged_file_is_one_line(arguments: list[str], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("{")
    assert cli.run(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert str(file) in line
    assert "onelip tune --reset" in line


TUNED = Thresholds(whole_share=0.9)


def test_records_and_the_doctor_name_thresholds_that_are_not_built_in() -> None:
    assert "thresholds" not in machine_facts()
    assert "tuned" not in device_name("cpu")
    with forced_thresholds(TUNED):
        assert machine_facts()["thresholds"] == {"whole_share": 0.9}
        assert device_name("cpu").endswith(" threads, tuned whole_share 0.9")
        findings = {finding.what: finding.text for finding in doctor.machine_findings()}
    assert findings["thresholds"] == "tuned whole_share 0.9"


def test_a_measurement_with_other_thresholds_is_another_one(tmp_path: Path) -> None:
    """Those on a GPU or predicted for one do not depend on them."""
    network = NetworkSpec(method="standard", width=4)
    time, counted = Measurement("time", network), Measurement("macs", network, 2)
    predicted, on_gpu = (Measurement("memory", network, 2, device) for device in (PREDICTED, PREDICTED_ON_GPU))
    usual = [one.config() for one in (time, counted, predicted, on_gpu)]
    plain = run_measurement(counted, tmp_path)
    with forced_thresholds(Thresholds(whole_share=0)):
        tuned = [one.config() for one in (time, counted, predicted, on_gpu)]
        other = run_measurement(counted, tmp_path)
    assert [one == two for one, two in zip(usual, tuned, strict=True)] == [False, False, False, True]
    assert other.is_new
    assert other.metrics["inference"] != plain.metrics["inference"]
    assert other.metrics["generation"] == 1, "the newer one is shown"
    assert read_record(other.folder).machine["thresholds"] == {"whole_share": 0}
    assert json.loads((other.folder / "record.json").read_text())["config"]["thresholds"] == {"whole_share": 0}
    assert not run_measurement(counted, tmp_path).is_new
