"""One attempt at one job: exit codes, the lock, what is noted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from fake_jobs import FakeJob

from onelip.atomic_files import WriteError
from onelip.bench.file_lock import RunLock
from onelip.bench.study.attempts import ExitCode, attempt, read_attempts
from onelip.bench.study.job_base import JobOptions, JobStatus, job_folder, state_of
from onelip.bench.study.job_ranks import ProcessDied
from onelip.bench.training import LeftEarly

OPTIONS = JobOptions()


def _raise(error: BaseException) -> None:
    raise error


def test_a_job_is_done_once(tmp_path: Path) -> None:
    job = FakeJob("job")
    assert state_of(job, tmp_path).status is JobStatus.PENDING
    assert attempt(job, tmp_path, OPTIONS) == ExitCode.DONE
    assert attempt(job, tmp_path, OPTIONS) == ExitCode.DONE
    (only,) = read_attempts(job, tmp_path)
    assert only.outcome == "done"
    assert only.host
    assert only.process
    assert state_of(job, tmp_path).status is JobStatus.DONE


def test_a_job_of_another_process_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = FakeJob("job")
    lock = RunLock(job_folder(job, tmp_path))
    assert state_of(job, tmp_path).status is JobStatus.RUNNING
    assert attempt(job, tmp_path, OPTIONS) == ExitCode.BUSY
    assert "another process" in capsys.readouterr().err
    lock.release()
    assert attempt(job, tmp_path, OPTIONS) == ExitCode.DONE
    assert len(read_attempts(job, tmp_path)) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("out\nof memory"), ExitCode.FAILED),
        (LeftEarly("stop"), ExitCode.LEFT),
        (WriteError("cannot write: No space left on device"), ExitCode.UNWRITTEN),
        (ProcessDied("signal 9"), ExitCode.DIED),
    ],
)
def test_failures_and_requests_to_stop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: ExitCode,
) -> None:
    job = FakeJob("job")
    with monkeypatch.context() as patch:
        patch.setattr(FakeJob, "run", lambda *_: _raise(error))
        assert attempt(job, tmp_path, OPTIONS) == code
    assert ("RuntimeError: out of memory" in capsys.readouterr().err) == (code is ExitCode.FAILED)
    assert attempt(job, tmp_path, OPTIONS) == ExitCode.DONE
    assert [one.outcome for one in read_attempts(job, tmp_path)] == [code.name.lower(), "done"]


def test_a_job_without_a_result_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeJob, "run", lambda *_: None)
    assert attempt(FakeJob("job"), tmp_path, OPTIONS) == ExitCode.FAILED


def test_a_killed_attempt_has_no_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = FakeJob("job")
    with monkeypatch.context() as patch:
        patch.setattr(FakeJob, "run", lambda *_: _raise(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            attempt(job, tmp_path, OPTIONS)
    with (job_folder(job, tmp_path) / "attempts.jsonl").open("a") as file:
        file.write('{"host": "cut sho')
    assert [one.outcome for one in read_attempts(job, tmp_path)] == [None]
    assert state_of(job, tmp_path).status is JobStatus.PENDING, "the lock has ended"
    assert attempt(job, tmp_path, OPTIONS) == ExitCode.DONE
    assert [one.outcome for one in read_attempts(job, tmp_path)] == [None, "done"], "the line that was cut short ends"


def test_notes_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job, folder = FakeJob("job"), job_folder(FakeJob("job"), tmp_path)
    folder.mkdir(parents=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: os.write(os.open("/dev/full", os.O_WRONLY), b"x"))
        assert attempt(job, tmp_path, OPTIONS) == ExitCode.UNWRITTEN
    assert os.strerror(errno.ENOSPC) in capsys.readouterr().err
    assert attempt(job, tmp_path, OPTIONS) == ExitCode.DONE
