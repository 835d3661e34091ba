"""A journal that a crash has cut short, or that holds rubbish: the search goes on with the same points."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path

import pytest

from onelip.bench.search.optuna_journal import JOURNAL_FILE, open_journal
from onelip.bench.search.samplers import NumberedSampler
from onelip.bench.search.searcher import SPACE
from onelip.errors import InvalidInputError

optuna = pytest.importorskip("optuna")


def _points(folder: Path, trials: int) -> list[dict[str, float]]:
    study = optuna.create_study(
        study_name="s", storage=open_journal(folder), sampler=NumberedSampler("random", 0), load_if_exists=True
    )
    while len(study.trials) < trials:
        study.tell(study.ask(dict(SPACE)), 0.5)
    return [trial.params for trial in study.trials]


@pytest.mark.parametrize("damage", ["cut", "zeros", "text", "nested", "list", "empty", "first line"])
def test_a_damaged_journal_is_repaired(tmp_path: Path, damage: str) -> None:
    whole = _points(tmp_path, 4)
    path = tmp_path / JOURNAL_FILE
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    path.write_bytes(
        {
            "cut": content[:-7],
            "zeros": content[:-40] + bytes(40),
            "text": content + b"rubbish\n" + lines[-1],
            "nested": b"".join(lines[:5]) + b"[" * 100_000 + b"\n",
            "list": lines[0] + b"[1]\n7\n",
            "empty": b"",
            "first line": b"x" + content,
        }[damage]
    )
    assert _points(tmp_path, 4) == whole
    assert _points(tmp_path, 6)[:4] == whole


def test_a_worker_that_was_killed_while_it_wrote_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna's own lock outlives its process, and with a relative path, as is usual, nobody ever breaks it."""
    monkeypatch.chdir(tmp_path)
    study = optuna.create_study(storage=open_journal(Path()), study_name="one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads; this one only writes and dies
        worker = os.fork()
    if worker == 0:
        own = optuna.load_study(storage=open_journal(Path()), study_name="one")
        os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        own.ask()
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == -signal.SIGKILL
    assert study.ask().number == 1, "the worker's trial was written, and nobody waits for it"


def test_what_is_no_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(b'{"op_code": 99, "worker_id": 5}\n{"op_code": 4}\n')
    with pytest.raises(InvalidInputError, match=r"journal\.log"):
        open_journal(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InvalidInputError, match="not a regular file"):
        open_journal(tmp_path)
