"""A report of runs beside which other programs computed says so, and ranks nothing that they have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import synthetic_study

from onelip.bench.report.cost_tables import cost_tables
from onelip.bench.report.figures.radar import study_radar
from onelip.bench.report.findings import findings, times_note, trainings_note, warnings, with_notes
from onelip.bench.report.read_study import read_study
from onelip.bench.report.report_table import ReportTable
from onelip.bench.report.result_tables import result_tables
from onelip.bench.report.trained_models import all_settings, chosen_models
from onelip.bench.report.write_report import write_report


def _study(runs: Path, share: float, **config: Any) -> tuple[list[str], list[str], dict[str, ReportTable]]:
    """Findings, warnings and tables of two trainings, of which one had this share of the processor."""
    for method, certified, part in (("aol", 0.3, share), ("soc", 0.5, 1.0)):
        metrics = synthetic_study.train_metrics(certified, 0.6, 30.0)
        metrics |= {"wall_seconds": 40.0, "thread_seconds": 40.0 * part}
        spec = synthetic_study.train_config(method, "XS", "cifar10-mini", "30s") | config
        synthetic_study.finish(runs, "train", spec, metrics)
    synthetic_study.add_times(runs, sizes=("XS",))
    study = read_study(runs)
    settings = all_settings(study.trained)
    models = chosen_models(settings)
    tables = with_notes([*result_tables(models, settings), *cost_tables(study, None)], study)
    return findings(study, models), warnings(study), {table.name: table for table in tables}


def test_an_undisturbed_study_is_ranked(tmp_path: Path) -> None:
    found, _, tables = _study(tmp_path, 0.95)
    assert "SOC XS certifies most" in found[0]
    assert tables["accuracy-cifar10-mini"].best
    assert "ranking" in tables
    assert not warnings(read_study(tmp_path))
    assert not any("Other programs" in table.caption for table in tables.values())


def test_budgets_of_the_wall_clock_are_not_ranked(tmp_path: Path) -> None:
    found, head, tables = _study(tmp_path, 0.41)
    assert head[0].startswith("Methods are not ranked by accuracy. Other programs computed beside 1 of 2 trainings")
    assert "as little as 41 % of the processor" in head[0]
    assert not any("certifies most" in sentence for sentence in found)
    assert "ranking" not in tables
    for name in ("accuracy-cifar10-mini", "full-cifar10-mini"):
        assert not tables[name].best
        assert head[0] in tables[name].caption
    assert any("has the lowest training time" in sentence for sentence in found), "times were undisturbed"
    page = write_report(tmp_path, tmp_path / "report").page.read_text()
    assert 0 < page.index(head[0]) < page.index("<h2>Findings</h2>"), "at the head"
    study = read_study(tmp_path)
    axes = [metric.name for metric in study_radar(study, chosen_models(all_settings(study.trained)))]
    assert axes == ["Training time", "Inference time"], "an axis ranks"


@pytest.mark.parametrize("config", [{"clock": "cores"}, {"budget": None, "epochs": 3}])
def test_budgets_that_others_take_nothing_from_are_ranked(tmp_path: Path, config: dict[str, Any]) -> None:
    found, head, tables = _study(tmp_path, 0.41, **config)
    assert "Budgets are not of the wall clock" in head[0]
    assert any("certifies most" in sentence for sentence in found)
    assert head[0] in tables["accuracy-cifar10-mini"].caption
    assert tables["accuracy-cifar10-mini"].best


def test_times_beside_other_programs_are_not_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = synthetic_study.finish

    def disturbed(runs: Path, kind: str, config: Any, metrics: dict[str, Any], *rest: Any) -> str:
        part = 0.5 if config["network"]["method"] == "lot" else 1.0
        fused = {"fused": metrics["inference"], "inference_batch_size": 512}
        return finish(runs, kind, config, metrics | fused | {"wall_seconds": 8.0, "thread_seconds": 8.0 * part}, *rest)

    monkeypatch.setattr(synthetic_study, "finish", disturbed)
    synthetic_study.add_times(tmp_path, sizes=("XS",))
    study = read_study(tmp_path)
    assert trainings_note(study) == ""
    note = times_note(study)
    assert note.startswith("Times are not ranked. Other programs computed beside 1 of 8 timings")
    assert not any("has the lowest" in sentence for sentence in findings(study, []))
    assert study_radar(study, []) == []
    (table,) = (table for table in with_notes(cost_tables(study, None), study) if table.name == "time")
    assert note in table.caption
    assert "256 images (inference: 512)" in table.caption
    assert not table.best
    assert table.columns[-1].full_title == "Inference fused vs. plain"
