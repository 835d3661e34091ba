"""What a report says about the plan of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_data
from synthetic_study import finish, network, train_config, train_metrics

from onelip.bench.report.findings import notes
from onelip.bench.report.read_study import read_study
from onelip.bench.report.result_tables import result_tables
from onelip.bench.report.trained_models import all_settings, chosen_models
from onelip.bench.study.jobs import TrainJob
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import add_to_study


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def _planned(study: Path, **changes: Any) -> list[TrainJob]:
    small: dict[str, Any] = {"methods": ("aol", "soc"), "sizes": (), "width": 4, "datasets": ("tiny",)}
    options = StudyOptions(**{**small, "budgets": ("1m",), "batch_size": 32, "measure": "none", **changes})
    jobs = plan(options)
    add_to_study(study, [options], jobs)
    return [job for job in jobs if isinstance(job, TrainJob)]


def test_planned_trainings_without_a_record_are_named(tmp_path: Path) -> None:
    first, second = _planned(tmp_path)
    finish(tmp_path / "runs", "train", first.spec, train_metrics(0.1, 0.2, 60.0), job=first.name)
    study = read_study(tmp_path)
    assert [(row.run, row.status) for row in study.missing_results] == [(second.name, "not run")]
    (note,) = study.notes
    assert "no search" in note
    assert notes(study, [])[-1] == note


def test_trials_of_a_search_are_not_the_planned_training(tmp_path: Path) -> None:
    """They belong to their own jobs; the winner that is certified belongs to that of the training."""
    (job,) = _planned(tmp_path, methods=("soc",), search_runs=2)
    assert job.search is not None
    metrics = train_metrics(0.1, 0.2, 60.0)
    only_validated = {name: value for name, value in metrics.items() if not name.startswith("test_")}
    first, second = job.search.needs
    finish(tmp_path / "runs", "train", first.spec, only_validated, job=first.name)
    assert [row.status for row in read_study(tmp_path).missing_results] == ["not run"]
    finish(tmp_path / "runs", "train", second.spec, metrics, job=job.name)
    assert read_study(tmp_path).missing_results == ()


def test_trials_with_a_budget_of_their_own_are_no_row_of_results(tmp_path: Path) -> None:
    metrics = train_metrics(0.5, 0.6, 60.0)
    finish(tmp_path, "train", train_config("aol", "XS", "cifar10", "10m"), metrics)
    only_validated = {name: value for name, value in metrics.items() if not name.startswith("test_")}
    finish(tmp_path, "train", train_config("aol", "XS", "cifar10", "1m"), only_validated)
    settings = all_settings(read_study(tmp_path).trained)
    tables = {table.name: table for table in result_tables(chosen_models(settings), settings)}
    assert [row[1] for row in tables["accuracy-cifar10"].rows] == ["10m"]
    assert [row[7] for row in tables["full-cifar10"].rows] == ["1m", "10m"]


def test_the_time_of_a_search_is_that_of_its_trials(tmp_path: Path) -> None:
    from onelip.bench.report.findings import head_figures

    finish(tmp_path, "train", train_config("aol", "XS", "cifar10", "1h"), {}, seconds=3600.0)
    finish(tmp_path, "search", {"network": network("aol")}, {"lr": 0.1}, seconds=3600.0)
    assert dict(head_figures(read_study(tmp_path)))["computing time"] == "1.0 h"


@pytest.mark.parametrize("content", ["{", "[]", '{"jobs": 3}'])
def test_a_damaged_plan_is_named_and_costs_nothing_else(tmp_path: Path, content: str) -> None:
    finish(tmp_path / "runs", "train", train_config("aol", "XS", "cifar10", "1m"), train_metrics(0.5, 0.6, 60.0))
    (tmp_path / "study.json").write_text(content)
    study = read_study(tmp_path)
    assert len(study.trained) == 1
    (problem,) = study.missing_results
    assert "study.json" in problem.reason
