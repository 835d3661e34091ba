"""`onelip train`, `evaluate` and `budget` on the command line, and the results on the test set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_data

from onelip.bench.cli import run as run_command
from onelip.bench.data import normalise
from onelip.bench.records import NetworkSpec, load_records, machine, start_run
from onelip.bench.training.evaluation import evaluate_run
from onelip.certification import certify
from onelip.checkpoints import load_model
from onelip.errors import InvalidInputError

TRAIN = ["train", "--method", "cayley", "--width", "4", "--dataset", "tiny", "--batch-size", "32", "--lr", "0.02"]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)
    monkeypatch.setattr(machine, "free_cores", lambda: None)  # other programs would be told of in a long line


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
    next_commands = capsys.readouterr().out.partition("next:")[2]
    assert str(run.folder / "model.safetensors") in next_commands
    assert run_command([*arguments, "--json", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["metrics"] == metrics
    assert shown.err == ""
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
    arguments = [*TRAIN[:2], "standard", *TRAIN[3:-1], "0.001", "--epochs", "2", "--runs-dir", str(tmp_path), "--quiet"]
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
