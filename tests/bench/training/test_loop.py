"""Training runs from start to end: what is recorded, options, divergence, and the estimate of validation."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_data
import torch
from tiny_data import run_spec, ticking_clock
from torch import Tensor, nn

from onelip.bench.records import Run, RunSpec, RunStatus, load_checkpoint, read_record, run_name
from onelip.bench.records.durations import TrainingClock
from onelip.bench.records.new_networks import network_config
from onelip.bench.training import TrainOptions, distributed, estimate_scores, loop, train
from onelip.bench.training.journal import Journal, read_log
from onelip.bench.training.trainer import Trainer
from onelip.checkpoints import load_model
from onelip.errors import InvalidInputError
from onelip.losses import OffsetCrossEntropy


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def tiny_config(**changes: Any) -> RunSpec:
    defaults: dict[str, Any] = {
        "method": "aol",
        "width": 4,
        "dataset": "tiny",
        "batch_size": 32,
        "lr": 0.1,
        "epochs": 2,
    }
    return run_spec(**defaults | changes)


def test_a_run_learns_and_is_recorded(tmp_path: Path) -> None:
    config = tiny_config(method="lot", lr=0.01, epochs=12)
    record = train(config, tmp_path)
    folder = tmp_path / record.name
    log = read_log(folder)
    assert record.status is RunStatus.FINISHED
    assert record.seed == 0
    assert [entry["epoch"] for entry in log] == list(range(1, 13))
    assert log[-1]["train_loss"] < 0.9 * log[0]["train_loss"]
    assert record.metrics["steps"] == 12 * 9
    assert record.metrics["validation_accuracy"] > 0.4
    assert record.metrics["validation_certified_accuracy_36"] > 0.02
    radii = [record.metrics[f"validation_certified_accuracy_{radius}"] for radius in (36, 72, 108, 255)]
    assert radii == sorted(radii, reverse=True)
    assert read_record(folder) == record
    assert not (folder / "checkpoint.bin").exists()
    assert load_model(folder / "model.safetensors").config == network_config(config.network, config.setting)


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first = train(tiny_config(epochs=1), tmp_path)
    weights = (tmp_path / first.name / "model.safetensors").stat().st_mtime_ns
    assert train(tiny_config(epochs=1), tmp_path) == first
    assert (tmp_path / first.name / "model.safetensors").stat().st_mtime_ns == weights


def _weights(tmp_path: Path, config: RunSpec) -> dict[str, Tensor]:
    record = train(config, tmp_path)
    return dict(load_model(tmp_path / record.name / "model.safetensors").state_dict())


def test_seeds_decide(tmp_path: Path) -> None:
    torch.rand(3)  # the global random state must not matter
    first = _weights(tmp_path / "a", tiny_config(epochs=1))
    again = _weights(tmp_path / "b", tiny_config(epochs=1))
    other = _weights(tmp_path / "b", tiny_config(epochs=1, seed=1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_method_decides_the_learning_rate() -> None:
    assert tiny_config(lr=None).lr == 0.06
    assert tiny_config(lr=None) == tiny_config(lr=0.06)
    assert tiny_config(epochs=None, budget="300s") == tiny_config(epochs=None, budget="5m")


def test_budgets_below_an_hour_follow_the_short_recipe() -> None:
    ten_minutes = run_spec(method="lot", budget="10m")
    assert (ten_minutes.recipe, ten_minutes.optimizer, ten_minutes.batch_size) == ("short", "adam", 64)
    assert ten_minutes == run_spec(method="lot", budget="10m", recipe="short")
    assert run_spec(method="lot", budget="59m59s").recipe == "short"
    long: list[dict[str, Any]] = [{"budget": "1h"}, {"epochs": 3}, {"budget": "10m", "recipe": "paper"}]
    for options in long:
        config = run_spec(method="lot", **options)
        assert (config.recipe, config.optimizer, config.batch_size, config.lr) == ("paper", "sgd", 256, 0.08)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": None}, "either --budget"),
        ({"budget": "5m"}, "either --budget"),
        ({"epochs": 0}, "epochs must be 1 or more"),
        ({"epochs": None, "budget": "soon"}, "not a duration"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": math.nan}, "lr must be above 0"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"ema_decay": 1.0}, "ema_decay must be in"),
        ({"batch_size": 0}, "batch_size must be 1 or more"),
        ({"validation_fraction": 1.0}, "validation_fraction must be in"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"size": "XXL", "width": None}, "no size 'XXL'"),
        ({"size": "S"}, "either a size or a width"),
        ({"method": "none"}, "there is no method"),
        ({"dataset": "mnist"}, "unknown data set"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        tiny_config(**changes)


def test_an_unknown_optimizer_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"unknown optimizer 'sdg'; known: .*sgd"):
        train(tiny_config(optimizer="sdg"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="larger than the 288 images"):
        train(tiny_config(batch_size=500), tmp_path)


def test_divergence_is_no_success(tmp_path: Path) -> None:
    record = train(tiny_config(method="standard", lr=1e30, epochs=3), tmp_path)
    assert record.status is RunStatus.DIVERGED
    assert "not finite" in str(record.reason)
    assert not (tmp_path / record.name / "model.safetensors").exists()
    assert train(tiny_config(method="standard", lr=1e30, epochs=3), tmp_path) == record


def test_nan_in_the_last_step_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the last step is computed before its update: only the weights can tell."""
    original = Trainer.step

    def spoiled(self: Trainer, *args: Any) -> float:
        lr = original(self, *args)
        if self.loss_steps == 9:
            next(self.model.parameters()).data.view(-1)[0] = math.nan
        return lr

    monkeypatch.setattr(Trainer, "step", spoiled)
    config = tiny_config(epochs=1, validation_fraction=0.1)
    assert train(config, tmp_path).status is RunStatus.DIVERGED


