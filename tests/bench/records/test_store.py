"""Runs on the disk: full disks, kills, second writers, and starting again."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from onelip.atomic_files import WriteError, write_atomically
from onelip.bench.file_lock import RunLock, is_locked
from onelip.bench.records import (
    NetworkSpec,
    Run,
    RunStatus,
    StoredRun,
    find_run,
    load_checkpoint,
    load_records,
    read_record,
    remove_run,
    save_checkpoint,
    start_run,
)
from onelip.errors import InvalidInputError

CONFIG = {"network": NetworkSpec(method="soc", dataset="cifar10-mini").as_dict()}


def _no_space(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    with start_run(tmp_path, "train", CONFIG) as run:
        run.save_checkpoint({"w": torch.ones(3)}, {"step": 1})
        before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
        with monkeypatch.context() as patch:
            patch.setattr(os, call, _no_space)
            with pytest.raises(WriteError, match="No space left on device"):
                run.save_checkpoint({"w": torch.zeros(3)}, {"step": 2})
            with pytest.raises(WriteError, match="No space left on device"):
                run.update(metrics={"loss": 1.0})
        assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == before
        assert run.record.metrics == {}  # memory and disk agree
        run.update(status=RunStatus.FINISHED, metrics={"loss": 1.0})
    assert read_record(run.folder).metrics == {"loss": 1.0}


def test_partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole_write(file, data[:7]))
    write_atomically(tmp_path / "x", bytes(range(100)))
    assert (tmp_path / "x").read_bytes() == bytes(range(100))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_really_full_disk(small_disk: Path) -> None:
    def fill(run: Run) -> None:
        with run:
            run.save_checkpoint({"w": torch.ones(1000)}, {"step": 1})
            run.save_checkpoint({"w": torch.ones(100_000)}, {"step": 2})

    run = start_run(small_disk, "train", CONFIG)
    with pytest.raises(WriteError, match="No space left"):
        fill(run)
    checkpoint = load_checkpoint(run.folder)
    assert checkpoint is not None
    assert checkpoint.meta == {"step": 1}
    record = read_record(run.folder)
    assert record.status is RunStatus.FAILED
    assert record.reason is not None
    assert record.reason.startswith("WriteError")
    names = {path.name for path in run.folder.iterdir()}
    assert names == {"record.json", "checkpoint.bin", ".lock"}


def test_a_run_is_found_again_and_continues(tmp_path: Path) -> None:
    def end_with(run: Run, error: BaseException) -> None:
        with run:
            raise error

    run = start_run(tmp_path, "train", CONFIG)
    run.update(metrics={"loss": 2.0}, seconds=3.0)
    with pytest.raises(RuntimeError):
        end_with(run, RuntimeError("out\nof luck"))
    record = read_record(run.folder)
    assert (record.status, record.reason) == (RunStatus.FAILED, "RuntimeError: out of luck")
    run = start_run(tmp_path, "train", CONFIG)
    assert run.record.status is RunStatus.RUNNING
    assert (run.record.metrics, run.record.seconds, run.record.reason) == ({"loss": 2.0}, 3.0, None)
    with pytest.raises(KeyboardInterrupt):
        end_with(run, KeyboardInterrupt())
    assert read_record(run.folder).status is RunStatus.INTERRUPTED
    with start_run(tmp_path, "train", CONFIG) as run:
        pass
    assert read_record(run.folder).reason == "left before its end"
    with start_run(tmp_path, "train", CONFIG) as run:
        run.update(status=RunStatus.FINISHED)
    content = (run.folder / "record.json").read_bytes()
    with start_run(tmp_path, "train", CONFIG) as run:
        assert run.record.status is RunStatus.FINISHED
    assert (run.folder / "record.json").read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 1


def test_a_damaged_record_stops_the_run_and_frees_the_lock(tmp_path: Path) -> None:
    with start_run(tmp_path, "train", CONFIG) as run:
        pass
    (run.folder / "record.json").write_text("{")
    with pytest.raises(InvalidInputError, match="damaged"):
        start_run(tmp_path, "train", CONFIG)
    assert not is_locked(run.folder)
    assert (run.folder / "record.json").read_text() == "{"
    remove_run(run.folder)  # the way out
    start_run(tmp_path, "train", CONFIG).close()


WRITER = """
import sys, torch
from pathlib import Path
from onelip.bench.records import NetworkSpec, start_run
run = start_run(Path(sys.argv[1]), "train", {"network": NetworkSpec(method="soc", dataset="cifar10-mini")})
step = 0
while True:
    run.save_checkpoint({"w": torch.full((20_000,), float(step))}, {"step": step})
    run.update(metrics={"step": step})
    if step == 3:
        print("ready", flush=True)
    step += 1
