"""Every method learns something on real images in 20 seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from onelip.evaluation import evaluate_run
from onelip.layers import MethodInfo, list_methods
from onelip.records import RunStatus
from onelip.train_config import TrainConfig
from onelip.training import train
from onelip.training.distributed import Ranks
from onelip.training.session import Session

CHANCE = 0.1


# With k x k kernels these two divide by k in every layer, so that nothing can be learned in seconds. Their exact
# case is k = 1.
KERNEL_SIZES = {"bjorck": 1, "oni": 1}


@pytest.mark.slow
@pytest.mark.parametrize("method", list_methods(), ids=lambda method: method.key)
def test_a_method_learns_in_20_seconds(method: MethodInfo, tmp_path: Path) -> None:
    """A narrow network and small batches, so that a slow core makes enough steps as well."""
    config = TrainConfig(
        method=method.key,
        width=8,
        kernel_size=KERNEL_SIZES.get(method.key, 3),
        dataset="cifar10-mini",
        batch_size=32,
        budget="20s",
    )
    before = Session(config, Ranks(0, 1, torch.device("cpu"))).validate()
    record = train(config, tmp_path)
    assert record.status is RunStatus.FINISHED
    assert record.metrics["train_seconds"] == pytest.approx(20.0, rel=0.1)
    assert before is not None
    assert record.metrics["validation_loss"] < before.loss
    metrics = evaluate_run(tmp_path / record.name).metrics
    assert metrics["test_accuracy"] > 1.5 * CHANCE
    if method.guarantee != "none":
        assert metrics["test_certified_accuracy_36"] > CHANCE
        assert metrics["test_lipschitz_bound"] <= 1 + 1e-4
