"""Studies on simulated clusters, whose driver, plan and records are the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_jobs import FakeJob
from simulated_cluster import Cluster, SimulatedEngine

from onelip.bench.engines.driver import Driver, Silent
from onelip.bench.records import RunStatus, load_records
from onelip.bench.study.job_base import JobStatus
from onelip.bench.study.options import preset
from onelip.bench.study.planner import plan
from onelip.errors import InvalidInputError

HOUR = 3600.0


def _run(jobs: list[FakeJob], cluster: Cluster, study: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedEngine:
    monkeypatch.setattr("simulated_cluster.write_simulated_record", lambda job, study: job.run(study, None))
    monkeypatch.setattr(FakeJob, "estimated_seconds", lambda self, study: HOUR)
    engine = SimulatedEngine(study, cluster)
    states = Driver(jobs, study, engine, Silent()).run()
    assert {state.status for state in states.values()} == {JobStatus.DONE}
    return engine


def test_a_faultless_cluster_is_arithmetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [FakeJob(str(number)) for number in range(10)]
    last = FakeJob("last", tuple(jobs))
    cluster = Cluster(2, 2, 0.0, 0.0, start_seconds=0.0)
    engine = _run([*jobs, last], cluster, tmp_path, monkeypatch)
    assert engine.clock == 4 * HOUR, "ten hours on four GPUs are three rounds, and the last job needs all others"
    assert engine.busy_seconds == 11 * HOUR
    assert engine.lost_seconds == 0


def test_failures_cost_what_was_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(2, 2, 0.5, 0.3, checkpoint_seconds=600.0, start_seconds=60.0)
    engine = _run([FakeJob(str(number)) for number in range(40)], cluster, tmp_path, monkeypatch)
    assert engine.node_failures > 0
    assert engine.preemptions > 0
    assert 0 < engine.lost_seconds < 600.0 * 2 * engine.node_failures
    assert set(engine.completed.values()) == {1}
    attempts = 40 + engine.preemptions + 2 * engine.node_failures
    assert 40 * HOUR + engine.lost_seconds < engine.busy_seconds <= 40 * HOUR + engine.lost_seconds + 60 * attempts


@pytest.mark.parametrize("bad", [{"nodes": 0}, {"failures_per_hour": 1.5}])
def test_impossible_clusters(bad: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError):
        Cluster(**bad)


def test_the_whole_paper_on_64_gpus_with_failures_writes_every_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # no record has to survive a power failure
    jobs = plan(preset("paper").changed(device="cuda"))
    engine = SimulatedEngine(tmp_path, Cluster(nodes=8, gpus_per_node=8, failures_per_hour=0.05))
    states = Driver(jobs, tmp_path, engine, Silent()).run()
    assert {state.status for state in states.values()} == {JobStatus.DONE}
    assert engine.node_failures > 10
    assert engine.completed == dict.fromkeys((job.name for job in jobs), 1)
    runs = load_records(tmp_path / "runs")
    assert not runs.problems
    assert {run.status for run in runs.runs} == {RunStatus.FINISHED}
    # Of each search one trial is a final training, too: the two jobs have one record.
    assert len(runs.runs) == len(jobs) - sum(job.kind == "search" for job in jobs)
