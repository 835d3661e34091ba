"""The commit in a record is that of onelip's own checkout, or none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from onelip.bench.runs import machine
from onelip.bench.runs.machine import source_commit


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    source = tmp_path / "src" / "onelip" / "bench" / "runs" / "machine.py"
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
    assert Path(machine.__file__).parts[-5:] == ("src", "onelip", "bench", "runs", "machine.py")
