"""`study.json`: every job comes back from its own entry; entries that are wrong, or of other code, are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onelip.bench.cli import run as run_command
from onelip.bench.study import study_file as module
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import add_to_study, planned_jobs, stored_options
from onelip.errors import InvalidInputError

OPTIONS = StudyOptions(
    methods=("aol", "standard"),
    sizes=(),
    width=4,
    datasets=("cifar10-mini",),
    budgets=("1m", "2m"),
    batch_size=32,
    search_runs=2,
    recipe="short",
    measure="short",
)


def _edit(study: Path, change: Any) -> None:
    content = json.loads((study / "study.json").read_text())
    change(content)
    (study / "study.json").write_text(json.dumps(content))


def test_each_job_is_read_from_its_own_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = plan(OPTIONS)
    assert {job.kind for job in jobs} == {"measure", "trial", "search", "train"}
    add_to_study(tmp_path, [OPTIONS], jobs)
    monkeypatch.setattr(module, "fingerprint", lambda *_: pytest.fail("the plan has it"))
    found = planned_jobs(tmp_path, [job.name for job in jobs])
    assert [job.name for job in found] == [job.name for job in jobs]
    assert [job.details for job in found] == [job.details for job in jobs]
    for job, other in zip(jobs, found, strict=True):
        assert other.folder(tmp_path) == job.folder(tmp_path)
        assert [need.name for need in other.needs] == [need.name for need in job.needs]


def test_other_code_is_not_measured_under_the_name_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = plan(OPTIONS)
    add_to_study(tmp_path, [OPTIONS], jobs)
    monkeypatch.setattr(module, "source_stamp", lambda: "touched")  # by a checkout that changed nothing
    assert planned_jobs(tmp_path, [jobs[0].name])[0].name == jobs[0].name
    monkeypatch.setattr(module, "fingerprint", lambda *_: "0" * 12)
    assert run_command(["job", str(tmp_path), jobs[0].name]) == 2
    assert "planned for other code; `onelip compare --out" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        ("train", "spec", {}, "spec has no network"),
        ("train", "spec", None, "spec is None, not an object"),
        ("train", "device", "tpu", "has no device, cpu or cuda"),
        ("train", "search", "measure-1", "its search is not in the plan"),
        ("train", "search", None, "its entry is that of job-aol"),
        ("train", "kind", "other", "is no measurement"),
        ("trial", "number", "0", "is no measurement"),
        ("trial", "number", 1, "its entry is that of trial-aol"),
        ("trial", "search", None, "is no measurement"),
        ("measure", "spec", {"quantity": "memory"}, "spec has no network, batch_size"),
    ],
)
def test_entries_that_are_wrong(tmp_path: Path, kind: str, field: str, value: Any, message: str) -> None:
    add_to_study(tmp_path, [OPTIONS], plan(OPTIONS))
    name = next(job.name for job in plan(OPTIONS) if job.kind == kind and job.network.method == "aol")
    _edit(tmp_path, lambda content: next(j for j in content["jobs"] if j["name"] == name).update({field: value}))
    with pytest.raises(InvalidInputError, match=message):
        planned_jobs(tmp_path, [name])


def test_a_plan_of_an_earlier_version_is_planned_anew_from_its_options(tmp_path: Path) -> None:
    jobs = plan(OPTIONS)
    add_to_study(tmp_path, [OPTIONS], jobs)

    def age(content: dict[str, Any]) -> None:
        content["version"] = 3
        content["jobs"] = [{"name": job["name"], "kind": job["kind"]} for job in content["jobs"]]

    _edit(tmp_path, age)
    with pytest.raises(InvalidInputError, match=r"planned by an older onelip; `onelip compare --out"):
        planned_jobs(tmp_path, [jobs[0].name])
    assert stored_options(tmp_path) == [OPTIONS]
    more = OPTIONS.changed(methods=("soc",))
    add_to_study(tmp_path, [more], plan(more))
    names = {job.name for job in (*jobs, *plan(more))}
    assert {job.name for job in planned_jobs(tmp_path, list(names))} == names
