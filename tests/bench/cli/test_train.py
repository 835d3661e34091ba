"""`onelip train`, `evaluate` and `budget` on the command line, and the results on the test set."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import tiny_data
import torch

from onelip.bench.cli import run as run_command
from onelip.bench.data import normalise
from onelip.bench.runs import NetworkSpec, load_records, start_run
from onelip.bench.training.evaluation import evaluate_run
from onelip.bench.training.step_time import StepTime
from onelip.certification import certify
from onelip.checkpoints import load_model
from onelip.errors import InvalidInputError

TRAIN = ["train", "--method", "cayley", "--width", "4", "--dataset", "tiny", "--batch-size", "32", "--lr", "0.1"]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def test_train_and_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*TRAIN, "--epochs", "6", "--runs-dir", str(tmp_path)]
    assert run_command(arguments) == 0
    shown = capsys.readouterr()
    assert "finished" in shown.out
    assert "test, proven" in shown.out
    assert "epoch train loss" in shown.err
    assert all(len(line) <= 80 for line in shown.err.splitlines())
    (run,) = load_records(tmp_path).runs
    metrics = run.record.metrics
    _check_against_certificates(run.folder, metrics)
    assert metrics["test_lipschitz_bound"] <= 1 + 1e-4
    curve = metrics["test_certified_curve"]
    assert len(curve) == 86
    assert curve[12::12][:3] == [metrics[f"test_certified_accuracy_{radius}"] for radius in (36, 72, 108)]
    assert metrics["test_images"] > 0
    assert run_command(["evaluate", run.folder.name[:12], "--runs-dir", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == metrics
    before = (run.folder / "record.json").read_bytes()
    assert run_command(arguments) == 0  # shows the result again, without training or evaluating
    assert (run.folder / "record.json").read_bytes() == before


def _check_against_certificates(folder: Path, metrics: dict[str, float]) -> None:
    data = tiny_data.tiny_dataset()
    images = normalise(data.test_images, data.info.mean)
    certificate = certify(load_model(folder / "model.safetensors"), images, data.test_labels)
    correct = certificate.predictions == data.test_labels
    assert metrics["test_accuracy"] == pytest.approx(float(correct.double().mean()))
    for radius in (36, 72, 108, 255):
        share = float((correct & (certificate.radii >= radius / 255)).double().mean())
        assert metrics[f"test_certified_accuracy_{radius}"] == pytest.approx(share)
    assert metrics["test_certified_accuracy_36"] > 0.1


def test_evaluate_the_validation_split(tmp_path: Path) -> None:
    assert run_command([*TRAIN, "--epochs", "2", "--runs-dir", str(tmp_path), "--skip-test", "--quiet"]) == 0
    (run,) = load_records(tmp_path).runs
    assert "test_accuracy" not in run.record.metrics
    metrics = evaluate_run(run.folder, "validation").metrics
    for name in ("accuracy", "certified_accuracy_36"):  # the proof costs next to nothing
        assert metrics[f"proven_validation_{name}"] == pytest.approx(metrics[f"validation_{name}"], abs=1 / 32)


def test_nothing_is_certified_without_a_bound(tmp_path: Path) -> None:
    arguments = [*TRAIN[:2], "standard", *TRAIN[3:], "--epochs", "2", "--runs-dir", str(tmp_path), "--quiet"]
    assert run_command(arguments) == 0
    (run,) = load_records(tmp_path).runs
    metrics = run.record.metrics
    assert metrics["test_accuracy"] > 0
    # A plain network has a proven bound too, but a large one.
    assert metrics["test_lipschitz_bound"] > 1
    assert 0 <= metrics["test_certified_accuracy_36"] <= metrics["test_accuracy"]


def test_divergence_has_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*TRAIN[:2], "standard", *TRAIN[3:-1], "1e30", "--epochs", "2", "--runs-dir", str(tmp_path), "--quiet"]
    assert run_command(arguments) == 1
    assert "onelip: the run is diverged: the training loss is not finite" in capsys.readouterr().err
    (run,) = load_records(tmp_path).runs
    with pytest.raises(InvalidInputError, match="the run is diverged; only a finished run"):
        evaluate_run(run.folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--method", "aol"], "either --budget"),
        (["train", "--method", "aol", "--budget", "5"], "not a duration"),
        (["train", "--method", "aol", "--epochs", "1", "--checkpoint-every", "soon"], "not a duration"),
        (["train", "--epochs", "1"], "method"),
        (["evaluate", "nothing", "--runs-dir", "/nowhere"], "no such folder of runs"),
        (["search", "--method", "aol", "--epochs", "1", "--trials", "0"], "trials must be 1 or more"),
        (["budget", "--methods", "magic"], "there is no method"),
        (["budget", "--budget", "x"], "not a duration"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_arguments(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_evaluating_something_else(tmp_path: Path) -> None:
    with start_run(tmp_path, "measure", {"network": NetworkSpec(method="aol").as_dict()}) as run:
        run.update(status="finished")
    with pytest.raises(InvalidInputError, match="not a training run"):
        evaluate_run(run.folder)


def test_step_times_add_up() -> None:
    step = StepTime(fixed=0.5, per_image=0.01)
    assert step.seconds(100) == 1.5
    assert step.epochs(budget=300.0, batch_size=100, images=1050) == pytest.approx(20.0)


def test_budget_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"XS": 0.1, "S": 0.4, "M": 1.6, "L": 6.4}
    monkeypatch.setattr(
        "onelip.bench.training.step_time.measure_step_time",
        lambda config, device: StepTime(times[config.network.size], 0.0),
    )
    assert run_command(["budget", "--budget", "1h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    (row,) = (line for line in lines if line.split()[:1] == ["lot"])
    assert row.split()[1:] == ["185", "46", "12", "2.9"]  # 3600 s / (195 steps of 0.1 s), ...


def test_budget_measures(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["budget", "--methods", "aol", "--sizes", "XS", "S", "--dataset", "tiny", "--limit", "0.001s", "--json"]
    assert run_command(arguments) == 0
    tree = json.loads(capsys.readouterr().out)
    cell = tree["aol"]["XS"]
    assert 0 < cell["seconds_per_step"] < 100
    assert math.isclose(cell["epochs"], 7200 / cell["seconds_per_step"])  # 320 images: one step per epoch
    assert tree["aol"]["S"] is None  # beyond the limit


@pytest.mark.parametrize(("fixed", "per_image"), [(0.5, 0.01), (0.0, 0.02), (0.3, 0.0)])
def test_step_time_is_a_line_through_two_batches(
    monkeypatch: pytest.MonkeyPatch, fixed: float, per_image: float
) -> None:
    from tiny_data import run_spec

    from onelip.bench.training import step_time

    def clockwork(model: object, optimiser: object, config: object, batch: int, device: object) -> float:
        return fixed + per_image * batch

    monkeypatch.setattr(step_time, "_step_seconds", clockwork)
    config = run_spec(method="aol", width=4, dataset="tiny", epochs=1)
    step = step_time.measure_step_time(config, torch.device("cpu"))
    assert step.seconds(256) == pytest.approx(fixed + 256 * per_image)


def test_noise_never_makes_a_step_time_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_data import run_spec

    from onelip.bench.training import step_time

    monkeypatch.setattr(step_time, "_step_seconds", lambda *arguments: 1.0 if arguments[3] == 16 else 0.9)
    config = run_spec(method="aol", width=4, dataset="tiny", epochs=1)
    step = step_time.measure_step_time(config, torch.device("cpu"))
    assert step.seconds(16) == step.seconds(256) == pytest.approx(1.0)
