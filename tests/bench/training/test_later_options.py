"""Named networks, the recipe fast, and the options that came with them, in the training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import tiny_data
import torch
from ship import ship
from tiny_data import run_spec

import onelip
from onelip import pretrained
from onelip.bench.records import RunStatus, read_dataclass
from onelip.bench.records.new_networks import new_network
from onelip.bench.records.specs import RunSpec
from onelip.bench.training import LeftEarly, TrainOptions, train
from onelip.bench.training.evaluation import evaluate_run
from onelip.errors import InvalidInputError
from onelip.models import FastNet

FAST: dict[str, Any] = {"model": "fastnet", "width": 8, "dataset": "tiny", "batch_size": 32, "epochs": 2}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def test_the_recipe_fast_is_that_of_fastnet_and_each_option_wins() -> None:
    spec = run_spec(**FAST | {"batch_size": None})
    assert (spec.recipe, spec.network.method) == ("fast", "stiefel")
    assert (spec.precision, spec.batch_size) == ("bfloat16", 256)
    assert (spec.augmentation, spec.lr, spec.weight_decay) == ("shift-flip", 0.005, 0.0)
    hours = run_spec(model="fastnet", width=8, dataset="tiny", budget="1h")
    assert (hours.temperature, hours.augmentation) == (0.5, "crop-flip")
    assert run_spec(model="fastnet", width=8, dataset="tiny", budget="8m").temperature == 0.5
    given = run_spec(**FAST, precision="float32", lr=0.1, augmentation="none", temperature=3.0)
    assert (given.precision, given.lr, given.augmentation) == ("float32", 0.1, "none")
    assert run_spec(method="aol", width=4, dataset="tiny", epochs=1).precision == "float32"
    assert read_dataclass(RunSpec, run_spec(**FAST).__dict__ | {"network": spec.network.as_dict()}, "config")


@pytest.mark.parametrize(
    ("budget", "temperature", "augmentation"),
    [
        ("2m", 0.5, "flip"),
        ("8m", 0.5, "shift-flip"),
        ("59m", 0.5, "shift-flip"),
        ("1h", 0.5, "crop-flip"),
        ("24h", 0.25, "crop-flip"),
    ],
)
def test_the_fast_recipe_has_a_preset_per_budget(budget: str, temperature: float, augmentation: str) -> None:
    spec = run_spec(model="fastnet", dataset="cifar10", budget=budget)
    assert (spec.temperature, spec.augmentation) == (temperature, augmentation)
    assert run_spec(model="fastnet", dataset="cifar10", budget=budget, temperature=3.0).temperature == 3.0


def test_fastnet_learns_is_certified_and_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = train(run_spec(**FAST | {"epochs": 4}, precision="float32"), tmp_path)
    with pytest.raises(InvalidInputError, match="evaluated on the test set"):
        ship(tmp_path / record.name, "tiny-fast", tmp_path / "trained")
    assert record.status is RunStatus.FINISHED
    assert 0 < record.metrics["core_seconds"] < 60
    metrics = evaluate_run(tmp_path / record.name, progress=False).metrics
    assert metrics["test_accuracy"] > 0.6
    assert metrics["test_lipschitz_bound"] <= 1 + 1e-6
    ship(tmp_path / record.name, "tiny-fast", tmp_path / "trained")
    monkeypatch.setattr(pretrained, "_folder", lambda: tmp_path / "trained")
    card = pretrained.card("tiny-fast")
    assert card["certified_accuracy"]["36"] == metrics["test_certified_accuracy_36"]
    assert isinstance(onelip.load_model("tiny-fast"), FastNet)
    weights = safetensors.torch.load_file(tmp_path / record.name / "model.safetensors")
    matrix = weights["conv2_1.weight"]
    assert float((matrix @ matrix.mT - torch.eye(len(matrix))).abs().max()) <= 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {"lookahead": True},
        {"loss": "emma"},
        {"loss": "annealing", "optimizer": "manifoldadam"},
        {"loss": "regularised", "optimizer": "nadam"},
        {"model": "lipnext", "width": 16, "loss": "emma"},
        {"optimizer": "muon"},
    ],
)
def test_a_run_that_was_stopped_ends_with_the_same_weights(tmp_path: Path, options: dict[str, Any]) -> None:
    if options.get("optimizer") == "muon" and not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    spec = run_spec(**FAST | {"precision": "float32", "epochs": 1} | options)
    whole = train(spec, tmp_path / "whole")
    asked = iter([False, False, False, True])
    with pytest.raises(LeftEarly):
        train(spec, tmp_path / "parts", TrainOptions(stop_requested=lambda: next(asked)))
    parts = train(spec, tmp_path / "parts")
    ours, theirs = (
        safetensors.torch.load_file(folder / record.name / "model.safetensors")
        for folder, record in ((tmp_path / "whole", whole), (tmp_path / "parts", parts))
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_estimates_of_unit_rows_are_those_of_certificates(tmp_path: Path) -> None:
    """With sqrt(2) in place of the distances of rows, the estimate would be another one."""
    spec = run_spec(**FAST | {"model": "lipnext", "width": 16, "recipe": "short"})
    record = train(spec, tmp_path)
    proven = evaluate_run(tmp_path / record.name, "validation", progress=False).metrics
    for radius in (36, 72, 108, 255):
        estimate = record.metrics[f"validation_certified_accuracy_{radius}"]
        assert proven[f"proven_validation_certified_accuracy_{radius}"] == pytest.approx(estimate, abs=0.04)


def test_what_a_named_network_refuses() -> None:
    with pytest.raises(InvalidInputError, match="--kernel-size belongs to convnet"):
        run_spec(**FAST, kernel_size=5)
    with pytest.raises(InvalidInputError, match="its mixers are stiefel"):
        run_spec(**FAST | {"model": "lipnext", "method": "aol", "width": 16})
    with pytest.raises(InvalidInputError, match="known here: convnet, fastnet"):
        run_spec(**FAST | {"model": "resnet", "method": "aol"})
    assert isinstance(new_network(run_spec(**FAST).network, device="meta"), FastNet)
