"""Models of one's own on the command line: a function by its name, trained, evaluated, checked and exported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny_data
import torch

from onelip.bench.cli import run as run_command
from onelip.bench.data import normalise
from onelip.bench.records import NetworkSpec, load_records
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import add_to_study
from onelip.certification import certify
from onelip.checkpoints import load_model
from onelip.errors import InvalidInputError

MODEL = "model_factories:sequential"
TRAIN = ["train", "--model", MODEL, "--dataset", "tiny", "--batch-size", "32", "--lr", "0.01", "--quiet"]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def test_train_evaluate_check_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*TRAIN, "--epochs", "2", "--runs-dir", str(tmp_path)]
    assert run_command(arguments) == 0
    (run,) = load_records(tmp_path).runs
    assert run.record.network == NetworkSpec(model=MODEL, dataset="tiny")
    metrics, data = run.record.metrics, tiny_data.tiny_dataset()
    checkpoint = run.folder / "model.safetensors"
    model = load_model(checkpoint, allow="model_factories").eval()
    certificate = certify(model, normalise(data.test_images, data.info.mean))
    correct = certificate.predictions == data.test_labels
    assert metrics["test_accuracy"] == pytest.approx(float(correct.double().mean()))
    share = float((correct & (certificate.radii >= 36 / 255)).double().mean())
    assert metrics["test_certified_accuracy_36"] == pytest.approx(share)
    assert metrics["validation_certified_accuracy_36"] > 0, "estimated with the proven constant"
    before = (run.folder / "record.json").read_bytes()
    assert run_command(arguments) == 0
    assert (run.folder / "record.json").read_bytes() == before

    capsys.readouterr()
    evaluate = ["evaluate", run.folder.name, "--runs-dir", str(tmp_path)]
    assert run_command(evaluate) == 2, "the name in a record is not imported"
    assert f"--model {MODEL}" in capsys.readouterr().err
    for path in (run.folder, checkpoint):
        assert run_command(["evaluate", str(path), "--model", MODEL]) == 0, "the path that training printed"
    check = ["check", str(checkpoint), "--samples", "8", "--tolerance", "0.01"]  # on what it was trained on
    assert run_command(check) == 2
    run_command([*check, "--model", MODEL])
    assert "proven Lipschitz bound" in capsys.readouterr().out
    program = tmp_path / "model.pt2"
    write = ["--model", MODEL, "--torch-export", str(program)]
    assert run_command(["export", str(checkpoint), *write]) == 0, "its run says what it takes"
    alone = str(shutil.copy(checkpoint, tmp_path / "alone.safetensors"))
    assert run_command(["export", alone, *write]) == 2
    assert "--input-shape" in capsys.readouterr().err
    assert run_command(["export", alone, *write, "--input-shape", "3", "8", "8"]) == 0
    x = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(torch.export.load(program).module()(x), model(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "code", "word"),
    [
        ("sequential", 0, "1-Lipschitz"),
        ("plain", 0, "Conv2d"),
        ("unbounded", 1, "onelip.convert"),
        ("absent", 2, "absent"),
    ],
)
def test_check_before_training(name: str, code: int, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", f"model_factories:{name}", "--input-shape", "3", "8", "8", "--num-classes", "3"]
    assert run_command(arguments) == code
    shown = capsys.readouterr()
    assert word in shown.out + shown.err
    assert run_command(arguments[:2]) == 2
    assert "--input-shape" in capsys.readouterr().err


def test_a_model_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "from torch import nn\ndef make(**_):\n    return nn.Sequential(nn.Flatten(), nn.ReLU())\n"
    (tmp_path / "here_only.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run_command(["check", "here_only:make", "--input-shape", "3", "2", "2"]) == 0
    assert "Flatten" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "folder"), [("train", "--runs-dir"), ("search", "--studies-dir")])
def test_a_model_that_cannot_be_imported_leaves_no_record(
    command: str, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [command, "--model", "no_such_module:make", "--dataset", "tiny", "--epochs", "1"]
    assert run_command([*arguments, folder, str(tmp_path / "out")]) == 2
    assert "cannot import no_such_module" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("extra", [{"method": "aol"}, {"size": "S"}, {"width": 8}])
def test_options_of_convnet_are_refused(extra: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="--method, --size and --width"):
        NetworkSpec(model=MODEL, **extra)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="--method"):
        NetworkSpec()


def test_a_study_runs_a_model_of_ones_own_only_if_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study may come from somebody else: to continue it is not to run the code that its file names."""
    monkeypatch.chdir(tmp_path)
    options = StudyOptions(models=(MODEL,), datasets=("cifar10-mini",), epochs=1, measure="none")
    jobs = plan(options)
    add_to_study(tmp_path / "study", [options], jobs)
    for command in (["compare", "--out", "study"], ["job", "study", jobs[0].name]):
        assert run_command(command) == 2
        error = capsys.readouterr().err
        assert f"--model {MODEL}" in error
        assert error.count("\n") == 1
    assert run_command(["compare", "--out", "study", "--model", MODEL, "--dry-run"]) == 0
    assert "1 of 1 jobs to do" in capsys.readouterr().out
    assert run_command(["measure", "macs", "--model", "nothing:here", "--datasets", "cifar10-mini"]) == 2
    assert "cannot import nothing" in capsys.readouterr().err
    assert run_command(["compare", "--model", "nothing:here", "--out", "other"]) == 2
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("function", ["without_arguments", "of_classes"])
def test_a_function_gets_the_arguments_that_it_takes(
    function: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"model_factories:{function}"
    assert run_command(["check", name, "--input-shape", "3", "8", "8"]) == 0
    assert run_command(["train", "--model", name, *TRAIN[3:], "--epochs", "1", "--runs-dir", str(tmp_path)]) == 0
    (run,) = load_records(tmp_path).runs
    assert f"onelip check {run.folder / 'model.safetensors'} --model {name}" in capsys.readouterr().out
    load_model(run.folder / "model.safetensors", allow="model_factories")