def _spoil_at(number: int, monkeypatch: pytest.MonkeyPatch, refuses: bool = False) -> None:
    """After the update of this step a weight is NaN; the layers may refuse it in the next one."""
    original, counted = Trainer.step, itertools.count(1)

    def step(self: Trainer, *args: Any) -> float:
        if (current := next(counted)) == number + 1 and refuses:
            raise IndexError("Dimension out of range")
        lr = original(self, *args)
        if current == number:
            next(self.model.parameters()).data.view(-1)[0] = math.nan
        return lr

    monkeypatch.setattr(Trainer, "step", step)


@pytest.mark.parametrize("steps_per_check", [1, 4])
def test_divergence_says_where_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps_per_check: int
) -> None:
    """Step 5 breaks a weight, which the loss of step 6 shows; a GPU looks later, and must say the same."""
    _spoil_at(5, monkeypatch)
    check, due = Trainer.check_finite, itertools.count(1)
    monkeypatch.setattr(
        Trainer, "check_finite", lambda self, steps: None if next(due) % steps_per_check else check(self, steps)
    )
    config = tiny_config(method="standard", epochs=2)
    record = train(config, tmp_path, TrainOptions(device="cpu", checkpoint_seconds=0.0))
    assert record.status is RunStatus.DIVERGED
    said = re.fullmatch(
        r"the training loss is not finite at step 6, .* (\S+); checkpoint.bin .* step 4", record.reason or ""
    )
    assert said is not None, record.reason
    assert 0 < float(said[1]) <= config.lr
    checkpoint = load_checkpoint(tmp_path / record.name)
    assert checkpoint is not None
    assert all(bool(torch.isfinite(tensor).all()) for tensor in checkpoint.tensors["model"].values())


def test_a_layer_that_refuses_broken_weights_is_a_divergence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil_at(3, monkeypatch, refuses=True)
    record = train(tiny_config(method="standard", epochs=1), tmp_path)
    assert record.status is RunStatus.DIVERGED
    assert re.search(r"weight is not finite after step 3, where the learning rate is \d", record.reason or "")


def test_a_time_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "TrainingClock", ticking_clock(0.05))
    record = train(tiny_config(epochs=None, budget="2s"), tmp_path)
    assert record.metrics["train_seconds"] == pytest.approx(2, abs=0.3)
    log = read_log(tmp_path / record.name)
    assert log[-1]["fraction"] == 1.0
    assert log[-1]["lr"] == pytest.approx(0.1 / 25e4)


