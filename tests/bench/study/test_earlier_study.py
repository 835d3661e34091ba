"""A study that commit 3443ae3 has made is continued under the same names, and its report has the same tables."""

from __future__ import annotations

import shutil
from pathlib import Path

from onelip.bench.cli import run
from onelip.bench.records import load_records, parse_json
from onelip.bench.study.job_base import JobStatus
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import add_to_study, stored_jobs, stored_options

_STUDY = Path(__file__).parent / "data" / "study_3443ae3"


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    """Measurements are: their names hold the code that was measured."""
    study = Path(shutil.copytree(_STUDY, tmp_path / "study"))
    planned = parse_json((study / "study.json").read_text())["jobs"]
    earlier = {job["name"] for job in planned if job["kind"] != "measure"}
    jobs = plan(*stored_options(study))
    states = {job.name: job.recorded(study) for job in jobs if job.kind != "measure"}
    assert states.keys() == earlier
    assert len(states) == 5
    assert {state.status for state in states.values()} == {JobStatus.DONE}
    add_to_study(study, stored_options(study), jobs)
    assert stored_jobs(study).keys() >= {job.name for job in jobs}
    assert not load_records(study / "runs").problems


def test_its_report_has_the_same_tables(tmp_path: Path) -> None:
    """All but those of machines and commands."""
    assert run(["report", str(_STUDY), "--out", str(tmp_path), "--quiet"]) == 0
    tables = sorted((_STUDY / "tables").glob("*.csv"))
    assert len(tables) == 9
    assert [table.name for table in tables if (tmp_path / "tables" / table.name).read_text() != table.read_text()] == []
