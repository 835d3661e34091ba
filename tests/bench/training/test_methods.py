"""Methods learn within a fixed number of steps, and what is certified afterwards is proven."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from tiny_data import run_spec

from onelip.bench.records import RunStatus
from onelip.bench.training import train
from onelip.bench.training.evaluation import evaluate_run
from onelip.layers import get_method, list_methods


def _learns(tmp_path: Path, method: str, classes: int, **options: Any) -> None:
    spec = run_spec(method=method, width=4, recipe="short", temperature=4.0, augmentation="none", **options)
    record = train(spec, tmp_path)
    assert record.status is RunStatus.FINISHED
    # A network that has learnt nothing has equal scores.
    margin, temperature = spec.offset, spec.temperature
    assert record.metrics["validation_loss"] < margin + temperature * math.log(
        math.exp(-margin / temperature) + classes - 1
    )
    metrics = evaluate_run(tmp_path / record.name, progress=False).metrics
    assert metrics["test_accuracy"] > 1.5 / classes
    if get_method(method).guarantee == "none":
        assert metrics["test_certified_accuracy_36"] == 0
    else:
        assert metrics["test_certified_accuracy_36"] > 1 / classes
        assert metrics["test_lipschitz_bound"] <= 1 + 1e-4


@pytest.mark.parametrize("method", ["aol", "cayley", "sll"])
def test_three_methods_learn_small_images(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)
    _learns(tmp_path, method, 4, dataset="tiny", epochs=16, batch_size=32, lr=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("method", [method.key for method in list_methods()])
def test_every_method_learns_real_images(method: str, tmp_path: Path) -> None:
    """112 steps; so narrow, Sandwich takes a higher learning rate than by default."""
    lr = 0.003 if method == "sandwich" else None
    _learns(tmp_path, method, 10, dataset="cifar10-mini", epochs=2, lr=lr)
