"""`onelip measure`: which networks are measured, how often, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onelip.bench.cli import run
from onelip.bench.cli.outcome_tables import print_outcomes
from onelip.bench.measurement import measurements
from onelip.bench.measurement.measurements import Measurement, Outcome, Quantity
from onelip.bench.measurement.memory import GIB, MemoryUse
from onelip.bench.records import NetworkSpec

USE = MemoryUse(1, 3, 2)
SMALL = ["--width", "4", "--batch-size", "2"]


def _records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/record.json"))]


def test_every_quantity_is_printed_within_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    common = ["--methods", "AOL", *SMALL, "--runs-dir", str(tmp_path)]
    commands = {
        "time": ["--device", "cpu", "--rounds", "1", "--budget", "2h"],
        "memory": ["--predict"],
        "macs": [],
        "certify": ["--device", "cpu", "--rounds", "6", "--arithmetic", "float32"],
    }
    for quantity, options in commands.items():
        assert run(["measure", quantity, *options, *common]) == 0
        output = capsys.readouterr().out
        assert max(map(len, output.splitlines())) <= 80
        assert "…" not in output, "cut off"
        assert "ConvNet w4, cifar10" in output
        assert ("reference " in output.split("method")[1].split("aol")[0]) == (quantity in ("memory", "macs"))
    assert {record["config"]["quantity"] for record in _records(tmp_path)} == {*commands}


def test_slow_layers_with_long_names_are_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ratio = {"median": 12.341, "low": 10.123, "high": 13.456}
    phase = {"ratio": ratio, "seconds": {"median": 12.3456}, "reference_seconds": {"median": 1.0}}
    timed = {"fits": True, "training": phase, "inference": phase, "seconds_per_epoch": 1234.5}
    certified = {"fits": True, "certificates": phase, "bounds_seconds": 123.45, "lipschitz": 1.000001}
    cases: dict[Quantity, dict[str, Any]] = {"time": timed, "certify": certified}
    for quantity, metrics in cases.items():
        network = NetworkSpec(method="orthogonium:cayley", size="XS", dataset="tiny-imagenet")
        outcome = Outcome(Measurement(quantity, network), metrics, None, True, tmp_path)
        print_outcomes([outcome], tmp_path, budget=None)
        output = capsys.readouterr().out
        assert all(text in output for text in ("orthogonium:cayley", "12346", "12.3", "10.1-13.5"))
        assert "…" not in output, "cut off"


def test_json_has_the_identity_and_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--methods", "standard", *SMALL, "--kernel-size", "5", "--json", "--runs-dir", str(tmp_path)]
    assert run(["measure", "time", "--device", "cpu", "--rounds", "2", *common]) == 0
    [entry] = json.loads(capsys.readouterr().out)
    assert entry["network"]["method"] == "standard"
    assert (entry["network"]["width"], entry["network"]["kernel_size"], entry["batch_size"]) == (4, 5, 2)
    assert {"quantity", "device", "hardware", "fingerprint", "record", "failure"} <= entry.keys()
    assert (entry["rounds"]["least"], entry["rounds"]["most"]) == (2, 2)
    assert entry["metrics"]["training"]["ratio"]["count"] == 2
    assert entry["record"] == _records(tmp_path)[0]["name"]


def test_memory_on_a_gpu_is_predicted_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--methods", "lot", "--width", "4", "--batch-size", "2", "--runs-dir", str(tmp_path), "--json"]
    peaks = {}
    for device in ("cpu", "cuda"):
        assert run(["measure", "memory", "--predict", "--device", device, *common]) == 0
        rows = [row for row in json.loads(capsys.readouterr().out) if row["network"]["method"] == "lot"]
        peaks[device] = rows[0]["device"], rows[0]["metrics"]["training"]
    assert (peaks["cpu"][0], peaks["cuda"][0]) == ("meta", "meta:gpu")
    assert peaks["cpu"][1] != peaks["cuda"][1]


def test_an_interrupted_command_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["measure", "memory", "--predict", "--methods", "aol", "bcop", "soc", "--runs-dir", str(tmp_path)]
    calls: list[Any] = []

    def stop_at_bcop(*_: Any) -> MemoryUse:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return USE

    monkeypatch.setattr(measurements, "measure_memory", stop_at_bcop)
    assert run([*arguments, *SMALL]) == 130
    assert run([*arguments, *SMALL]) == 0
    assert len(calls) == 5, "bcop again, then soc"
    assert "2 from an earlier run" in capsys.readouterr().out


def test_what_fails_or_does_not_fit_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []

    def fail_once(*_: Any) -> MemoryUse:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("something\nis wrong")
        return USE

    monkeypatch.setattr(measurements, "measure_memory", fail_once)
    common = ["--methods", "standard", "aol", *SMALL, "--runs-dir", str(tmp_path)]
    assert run(["measure", "memory", "--predict", *common]) == 1
    output = capsys.readouterr().out
    assert "standard: RuntimeError: something is wrong" in output
    assert "aol" in output
    monkeypatch.setattr(measurements, "_predicted_training", lambda network, batch_size, forms: 94 * GIB)
    monkeypatch.setattr(measurements, "available_memory", lambda device: GIB)
    assert run(["measure", "memory", "--device", "cpu", *common]) == 0
    assert capsys.readouterr().out.count("needs 94.0 GiB") == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--methods", "nope"], "nope"),
        (["--datasets", "mnist"], "mnist"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--device", "tpu"], "tpu"),
        (["--sizes"], "size"),
        (["--sizes", "XXL"], "sizes"),
        (["--sizes", "XS", "--width", "8"], "--width"),
        (["--width", "5"], "5"),
        (["--batch-size", "0"], "batch"),
        (["--seconds", "0"], "--seconds"),
        (["--seconds", "inf"], "--seconds"),
        (["--rounds", "0"], "--rounds"),
        (["--rounds", "3", "--seconds", "3"], "--rounds"),
        (["--budget", "soon"], "soon"),
        (["--figure", "costs.doc"], "costs.doc"),
        (["--sizes", "XS", "S", "--figure", "costs.svg"], "--figure"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_measured(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["measure", "time", *arguments, "--runs-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert named in error
    assert not list(tmp_path.iterdir())
