"""Two processes under torchrun train as one process does with the same global batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_data
from tiny_data import run_spec

from onelip.bench.records import load_records
from onelip.bench.training import train
from onelip.bench.training.journal import read_log
from onelip.errors import InvalidInputError

ARGUMENTS = "train --method cpl --width 4 --dataset tiny --batch-size 32 --lr 0.05 --device cpu --quiet --skip-test"


def _torchrun(arguments: str, runs_dir: Path, **variables: str) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [*launcher, tiny_data.__file__, *arguments.split(), "--runs-dir", str(runs_dir)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_same_losses_as_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With buffers that training moves.

    From the default start, where all frequencies of CPL have the same norm, rounding alone decides which is the
    largest, and two trainings part.
    """
    tiny_data.install(monkeypatch.setattr)
    config = run_spec(method="cpl", width=4, dataset="tiny", batch_size=32, lr=0.05, epochs=2, init="xavier")
    alone = train(config, tmp_path / "one")
    _torchrun(f"{ARGUMENTS} --epochs 2 --init xavier", tmp_path / "two")
    (run,) = load_records(tmp_path / "two").runs  # one record: only the first process writes
    assert run.record.name == alone.name
    logs = [read_log(tmp_path / part / alone.name) for part in ("one", "two")]
    assert [entry["step"] for entry in logs[1]] == [9, 18]
    for one, two in zip(*logs, strict=True):
        for name in ("train_loss", "validation_loss"):
            assert two[name] == pytest.approx(one[name], rel=1e-4)


def test_a_time_budget_ends_in_all_processes(tmp_path: Path) -> None:
    _torchrun(f"{ARGUMENTS} --budget 2s", tmp_path, TINY_TICK="0.05")
    (run,) = load_records(tmp_path).runs
    assert run.status == "finished"
    assert run.record.metrics["train_seconds"] == pytest.approx(2, abs=0.3)
    assert read_log(run.folder)[-1]["fraction"] == 1.0


def test_a_batch_must_divide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from onelip.bench.training.distributed import Ranks
    from onelip.bench.training.trainer import Trainer

    tiny_data.install(monkeypatch.setattr)
    config = run_spec(method="aol", width=4, dataset="tiny", batch_size=33, epochs=1)
    with pytest.raises(InvalidInputError, match="multiple of world_size 2"):
        Trainer(config, Ranks(1, 2, torch.device("cpu")))
