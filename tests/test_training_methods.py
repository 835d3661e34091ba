"""Every method trains on real images under a time budget, and its proven bound holds afterwards."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from onelip.evaluation import evaluate_run
from onelip.layers import MethodInfo, list_methods
from onelip.records import RunStatus
from onelip.train_config import TrainConfig
from onelip.training import train


@pytest.mark.slow
@pytest.mark.parametrize("method", list_methods(), ids=lambda method: method.key)
def test_a_method_trains_and_keeps_its_bound(method: MethodInfo, tmp_path: Path) -> None:
    """A narrow network and small batches, so that a slow core makes enough steps as well."""
    config = TrainConfig(method=method.key, width=8, dataset="cifar10-mini", batch_size=32, budget="5s")
    record = train(config, tmp_path)
    assert record.status is RunStatus.FINISHED
    assert record.metrics["steps"] > 1
    assert math.isfinite(record.metrics["validation_loss"])
    metrics = evaluate_run(tmp_path / record.name).metrics
    assert 0 <= metrics["test_certified_accuracy_36"] <= metrics["test_accuracy"] <= 1
    if method.guarantee == "none":
        assert metrics["test_certified_accuracy_36"] == 0
    else:
        assert metrics["test_lipschitz_bound"] <= 1 + 1e-4
