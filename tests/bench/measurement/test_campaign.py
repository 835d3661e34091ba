"""Campaigns: records, resuming, combinations that do not fit, failures, and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from onelip.bench.cli import run
from onelip.bench.measurement import Job, Rounds, Workload, campaign, run_job
from onelip.bench.measurement.memory import GIB, MemoryUse
from onelip.bench.runs import RunStatus, read_record

SMALL = Workload("standard", batch_size=2)
USE = MemoryUse(1, 3, 2)


def _count_calls(monkeypatch: pytest.MonkeyPatch, use: MemoryUse = USE) -> list[Workload]:
    calls: list[Workload] = []
    monkeypatch.setattr(campaign, "predict_memory", lambda workload: calls.append(workload) or use)
    campaign._predicted_training.cache_clear()
    return calls


def test_a_finished_job_is_read_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _count_calls(monkeypatch)
    job = Job("memory", SMALL, predicted=True)
    first, second = run_job(job, tmp_path), run_job(job, tmp_path)
    assert calls == [SMALL]
    assert (first.is_new, second.is_new) == (True, False)
    assert first.metrics == second.metrics == {
        "fits": True, "parameters": 1, "training": 3, "inference": 2, "smallest_card_gib": 8,
    }  # fmt: skip
    record = read_record(first.folder)
    assert (record.kind, record.status, record.network.method) == ("measure", RunStatus.FINISHED, "standard")


def test_an_interrupted_campaign_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _count_calls(monkeypatch)

    def stop_at_bcop(workload: Workload) -> MemoryUse:
        calls.append(workload)
        if workload.method == "bcop":
            raise KeyboardInterrupt
        return USE

    monkeypatch.setattr(campaign, "predict_memory", stop_at_bcop)
    arguments = ["measure", "memory", "--predict", "--methods", "aol", "bcop", "soc", "--datasets", "cifar10"]
    assert run([*arguments, "--runs-dir", str(tmp_path)]) == 130
    assert [workload.method for workload in calls] == ["reference", "aol", "bcop"]
    calls = _count_calls(monkeypatch)
    assert run([*arguments, "--runs-dir", str(tmp_path)]) == 0
    assert [workload.method for workload in calls] == ["bcop", "soc"]


def test_other_code_is_another_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _count_calls(monkeypatch)
    job = Job("memory", SMALL, predicted=True)
    run_job(job, tmp_path)
    monkeypatch.setattr(campaign, "code_fingerprint", lambda: "other")
    assert run_job(job, tmp_path).is_new
    assert len(calls) == 2


def test_times_belong_to_their_hardware_and_counts_do_not() -> None:
    assert {"device", "hardware"} <= Job("time", SMALL).config().keys()
    assert {"device", "hardware"} <= Job("memory", SMALL).config().keys()
    for job in (Job("macs", SMALL), Job("memory", SMALL, predicted=True)):
        assert not {"device", "hardware"} & job.config().keys()


def test_what_does_not_fit_is_a_result_until_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _count_calls(monkeypatch, MemoryUse(1, 94 * GIB, 2))
    monkeypatch.setattr(campaign, "available_memory", lambda device: 24 * GIB)
    arguments = ["measure", "memory", "--device", "cpu", "--methods", "standard", "--datasets", "cifar10"]
    assert run([*arguments, "--runs-dir", str(tmp_path)]) == 0
    assert "needs 94.0 GiB" in capsys.readouterr().out
    job = Job("memory", Workload("standard"))
    outcome = run_job(job, tmp_path)
    assert not outcome.is_new
    assert outcome.metrics == {"fits": False, "needed_bytes": 94 * GIB, "available_bytes": 24 * GIB}
    monkeypatch.setattr(campaign, "available_memory", lambda device: 200 * GIB)
    monkeypatch.setattr(campaign, "measure_memory", lambda workload, device: MemoryUse(1, 93 * GIB, 2))
    outcome = run_job(job, tmp_path)
    assert outcome.is_new
    assert (outcome.metrics["training"], outcome.metrics["smallest_card_gib"]) == (93 * GIB, None)


def test_running_out_of_memory_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _count_calls(monkeypatch, MemoryUse(1, GIB, 2))
    monkeypatch.setattr(campaign, "available_memory", lambda device: 3 * GIB)

    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(campaign, "measure_throughput", fail)
    metrics = run_job(Job("time", SMALL), tmp_path).metrics
    assert metrics == {"fits": False, "needed_bytes": 2 * GIB, "available_bytes": 3 * GIB}


def test_a_failure_is_recorded_named_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(workload: Workload) -> MemoryUse:
        if workload.method == "standard":
            raise RuntimeError("something\nis wrong")
        return USE

    monkeypatch.setattr(campaign, "predict_memory", fail)
    arguments = ["measure", "memory", "--predict", "--methods", "standard", "aol", "--datasets", "cifar10"]
    assert run([*arguments, "--runs-dir", str(tmp_path)]) == 1
    output = capsys.readouterr().out
    assert "RuntimeError: something is wrong" in output
    assert "aol" in output
    job = Job("memory", Workload("standard"), predicted=True)
    assert read_record(tmp_path / run_job(job, tmp_path).folder.name).status is RunStatus.FAILED
    _count_calls(monkeypatch)
    assert run([*arguments, "--runs-dir", str(tmp_path)]) == 0


def test_commands_write_records_and_fit_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    common = ["--methods", "aol", "--datasets", "cifar10", "--batch-size", "2", "--runs-dir", str(tmp_path)]
    assert run(["measure", "memory", "--predict", *common]) == 0
    assert run(["measure", "memory", "--device", "cpu", *common]) == 0
    assert run(["measure", "macs", *common]) == 0
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert output.count("reference") == 3
    records = [json.loads(path.read_text()) for path in tmp_path.glob("*/record.json")]
    assert len(records) == 6
    use = {
        record["config"]["predicted"]: record["metrics"]["training"]
        for record in records
        if record["config"]["quantity"] == "memory" and record["config"]["network"]["method"] == "aol"
    }
    assert use[True] == pytest.approx(use[False], rel=0.01)


def test_time_command_prints_ratios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    from onelip.bench.measurement.throughput import measure_throughput

    few = Rounds(warm_up=1, least=6, most=6)
    monkeypatch.setattr(campaign, "measure_throughput", lambda work, device, _: measure_throughput(work, device, few))
    common = ["--methods", "standard", "--datasets", "cifar10", "--batch-size", "2", "--runs-dir", str(tmp_path)]
    assert run(["measure", "time", "--device", "cpu", *common]) == 0
    assert run(["measure", "time", "--device", "cpu", *common]) == 0
    output = capsys.readouterr().out
    assert "1 from an earlier run" in output
    assert max(map(len, output.splitlines())) <= 80


def test_seconds_limit_the_time_and_belong_to_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Rounds | None] = []

    def fail(work: Workload, device: torch.device, rounds: Rounds | None) -> None:
        asked.append(rounds)
        raise RuntimeError

    monkeypatch.setattr(campaign, "measure_throughput", fail)
    common = ["--methods", "aol", "--datasets", "cifar10", "--batch-size", "2", "--runs-dir", str(tmp_path)]
    run(["measure", "time", "--device", "cpu", *common])
    run(["measure", "time", "--device", "cpu", "--seconds", "5", *common])
    assert asked == [None, Rounds(seconds=5.0)]
    assert len(list(tmp_path.iterdir())) == 2


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in (
        ["--methods", "nope"],
        ["--datasets", "mnist"],
        ["--device", "cuda:99"],
        ["--device", "tpu"],
        ["--sizes"],
        ["--seconds", "0"],
        ["--seconds", "inf"],
    ):
        assert run(["measure", "time", *arguments, "--runs-dir", str(tmp_path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
