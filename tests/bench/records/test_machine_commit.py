"""The commit in a record is that of onelip's own checkout, or none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from onelip.bench.records import machine
from onelip.bench.records.machine import source_commit


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    source = tmp_path / "src" / "onelip" / "bench" / "records" / "machine.py"
    source.parent.mkdir(parents=True)
    source.write_text("")
    _git(tmp_path, "init", "--quiet")
    return source


def test_commit_and_dirty_flag(checkout: Path, tmp_path: Path) -> None:
    assert source_commit(checkout) is None  # no commit yet
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "--message", "first")
    head = _git(tmp_path, "rev-parse", "HEAD")
    assert source_commit(checkout) == {"id": head, "dirty": False}
    checkout.write_text("# changed")
    assert source_commit(checkout) == {"id": head, "dirty": True}


def test_an_installed_package_inside_another_repository_has_no_commit(checkout: Path, tmp_path: Path) -> None:
    installed = tmp_path / ".venv" / "lib" / "onelip" / "machine.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "--message", "first")
    assert source_commit(installed) is None
    assert source_commit(checkout) is not None


def test_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert source_commit(checkout) is None


def test_the_file_lies_where_it_is_looked_for() -> None:
    assert Path(machine.__file__).parts[-5:] == ("src", "onelip", "bench", "records", "machine.py")


@pytest.mark.parametrize(
    ("threads", "free", "is_told"), [(2, 0.3, True), (2, 1.9, False), (1, 0.0, False), (2, None, False)]
)
def test_threads_without_a_core_are_told(
    threads: int, free: float | None, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "free_cores", lambda: free)
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    assert ("0.3 cores are free for 2 threads" in machine.threads_without_cores()) is is_told


def test_free_cores_are_the_idle_part_of_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks core 0 is idle for 30 of 40 ticks, core 1 for 10; core 2 belongs to others."""
    before, after = (10, 0, 5, 50, 0, 0, 0, 0), ((20, 0, 5, 75, 5, 0, 0, 0), (40, 0, 5, 60, 0, 0, 0, 0))
    lines = [[("cpu0", before), ("cpu1", before), ("cpu2", before)], [("cpu0", after[0]), ("cpu1", after[1])]]
    looks = iter(["".join(f"{name} {' '.join(map(str, ticks))} 0 0\n" for name, ticks in look) for look in lines])
    monkeypatch.setattr(Path, "read_text", lambda self: f"cpu  1 2 3\n{next(looks)}intr 5\n")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    assert machine.free_cores(0.0) == pytest.approx(1.0)