"""


def test_second_writer_and_kill_at_any_moment(tmp_path: Path) -> None:
    last = -1
    for delay in (0.0, 0.013, 0.029):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            with pytest.raises(InvalidInputError, match="another process writes"):
                start_run(tmp_path, "train", CONFIG)
            (stored,) = load_records(tmp_path).runs
            assert stored.status is RunStatus.RUNNING
            time.sleep(delay)
            writer.send_signal(signal.SIGKILL)
        (stored,) = load_records(tmp_path).runs
        assert stored.record.status is RunStatus.RUNNING
        assert stored.status is RunStatus.INTERRUPTED
        checkpoint = load_checkpoint(stored.folder)
        assert checkpoint is not None
        last = checkpoint.meta["step"]
        assert torch.equal(checkpoint.tensors["w"], torch.full((20_000,), float(last)))
        assert stored.record.metrics["step"] in (last, last - 1)
    with start_run(tmp_path, "train", CONFIG) as run:  # the lock died with its process
        run.update(status=RunStatus.FINISHED)
    assert {path.name for path in run.folder.iterdir()} == {"record.json", "checkpoint.bin", ".lock"}


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    start_run(tmp_path, "train", CONFIG).close()
    (folder,) = tmp_path.iterdir()
    leftover = folder / ".record.json.abc.onelip-tmp"
    leftover.write_text("half")
    start_run(tmp_path, "train", CONFIG).close()
    assert not leftover.exists()


def test_killed_before_its_first_record(tmp_path: Path) -> None:
    start_run(tmp_path, "train", CONFIG).close()
    (folder,) = tmp_path.iterdir()
    (folder / "record.json").unlink()
    (problem,) = load_records(tmp_path).problems
    assert "record.json: cannot be read: No such file" in problem
    with start_run(tmp_path, "train", CONFIG) as run:
        run.update(status=RunStatus.FINISHED)
    assert load_records(tmp_path).problems == []


def test_lock_notices_that_the_folder_was_replaced(tmp_path: Path) -> None:
    """A writer must not hold the lock of a deleted folder while another one holds the new folder's."""
    folder = tmp_path / "run"
    old = RunLock(folder)
    folder.rename(tmp_path / "gone")
    new = RunLock(folder)
    assert is_locked(folder)
    old.release()
    assert is_locked(folder)
    new.release()
    new.release()
    assert not is_locked(folder)


def test_looking_does_not_disturb_a_starting_writer(tmp_path: Path) -> None:
    looker = "import sys\nfrom pathlib import Path\nfrom onelip.bench.file_lock import is_locked\n\
print('go', flush=True)\nwhile True: is_locked(Path(sys.argv[1]))"
    RunLock(tmp_path).release()
    with subprocess.Popen([sys.executable, "-c", looker, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            for _ in range(200):
                RunLock(tmp_path).release()
        finally:
            process.kill()


@pytest.mark.parametrize("make", [lambda path, other: path.symlink_to(other), lambda path, other: os.mkfifo(path)])
def test_a_lock_is_a_regular_file(tmp_path: Path, make: Callable[[Path, Path], None]) -> None:
    """In a folder from somebody else the lock may be a link to a file of one's own, or a pipe that never answers."""
    mine = tmp_path / "mine"
    mine.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir()
    make(folder / ".lock", mine)
    with pytest.raises(WriteError, match="not a regular file"):
        RunLock(folder)
    assert not is_locked(folder)
    assert mine.read_text() == "precious"


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="file"):
        start_run(tmp_path / "file", "train", CONFIG)
    with pytest.raises(WriteError, match=r"checkpoint\.bin"):
        save_checkpoint(tmp_path / "missing", {"w": torch.ones(1)}, {})


def test_find_and_remove(tmp_path: Path) -> None:
    for seed in (0, 1):
        with start_run(tmp_path, "train", CONFIG | {"seed": seed}) as run:
            run.update(status=RunStatus.FINISHED)
    assert find_run(tmp_path, "train-soc-XS-cifar10mini-s1") == run.folder
    assert find_run(tmp_path, run.folder.name) == run.folder
    for name, problem in [("train", "2 .*'train'"), ("x", "'x'"), ("", "no run")]:
        with pytest.raises(InvalidInputError, match=problem):
            find_run(tmp_path, name)
    (tmp_path / "precious").mkdir()
    (tmp_path / "link").symlink_to(run.folder)
    for path in (tmp_path / "precious", tmp_path / "link", tmp_path):
        with pytest.raises(InvalidInputError, match=path.name):
            remove_run(path)
    with pytest.raises(InvalidInputError, match="precious"):
        find_run(tmp_path, "precious")
    with (
        start_run(tmp_path, "train", CONFIG | {"seed": 1}) as busy,
        pytest.raises(InvalidInputError, match="another process writes"),
    ):
        remove_run(busy.folder)
    assert StoredRun(busy.folder, busy.record).status is RunStatus.FINISHED
    remove_run(run.folder)
    assert not run.folder.exists()
    assert sorted(path.name for path in tmp_path.iterdir())[0] == "link"  # no hidden rest
    assert len(load_records(tmp_path).runs) == 1


def test_the_earlier_name_of_the_package_still_works() -> None:
    from onelip.bench import records, runs

    assert all(getattr(runs, name) is getattr(records, name) for name in runs.__all__)
