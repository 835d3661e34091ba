"""What may not change by itself: names of runs and jobs, points of searches, bytes of tables.

A study that an earlier version has begun is continued under the same names; a name that changed would train it again.
The digests were taken at commit 3443ae3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest
import synthetic_study

from onelip.bench.records import RunOptions, RunSpec, load_records, run_name
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.study.options import PresetName, preset
from onelip.bench.study.planner import plan
from onelip.bench.study.search import SearchConfig, TrialJob
from onelip.bench.training.resolve import resolve

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "count", "digest"),
    [
        ("quick", 8, "7d2ba82c8cbce5fe"),
        ("cpu", 43, "3de40f6d7d5c83a3"),
        ("minutes", 51, "343146da532d1b97"),
        ("paper", 2288, "b464e7e756aeec64"),
    ],
)
def test_names_of_jobs(name: PresetName, count: int, digest: str) -> None:
    """Those of measurements are made of their code, and so not among them; quick counted time on the clock then."""
    jobs = plan(preset(name).changed(clock="time"))
    names = [job.name for job in jobs if job.kind != "measure"]
    assert (len(names), _digest(names)) == (count, digest)


def test_names_of_reference_records() -> None:
    """Each is read, and its name is the hash of its configuration."""
    places = sorted({path.parent.parent for path in _REFERENCE.rglob("record.json")})
    loaded = [load_records(place) for place in places]
    assert [part.problems for part in loaded] == [[]] * len(places)
    runs = [run for part in loaded for run in part.runs]
    assert len(runs) == 24
    assert all(run.folder.name == run.record.name for run in runs)
    trained = [run.record for run in runs if run.record.kind == "train"]
    specs = [RunSpec(**{**record.config, "network": record.network}) for record in trained]
    assert [run_name("train", spec) for spec in specs] == [record.name for record in trained]
    assert [resolve(spec) for spec in specs] == specs


def test_points_of_searches() -> None:
    """As Optuna's sampler draws them, to the last bit."""
    base = resolve(RunOptions(network=NetworkSpec(method="aol", width=4, dataset="cifar10-mini"), epochs=1))
    points = []
    for seed in range(6):
        search = SearchConfig(base=base, trials=50, search_seed=seed)
        specs = [TrialJob(search, number).spec for number in range(50)]
        points += [f"{spec.lr!r} {spec.weight_decay!r}" for spec in specs]
    assert (len(set(points)), _digest(points)) == (300, "5d3940464cc32821")


def test_bytes_of_tables() -> None:
    """All that do not name this machine."""
    _, report = synthetic_study.written_report()
    own = ("runs", "machines", "failed-runs")
    tables = sorted(path for path in report.tables if path.stem not in own)
    assert len(tables) == 30
    assert _digest(path.name + path.read_text() for path in tables) == "7b8d38eca361ec19"
