"""Runs that are stopped: by `kill -9`, by a full disk, by a damaged checkpoint; and that go on afterwards."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import tiny_data
import torch
from tiny_data import run_spec, ticking_clock

from onelip.atomic_files import WriteError
from onelip.bench.cli import run as run_command
from onelip.bench.data import Splits
from onelip.bench.records import Run, RunSpec, RunStatus, StoredRun, load_checkpoint, read_record, run_name
from onelip.bench.records.durations import TrainingClock
from onelip.bench.training import LeftEarly, TrainOptions, train
from onelip.bench.training.journal import read_log
from onelip.bench.training.trainer import Trainer
from onelip.errors import InvalidInputError

# CPL has buffers that change in training, EMA a second set of weights: everything that a checkpoint has to hold.
COMMAND = (
    "train --method cpl --width 4 --dataset tiny --batch-size 32 --lr 0.05 --epochs 4 --ema-decay 0.9 "
    "--checkpoint-every 0.001s --skip-test --quiet"
)
CONFIG: dict[str, Any] = {"method": "cpl", "width": 4, "dataset": "tiny", "batch_size": 32, "lr": 0.05, "epochs": 4}
CONFIG |= {"ema_decay": 0.9}
OFTEN = TrainOptions(checkpoint_seconds=0.0)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def _folder(runs_dir: Path, config: RunSpec) -> Path:
    return runs_dir / run_name("train", config)


def _assert_same_weights(first: Path, second: Path) -> None:
    ours, theirs = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (first, second))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)  # bit by bit


def _steps_saved(folder: Path) -> int:
    checkpoint = load_checkpoint(folder)
    return 0 if checkpoint is None else checkpoint.meta["plan"]["steps"]


def test_killed_runs_end_with_the_same_weights(tmp_path: Path) -> None:
    config = run_spec(**CONFIG)
    uninterrupted = train(config, tmp_path / "whole")
    folder = _folder(tmp_path / "parts", config)
    for steps, saved in ((7, 7), (16, 23)):  # in the first and in the third epoch of 9 steps
        command = [sys.executable, tiny_data.__file__, *COMMAND.split(), "--runs-dir", str(tmp_path / "parts")]
        killed = subprocess.run(command, env=os.environ | {"TINY_KILL_AFTER": str(steps)}, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert StoredRun(folder, read_record(folder)).status is RunStatus.INTERRUPTED
        assert _steps_saved(folder) == saved
    resumed = train(config, tmp_path / "parts")
    assert resumed.status is RunStatus.FINISHED
    _assert_same_weights(_folder(tmp_path / "whole", config), folder)
    logs = [read_log(runs) for runs in (_folder(tmp_path / "whole", config), folder)]
    timeless = [[{k: v for k, v in entry.items() if "second" not in k} for entry in log] for log in logs]
    assert timeless[0] == timeless[1]
    assert uninterrupted.metrics["validation_loss"] == resumed.metrics["validation_loss"]


class _Stopped(BaseException):
    """As sudden as a kill, for tests within one process."""


def _train_until(step: int, config: RunSpec, runs_dir: Path) -> None:
    original, count = Trainer.step, [0]

    def stopping(self: Trainer, *args: Any) -> float:
        count[0] += 1
        if count[0] > step:
            raise _Stopped
        return original(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", stopping)
        with pytest.raises(_Stopped):
            train(config, runs_dir, OFTEN)


@pytest.mark.parametrize("step", [1, 9, 10])
@pytest.mark.parametrize("method", ["cayley", "sandwich"])
def test_resuming_anywhere(tmp_path: Path, method: str, step: int) -> None:
    config = run_spec(method=method, width=4, dataset="tiny", batch_size=32, epochs=2)
    train(config, tmp_path / "whole")
    _train_until(step, config, tmp_path / "parts")
    assert _steps_saved(_folder(tmp_path / "parts", config)) == step
    train(config, tmp_path / "parts", OFTEN)
    whole, parts = (_folder(tmp_path / part, config) for part in ("whole", "parts"))
    _assert_same_weights(whole, parts)
    assert [entry["step"] for entry in read_log(parts)] == [9, 18]


def test_a_run_that_is_asked_to_stop_writes_a_checkpoint_first(tmp_path: Path) -> None:
    config = run_spec(method="aol", width=4, dataset="tiny", batch_size=32, epochs=2)
    train(config, tmp_path / "whole")
    asked: list[bool] = []

    def stop_requested() -> bool:
        asked.append(True)
        return len(asked) >= 5

    folder = _folder(tmp_path / "parts", config)
    with pytest.raises(LeftEarly):
        train(config, tmp_path / "parts", TrainOptions(checkpoint_seconds=1e9, stop_requested=stop_requested))
    assert _steps_saved(folder) == 5
    assert read_record(folder).status is RunStatus.INTERRUPTED
    train(config, tmp_path / "parts")
    _assert_same_weights(_folder(tmp_path / "whole", config), folder)


def test_a_finished_run_is_handed_over_with_its_network_and_data(tmp_path: Path) -> None:
    """Once at the end of the training, and again by a later call, which reads both from the disk."""
    config = run_spec(method="aol", width=4, dataset="tiny", batch_size=32, epochs=1)
    scores: list[torch.Tensor] = []

    def keep(run: Run, model: torch.nn.Module, splits: Splits) -> None:
        with torch.no_grad():
            scores.append(model(splits.test.images[:4] / 255))
        run.update(metrics=run.record.metrics | {"calls": len(scores)})

    train(config, tmp_path, TrainOptions(on_finished=keep))
    assert train(config, tmp_path, TrainOptions(on_finished=keep)).metrics["calls"] == 2
    torch.testing.assert_close(scores[0], scores[1])


def test_time_already_used_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_spec(method="aol", width=4, dataset="tiny", batch_size=32, budget="3s")
    starts: list[float] = []

    def clock(used: float = 0.0, **options: Any) -> TrainingClock:
        starts.append(used)
        return ticking_clock(0.05)(used, **options)

    monkeypatch.setattr("onelip.bench.training.loop.TrainingClock", clock)
    _train_until(15, config, tmp_path)
    used = load_checkpoint(_folder(tmp_path, config)).meta["train_seconds"]  # type: ignore[union-attr]
    assert 0 < used < 3
    record = train(config, tmp_path)
    assert starts[::4] == [0.0, used]  # the others are wall-clock time and processor time
    assert record.metrics["steps"] > 15
    assert 2.5 < record.metrics["train_seconds"] < 3.5


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    config = run_spec(**CONFIG)
    _train_until(3, config, tmp_path)
    path = _folder(tmp_path, config) / "checkpoint.bin"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="damaged, the checksum is wrong; delete it"):
        train(config, tmp_path)
    assert read_record(path.parent).status is RunStatus.FAILED
    path.unlink()
    assert train(config, tmp_path).status is RunStatus.FINISHED


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = run_spec(**CONFIG)
    train(config, tmp_path / "whole")
    folder = _folder(tmp_path / "runs", config)
    original, count = os.fsync, [0]

    def full(descriptor: int) -> None:
        count[0] += 1
        if count[0] > 50:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(descriptor)

    arguments = [*COMMAND.split(), "--runs-dir", str(tmp_path / "runs")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert run_command(arguments) == 2
    assert "No space left on device; free some space" in capsys.readouterr().err
    assert 0 < _steps_saved(folder) < 36
    assert run_command(arguments) == 0
    _assert_same_weights(folder, _folder(tmp_path / "whole", config))


def test_a_really_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(disk)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    config = run_spec(**CONFIG)
    try:
        with pytest.raises(WriteError, match="No space left on device"):
            train(config, disk, OFTEN)
        subprocess.run([*mount[:4], "remount,size=8m", *mount[5:]], check=True)
        assert train(config, disk, OFTEN).status is RunStatus.FINISHED
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_two_processes_cannot_train_one_run(tmp_path: Path) -> None:
    config = run_spec(**CONFIG)

    def second() -> bool:
        with pytest.raises(InvalidInputError, match="another process writes"):
            train(config, tmp_path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, TrainOptions(stop_requested=second))
    assert read_record(_folder(tmp_path, config)).status is RunStatus.INTERRUPTED


def test_the_average_is_restored(tmp_path: Path) -> None:
    from onelip.bench.training.distributed import Ranks

    ranks = Ranks(0, 1, torch.device("cpu"))
    first, second = (Trainer(run_spec(**CONFIG, seed=seed), ranks) for seed in (0, 1))
    batch = next(iter(first.stream))
    first.step(*batch, 0.3, 45)
    second.restore(first.state(), 1)
    assert second.average is not None
    assert first.average is not None
    for ours, theirs in zip(second.average.parameters(), first.average.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(next(first.average.parameters()), next(first.model.parameters()))


@pytest.mark.parametrize("odd", [b'{"st', b"[1]", b"7", b'{"step": "2"}', b"\xff\xfe", b"[" * 100_000, b"{}"])
def test_a_log_is_read_up_to_its_first_odd_line(tmp_path: Path, odd: bytes) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"step": 1}\n' + odd + b'\n{"step": 3}\n')
    assert read_log(tmp_path) == [{"step": 1}]
