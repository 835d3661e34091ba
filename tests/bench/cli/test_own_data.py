"""Own images on the command line: train, evaluate, check and plan a study on a folder or a NumPy archive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onelip.bench.cli import run as run_command
from onelip.bench.data import load, normalise
from onelip.bench.records import load_records
from onelip.certification import certify
from onelip.checkpoints import load_model


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Bright and dark grey images of 6 x 7 pixels."""
    rng = np.random.default_rng(0)
    for name, level in (("bright", 190), ("dark", 20)):
        (tmp_path / "lamps" / name).mkdir(parents=True)
        for index in range(10):
            image = rng.integers(level, level + 40, (6, 7), dtype=np.uint8)
            Image.fromarray(image).save(tmp_path / "lamps" / name / f"{index}.png")
    return tmp_path / "lamps"


def train_command(dataset: Path, runs: Path) -> list[str]:
    network = ["--method", "aol", "--width", "4", "--dataset", str(dataset), "--validation-fraction", "0"]
    return ["train", *network, "--epochs", "2", "--batch-size", "8", "--runs-dir", str(runs), "--quiet"]


def test_folder_from_training_to_check(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    assert run_command(train_command(folder, runs)) == 0
    said = capsys.readouterr().err
    assert "8 x 8" in said, "the padding is said"
    (run,) = load_records(runs).runs
    dataset = load(run.record.network.dataset)
    assert dataset.name.startswith("folder:lamps-")
    assert run.record.metrics["test_images"] == 4
    checkpoint = run.folder / "model.safetensors"
    model = load_model(checkpoint).eval()
    assert model.input_shape == (1, 6, 7)
    certificate = certify(model, normalise(dataset.test_images, dataset.info.mean))
    share = float(((certificate.predictions == dataset.test_labels) & (certificate.radii >= 36 / 255)).double().mean())
    assert run.record.metrics["test_certified_accuracy_36"] == pytest.approx(share)
    assert run_command(train_command(folder, runs)) == 0
    assert len(load_records(runs).runs) == 1, "the same data are the same run"
    assert run_command(["evaluate", run.folder.name, "--runs-dir", str(runs)]) == 0
    assert run_command(["check", str(checkpoint), "--dataset", str(folder), "--samples", "4"]) == 0
    assert run_command(["data", "list"]) == 0
    assert "lamps" in capsys.readouterr().out
    (folder / "dark" / "9.png").unlink()
    assert run_command(train_command(folder, runs)) == 0
    assert len(load_records(runs).runs) == 2, "other data are another run"


def test_npz_in_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.npz"
    images = torch.rand(30, 5, 8, 8).numpy()
    np.savez(path, images=images, labels=np.arange(30) % 3)
    study = ["compare", "--methods", "aol", "--width", "8", "--epochs", "1", "--batch-size", "8", "--measure", "none"]
    for option in ("--datasets", "--dataset"):
        assert run_command([*study, option, str(path), "--out", str(tmp_path / "study"), "--dry-run"]) == 0
        assert "npz:mine" in capsys.readouterr().out.replace("\n", "")
    assert (
        run_command(
            [
                "measure",
                "macs",
                "--methods",
                "aol",
                "--sizes",
                "XS",
                "--dataset",
                str(path),
                "--runs-dir",
                str(tmp_path / "m"),
            ]
        )
        == 0
    )
    assert run_command(["data", "verify"]) == 0


def test_a_small_data_set_needs_no_batch_size(folder: Path, tmp_path: Path) -> None:
    """16 training images, two of them for validation: a batch of the recipe's 64 would never be full."""
    arguments = ["--method", "aol", "--width", "4", "--dataset", str(folder), "--epochs", "1", "--quiet"]
    assert run_command(["train", *arguments, "--runs-dir", str(tmp_path / "runs")]) == 0
    (run,) = load_records(tmp_path / "runs").runs
    assert run.record.config["batch_size"] == 8
    assert run_command(["train", *arguments, "--batch-size", "64", "--runs-dir", str(tmp_path / "other")]) == 2


def test_a_bad_file_is_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = folder / "dark" / "0.png"
    bad.write_bytes(bad.read_bytes()[:60])
    assert run_command(train_command(folder, tmp_path / "runs")) == 2
    assert str(bad) in capsys.readouterr().err
    assert run_command(train_command(tmp_path / "nothing.npz", tmp_path / "runs")) == 2
    assert "nothing.npz" in capsys.readouterr().err
    assert run_command(["data", "add", str(folder)]) == 2
    assert str(bad) in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
