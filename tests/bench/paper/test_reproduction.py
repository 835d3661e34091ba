from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from onelip.bench.cli import run
from onelip.bench.paper.published import published_curves
from onelip.bench.paper.reproduction import (
    METHODS,
    EpochComparison,
    published_epoch,
    reproduce,
    reproduction_spec,
)
from onelip.bench.records.new_networks import network_config
from onelip.bench.training.optimisers import OneCycle
from onelip.bench.training.plans import EpochPlan
from onelip.errors import InvalidInputError

BASE = EpochComparison("aol", "XS", 1, 0.35, 0.35, 0.1, 0.1, 0.9, 0.9, 1.0)


def test_methods_are_those_of_the_curves() -> None:
    assert METHODS == ("aol", "bcop", "cayley", "cpl", "lot", "sll", "soc")


@pytest.mark.parametrize("method", METHODS)
def test_the_run_is_that_of_the_published_log(method: str) -> None:
    spec, published = reproduction_spec(method, "XS", 3), published_epoch(method, "XS", 1)
    assert (spec.lr, spec.weight_decay, spec.schedule_epochs) == (
        published.lr,
        published.weight_decay,
        published.epochs,
    )
    assert (spec.batch_size, spec.optimizer, spec.temperature) == (256, "sgd", 0.25)
    assert (spec.setting, spec.validation_fraction, spec.augmentation) == ("published", 0.0, "crop-flip")
    assert network_config(spec.network, spec.setting).init == "published"


def test_schedule_moves_once_per_epoch_as_torchs() -> None:
    """torch's scheduler with one step per epoch, as the published code uses it."""
    parameter = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    torchs = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.1, epochs=20, steps_per_epoch=1)
    plan, ours = EpochPlan(3, 2, 20), OneCycle(0.1)
    for _ in range(3):
        for _ in range(2):
            assert not plan.finished
            assert ours.at(plan.fraction, plan.planned_steps)[0] == pytest.approx(torchs.get_last_lr()[0], rel=1e-12)
            plan.step_done()
        optimiser.step()
        torchs.step()
    assert plan.finished


@pytest.mark.parametrize(
    ("accuracy", "certified", "verdict"),
    [
        (0.35, 0.1, "within"),
        (0.32, 0.13, "within"),
        (0.30, 0.1, "lower"),
        (0.35, 0.05, "lower"),
        (0.45, 0.05, "lower"),
        (0.45, 0.1, "better"),
    ],
)
def test_verdicts(accuracy: float, certified: float, verdict: str) -> None:
    assert dataclasses.replace(BASE, accuracy=accuracy, certified_36=certified).verdict == verdict


def test_unknown_networks_and_epochs() -> None:
    with pytest.raises(InvalidInputError, match="no published curve of oni XS, use one of aol"):
        reproduction_spec("oni", "XS", 1)
    with pytest.raises(InvalidInputError, match="no published curve of aol L"):
        reproduction_spec("aol", "L", 1)
    with pytest.raises(InvalidInputError, match="has no epoch 11, use 1, 2, 3"):
        reproduction_spec("aol", "XS", 11)
    assert run(["reproduce", "--methods", "gan"]) == 2


def test_a_tiny_run_is_trained_tested_and_read_again(tmp_path: Path) -> None:
    """On the embedded images and a small network; the published values are those of the real one."""
    spec = reproduction_spec("aol", "XS", 1)
    network = dataclasses.replace(spec.network, dataset="cifar10-mini", size="XS")
    spec = dataclasses.replace(spec, network=network)
    first = reproduce(spec, tmp_path)
    (folder,) = tmp_path.iterdir()
    record = json.loads((folder / "record.json").read_text())
    assert record["config"]["setting"] == "published"
    assert record["metrics"]["steps"] == 16  # 4,000 images: the last batch is smaller
    assert record["metrics"]["core_seconds"] > 0
    assert reproduce(spec, tmp_path) == first


def test_curves_are_21_runs() -> None:
    runs = {(row.key, row.size): row.epochs for row in published_curves()}
    assert len(runs) == 21
    assert runs["aol", "XS"] == 10044
    assert all(0 <= row.certified_36 <= row.test_accuracy <= 1 for row in published_curves())
