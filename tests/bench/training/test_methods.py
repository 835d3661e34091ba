"""Every method learns from real images in 20 s, and what is certified afterwards is proven."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tiny_data import run_spec

from onelip.bench.runs import RunSpec, RunStatus
from onelip.bench.training import train
from onelip.bench.training.evaluation import evaluate_run
from onelip.layers import MethodInfo, list_methods

CHANCE = 0.1


def loss_of_equal_scores(config: RunSpec) -> float:
    """What a network that has learnt nothing gets: all ten scores alike."""
    assert config.temperature is not None
    return config.offset + config.temperature * math.log(math.exp(-config.offset / config.temperature) + 9)


@pytest.mark.slow
@pytest.mark.parametrize("method", list_methods(), ids=lambda method: method.key)
def test_a_method_learns_in_20_seconds(method: MethodInfo, tmp_path: Path) -> None:
    """A narrow network, a high temperature and no augmentation, because one core makes 60 to 180 steps in that time.

    So narrow, Sandwich, the slowest, takes a higher learning rate than by default.
    """
    config = run_spec(
        method=method.key,
        width=4,
        dataset="cifar10-mini",
        budget="20s",
        recipe="short",
        lr=0.003 if method.key == "sandwich" else None,
        temperature=4.0,
        augmentation="none",
    )
    record = train(config, tmp_path)
    assert record.status is RunStatus.FINISHED
    assert record.metrics["validation_loss"] < loss_of_equal_scores(config)
    metrics = evaluate_run(tmp_path / record.name).metrics
    assert metrics["test_accuracy"] > CHANCE
    if method.guarantee == "none":
        assert metrics["test_certified_accuracy_36"] == 0
    else:
        assert metrics["test_certified_accuracy_36"] > CHANCE
        assert metrics["test_lipschitz_bound"] <= 1 + 1e-4
