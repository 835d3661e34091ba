"""Tables of jobs on a narrow terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_jobs import FakeJob

from onelip.bench.study import live_view
from onelip.bench.study.attempts import Attempt
from onelip.bench.study.job_base import JobState, JobStatus
from onelip.bench.terminal import Terminal


def test_states_fit_80_columns_and_nothing_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host, label = "gpu-node-017.cluster.example.org", "train standard w4 cifar10-mini 1 epoch seed 0"
    tried = [Attempt(host, 1, "simulate", 1.0, "")] * 12
    monkeypatch.setattr(live_view, "read_attempts", lambda job, study: tried)
    monkeypatch.setattr(FakeJob, "label", label)
    job = FakeJob("job")
    states = {job.name: JobState(JobStatus.RUNNING, seconds=7000.0)}
    Terminal(width=80).print(live_view.state_table([job], states, tmp_path))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    words = shown.split()
    assert {*label.split(), "running", "simulate", "12", "attempts", "engine"} <= set(words)
    assert "".join(word for word in words if len(word) > 3 and word in host) == host
