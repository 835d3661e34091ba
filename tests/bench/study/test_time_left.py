"""The time that a study will take."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_jobs import FakeJob

from onelip.bench.study.job_base import JobState, JobStatus
from onelip.bench.study.live_view import TimeLeft, short_duration

_nowhere = Path("/nonexistent")


def test_the_remaining_time_learns_from_what_jobs_took() -> None:
    jobs = [FakeJob(title) for title in "abcd"]  # of a minute each
    seconds = [0.0]
    progress = TimeLeft(jobs, _nowhere, now=lambda: seconds[0])
    assert progress.seconds_left() == (240.0, True)
    progress.started(jobs[0])
    seconds[0] = 120.0  # twice as long as it was estimated
    progress.ended(jobs[0], JobState(JobStatus.DONE))
    assert progress.seconds_left()[0] == pytest.approx(3 * 120)
    progress.started(jobs[1])
    seconds[0] += 60
    assert progress.seconds_left()[0] == pytest.approx(3 * 120 - 60)
    assert TimeLeft(jobs, _nowhere, workers=4).seconds_left() == (60.0, True)


def test_jobs_of_which_nothing_is_known_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeJob, "estimated_seconds", lambda self, study: None)
    assert TimeLeft([FakeJob("a")], _nowhere).seconds_left() == (0.0, False)


def test_short_durations() -> None:
    texts = [short_duration(seconds) for seconds in (0.4, 59, 60, 450, 3600, 12000, 90000)]
    assert texts == ["0 s", "59 s", "1 min", "7 min 30 s", "1 h", "3 h 20 min", "1 d 1 h"]