def test_evaluation_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes a second and each validation, checkpoint and pause between epochs a hundred."""
    now = [0.0]

    def lasting(seconds: float, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            now[0] += seconds
            return original(*args, **options)

        return call

    monkeypatch.setattr(loop, "TrainingClock", functools.partial(TrainingClock, now=lambda: now[0]))
    monkeypatch.setattr(Trainer, "step", lasting(1, Trainer.step))
    monkeypatch.setattr(Trainer, "validate", lasting(100, Trainer.validate))
    monkeypatch.setattr(Run, "save_checkpoint", lasting(100, Run.save_checkpoint))
    record = train(tiny_config(epochs=3, width=4), tmp_path, TrainOptions(checkpoint_seconds=0.0))
    assert now[0] > 3 * 9 * 100
    assert record.metrics["train_seconds"] == record.metrics["steps"] == 3 * 9


@pytest.mark.parametrize("changes", [{"channels_last": True}, {"optimizer": "adamw", "lr": 0.01}], ids=str)
def test_options_train(tmp_path: Path, changes: dict[str, Any]) -> None:
    record = train(tiny_config(epochs=2, **changes), tmp_path)
    plain = train(tiny_config(epochs=2), tmp_path)
    assert record.status is RunStatus.FINISHED
    assert math.isfinite(record.metrics["validation_loss"])
    if "optimizer" not in changes:
        assert record.metrics["train_loss"] == pytest.approx(plain.metrics["train_loss"], rel=0.02)


def test_bfloat16(tmp_path: Path) -> None:
    """In a process of its own: the command line checks first that bfloat16 works (see conftest.py)."""
    config = tiny_config(precision="bfloat16", lr=0.01)
    command = "train --method aol --width 4 --dataset tiny --batch-size 32 --lr 0.01 --epochs 2 --precision bfloat16"
    arguments = [*command.split(), "--skip-test", "--quiet", "--runs-dir", str(tmp_path)]
    subprocess.run([sys.executable, tiny_data.__file__, *arguments], check=True)
    folder = tmp_path / run_name("train", config)
    plain = train(tiny_config(lr=0.01), tmp_path)
    losses = [metrics["train_loss"] for metrics in (read_record(folder).metrics, plain.metrics)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert losses[0] != losses[1]


def test_bfloat16_that_would_kill_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = subprocess.CompletedProcess([], returncode=-signal.SIGILL)
    monkeypatch.setattr("subprocess.run", lambda *args, **kwargs: killed)
    distributed._works_on_cpu.cache_clear()
    with pytest.raises(InvalidInputError, match="bfloat16 does not run on this processor"):
        distributed.check_bfloat16(torch.device("cpu"))
    distributed._works_on_cpu.cache_clear()


def test_average_of_weights(tmp_path: Path) -> None:
    """With a decay of d, the average of w_0, w_1, ... is d a + (1 - d) w_t, starting from w_0."""
    config = tiny_config(epochs=1, ema_decay=0.75)
    history: list[Tensor] = []
    original = Trainer.step

    def remembering(self: Trainer, *args: Any) -> float:
        weight = next(self.model.parameters())
        if not history:
            history.append(weight.detach().clone())
        lr = original(self, *args)
        history.append(weight.detach().clone())
        return lr

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", remembering)
        record = train(config, tmp_path)
    expected = history[0]
    for weight in history[1:]:
        expected = 0.75 * expected + 0.25 * weight
    saved = next(load_model(tmp_path / record.name / "model.safetensors").parameters())
    torch.testing.assert_close(saved.detach(), expected)
    assert not torch.allclose(saved, history[-1])


def test_training_on_everything(tmp_path: Path) -> None:
    record = train(tiny_config(epochs=1, validation_fraction=0.0), tmp_path)
    assert record.metrics["steps"] == 10
    assert not any(name.startswith("validation") for name in record.metrics)


class _Scores(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def test_estimate_of_certified_accuracy() -> None:
    margins = [0.1, 0.3, 0.5, 0.7, 2.0]  # over sqrt(2): 0.07, 0.21, 0.35, 0.49, 1.41
    scores = torch.tensor([[margin, 0.0, -5.0] for margin in margins] + [[0.0, 9.0, 0.0]])
    labels = torch.zeros(6, dtype=torch.int64)
    result = estimate_scores(
        _Scores(), [(scores[:4], labels[:4]), (scores[4:], labels[4:])], OffsetCrossEntropy(), lipschitz=1.0
    )
    assert result.accuracy == pytest.approx(5 / 6)
    assert result.certified == pytest.approx({36: 4 / 6, 72: 3 / 6, 108: 2 / 6, 255: 1 / 6})
    assert result.loss == pytest.approx(float(OffsetCrossEntropy()(scores, labels)), rel=1e-5)
    unknown = estimate_scores(_Scores(), [(scores, labels)], OffsetCrossEntropy(), lipschitz=math.inf)
    assert unknown.certified == {36: 0.0, 72: 0.0, 108: 0.0, 255: 0.0}


def test_standard_certifies_nothing(tmp_path: Path) -> None:
    record = train(tiny_config(method="standard", epochs=2), tmp_path)
    assert record.metrics["validation_certified_accuracy_36"] == 0.0


def test_log_drops_what_was_not_saved(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    for step in (10, 20, 30):
        journal.write({"step": step, "loss": math.nan})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 40, "lo')  # cut short by a kill
    assert [entry["step"] for entry in read_log(tmp_path)] == [10, 20, 30]
    Journal(tmp_path, 20).write({"step": 30, "loss": 1.0})
    assert [entry["step"] for entry in read_log(tmp_path)] == [10, 20, 30]
    assert read_log(tmp_path)[-1]["loss"] == 1.0


def test_the_record_tells_everything(tmp_path: Path) -> None:
    config = tiny_config(epochs=1)
    record = train(config, tmp_path)
    assert record.config == dataclasses.asdict(config)
