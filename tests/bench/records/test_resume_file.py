from __future__ import annotations

import hashlib
import io
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from onelip.bench.records import CHECKPOINT_FILE, load_checkpoint, save_checkpoint
from onelip.errors import InvalidInputError


def _training(optimizer_name: str) -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.OneCycleLR]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    optimizer: torch.optim.Optimizer
    if optimizer_name == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=7e-6)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20)


def _steps(training: Any, count: int) -> None:
    model, optimizer, schedule = training
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("optimizer_name", ["sgd", "adamw"])
def test_training_continues_bit_for_bit(tmp_path: Path, optimizer_name: str) -> None:
    names = ("model", "optimizer", "schedule")
    whole = _training(optimizer_name)
    _steps(whole, 5)
    state = {name: part.state_dict() for name, part in zip(names, whole, strict=True)}
    save_checkpoint(tmp_path, state | {"rng": torch.get_rng_state(), "python": random.getstate()}, {"step": 5})
    _steps(whole, 5)

    resumed = _training(optimizer_name)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.meta == {"step": 5}
    for name, part in zip(names, resumed, strict=True):
        part.load_state_dict(checkpoint.tensors[name])
    torch.set_rng_state(checkpoint.tensors["rng"])
    random.setstate(checkpoint.tensors["python"])
    _steps(resumed, 5)
    for expected, actual in zip(whole[0].state_dict().values(), resumed[0].state_dict().values(), strict=True):
        assert torch.equal(expected, actual)
    assert whole[2].get_last_lr() == resumed[2].get_last_lr()


def test_every_kind_of_leaf_comes_back(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    state: dict[Any, Any] = {
        "tensors": [shared, shared[2:4], shared.reshape(2, 3).t(), torch.tensor(3), torch.zeros(0, 2)],
        "types": (torch.ones(2, dtype=torch.bfloat16), torch.tensor([True]), torch.ones(1, dtype=torch.float64)),
        0: {"1": 1, 1: "one", "none": None, "flag": False},
        "floats": [0.1 + 0.2, 5e-324, -0.0, math.inf, 2**70],
        "nan": math.nan,
        "empty": [{}, [], ()],
    }
    save_checkpoint(tmp_path, {"state": state}, {"loss": math.nan})
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint is not None
    loaded = checkpoint.tensors["state"]
    pairs = [*zip(state["tensors"], loaded["tensors"], strict=True)]
    pairs += zip(state["types"], loaded["types"], strict=True)
    for expected, actual in pairs:
        assert torch.equal(expected, actual)
        assert expected.dtype == actual.dtype
    for name in (0, "floats", "nan", "empty"):
        assert repr(loaded[name]) == repr(state[name])
    assert isinstance(loaded["types"], tuple)
    assert math.isnan(checkpoint.meta["loss"])


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None


@pytest.mark.parametrize("state", [{"f": print}, {"m": nn.Linear(1, 1)}])
def test_what_needs_pickle_is_refused_and_nothing_is_written(tmp_path: Path, state: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="tensors and plain values"):
        save_checkpoint(tmp_path, state, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", [0.0, 0.2, 0.5, 0.99])
def test_a_flipped_bit_is_found(tmp_path: Path, where: float) -> None:
    save_checkpoint(tmp_path, {"w": torch.randn(500)}, {"step": 12})
    path = tmp_path / CHECKPOINT_FILE
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"damaged|not a checkpoint"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_cut_file_is_found(tmp_path: Path, length: int) -> None:
    save_checkpoint(tmp_path, {"w": torch.randn(500)}, {})
    path = tmp_path / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InvalidInputError, match=r"damaged|not a checkpoint"):
        load_checkpoint(tmp_path)


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize("content", [{"w": torch.ones(1)}, {"tensors": 1, "meta": {}}, [1], _Evil(), {"meta": _Evil()}])
def test_a_foreign_or_hostile_file_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: object
) -> None:
    """Its checksum is right: whoever can write the file can compute one."""
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    raw = b"onelip resume 2\n" + hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue()
    (tmp_path / CHECKPOINT_FILE).write_bytes(raw)
    with pytest.raises(InvalidInputError, match="not a checkpoint of onelip"):
        load_checkpoint(tmp_path)
    (tmp_path / CHECKPOINT_FILE).write_bytes(buffer.getvalue())
    with pytest.raises(InvalidInputError, match="not a checkpoint of this version"):
        load_checkpoint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT_FILE]
