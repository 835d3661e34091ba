"""Records become rows, rows become summaries and scores: against numbers computed by hand."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
from synthetic_study import (
    add_diagnostics,
    add_failures,
    add_memory,
    add_times,
    add_training,
    finish,
    network,
    train_config,
    train_metrics,
)

from onelip.bench.report.evidence import read_evidence
from onelip.bench.report.scores import METRICS, cost_scores, radar_scores
from onelip.bench.report.summaries import (
    all_settings,
    chosen_models,
    longest_budget,
    main_memory,
    main_times,
    memory_ratios,
)
from onelip.bench.runs import RunStatus, start_run
from onelip.errors import InvalidInputError


def test_training_records_become_rows(tmp_path: Path) -> None:
    config = train_config("soc", "XS", "cifar10", "2h", seed=3, kernel_size=1)
    name = finish(tmp_path, "train", config, train_metrics(0.5, 0.7, 7190.0))
    (tmp_path / name / "log.jsonl").write_text('{"step": 1, "train_loss": 2.0}\n{"step": 2, "tra')
    (row,) = read_evidence(tmp_path).training
    assert (row.method, row.size, row.dataset, row.kernel_size, row.seed) == ("soc", "XS", "cifar10", 1, 3)
    assert (row.budget, row.budget_hours, row.learning_rate, row.weight_decay) == ("2h", 2.0, 0.05, 7e-6)
    assert (row.accuracy, row.train_seconds, row.lipschitz_bound) == (0.7, 7190.0, 1.00001)
    assert row.certified == {36: 0.5, 72: 0.375, 108: pytest.approx(0.275), 255: pytest.approx(0.1)}
    assert row.history == ({"step": 1, "train_loss": 2.0},), "the line that a kill cut short is left out"


def test_a_budget_in_epochs_has_the_time_that_it_took(tmp_path: Path) -> None:
    config = train_config("soc", "XS", "cifar10", "2h") | {"budget": None, "epochs": 12}
    config["network"] |= {"size": None, "width": 8}
    finish(tmp_path, "train", config, train_metrics(0.5, 0.7, 1800.0))
    (row,) = read_evidence(tmp_path).training
    assert (row.budget, row.budget_hours, row.size) == ("12 epochs", 0.5, "w8")


def test_records_in_sub_folders_count(tmp_path: Path) -> None:
    add_training(tmp_path / "final", methods=("aol",), sizes=("XS",), seeds=1)
    add_training(tmp_path / "search" / "aol" / "runs", methods=("aol",), sizes=("S",), seeds=1)
    assert {row.size for row in read_evidence(tmp_path).training} == {"XS", "S"}


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no such folder"):
        read_evidence(tmp_path / "nothing")


def test_runs_without_a_result_are_listed_with_their_reasons(tmp_path: Path) -> None:
    add_failures(tmp_path)
    with start_run(tmp_path, "train", train_config("aol", "XS", "cifar10", "2h")) as run:
        run.update(status=RunStatus.INTERRUPTED, reason="stopped by KeyboardInterrupt")
    evidence = read_evidence(tmp_path)
    reasons = {row.status: row.reason for row in evidence.trouble}
    assert reasons["diverged"] == "the loss became nan at step 812"
    assert reasons["does not fit"] == "needs 94.0 GiB, 12.0 GiB were free on this machine"
    assert reasons["interrupted"] == "stopped by KeyboardInterrupt"
    assert len(evidence.problems) == 1
    assert "damaged" in evidence.problems[0]
    assert not evidence.training
    assert not evidence.times, "a measurement that did not fit has no time"


def test_a_finished_record_without_its_figures_becomes_a_note(tmp_path: Path) -> None:
    config = {"quantity": "time", "network": network("aol"), "batch_size": 256}
    finish(tmp_path, "measure", config, {"fits": True, "training": {}})
    evidence = read_evidence(tmp_path)
    assert not evidence.times
    assert "not in the report" in evidence.problems[0]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    add_training(tmp_path, methods=("aol",), sizes=("XS",), seeds=1)
    missing = " ".join(read_evidence(tmp_path).missing)
    assert "onelip measure time" in missing
    assert "onelip train" not in missing


def test_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    values = [0.50, 0.53, 0.55]
    for seed, value in enumerate(values):
        config = train_config("aol", "XS", "cifar10", "2h", seed)
        finish(tmp_path, "train", config, train_metrics(value, 0.7, 7200.0))
    (model,) = chosen_models(all_settings(read_evidence(tmp_path).training))
    assert model.certified[36].mean == pytest.approx(statistics.fmean(values))
    assert model.certified[36].deviation == pytest.approx(statistics.stdev(values))
    assert model.certified[36].count == 3


def test_the_setting_is_chosen_on_the_validation_split(tmp_path: Path) -> None:
    """The one with the better test result must not win, nor a trial that was never tested."""
    best = train_metrics(0.40, 0.6, 1.0) | {"validation_certified_accuracy_36": 0.45}
    lucky = train_metrics(0.50, 0.7, 1.0) | {"validation_certified_accuracy_36": 0.35}
    untested = {"validation_certified_accuracy_36": 0.60, "train_seconds": 1.0}
    for lr, metrics in ((0.1, best), (0.2, lucky), (0.3, untested)):
        finish(tmp_path, "train", train_config("aol", "XS", "cifar10", "2h", lr=lr), metrics)
    settings = all_settings(read_evidence(tmp_path).training)
    assert len(settings) == 3
    (model,) = chosen_models(settings)
    assert model.runs[0].learning_rate == 0.1


def test_only_the_longest_budget_is_compared(tmp_path: Path) -> None:
    budgets = (("30m", 1800.0), ("2h", 7200.0), ("10h", 36000.0))
    add_training(tmp_path, methods=("aol", "soc"), sizes=("XS",), budgets=budgets, seeds=1)
    models = longest_budget(chosen_models(all_settings(read_evidence(tmp_path).training)))
    assert {(model.method, model.budget) for model in models} == {("aol", "10h"), ("soc", "10h")}


def test_times_of_two_machines_are_not_mixed(tmp_path: Path) -> None:
    add_times(tmp_path, sizes=("XS", "S"))
    (stored,) = [r for r in read_evidence(tmp_path).runs if r.record.network.method == "aol"][:1]
    finish(tmp_path, "measure", stored.record.config | {"hardware": "another"}, stored.record.metrics)
    times = main_times(read_evidence(tmp_path))
    assert {row.hardware for row in times} == {"a test machine"}
    assert len(times) == 16


def test_memory_measured_on_a_gpu_comes_before_a_prediction(tmp_path: Path) -> None:
    add_memory(tmp_path, sizes=("XS",))
    config = {"quantity": "memory", "network": network("aol", dataset="cifar10-mini"), "batch_size": 256}
    metrics = {"fits": True, "parameters": 1, "training": 77, "inference": 7}
    finish(tmp_path, "measure", config | {"device": "cuda"}, metrics)
    finish(tmp_path, "measure", config | {"device": "cpu"}, metrics | {"training": 99})
    rows = {row.key.method: row for row in main_memory(read_evidence(tmp_path))}
    assert (rows["aol"].training, rows["aol"].source) == (77, "measured on cuda")
    assert rows["lot"].source == "predicted"


def test_memory_ratios_are_to_the_plain_network_of_the_same_shape(tmp_path: Path) -> None:
    add_memory(tmp_path)
    ratios = memory_ratios(main_memory(read_evidence(tmp_path)))
    assert ratios["lot", "S", "cifar10-mini"][0] == pytest.approx(3.1)
    assert ("reference", "S", "cifar10-mini") not in ratios


def test_cost_scores_follow_the_written_rule() -> None:
    """Plain is 5, each doubling takes a point, and only what all methods share counts."""
    place = ("XS", "cifar10")
    ratios: dict[tuple[str, str, str], float] = {
        ("a", *place): 1.0,
        ("b", *place): 2.0,
        ("c", *place): 4.0 * math.sqrt(2),
        ("d", *place): 1000.0,
    }
    ratios |= {("e", *place): 0.5, ("b", "S", "cifar10"): 64.0}
    assert cost_scores(ratios) == pytest.approx({"a": 5.0, "b": 4.0, "c": 2.5, "d": 1.0, "e": 5.0})
    assert cost_scores({("a", "XS", "x"): 1.0, ("b", "S", "x"): 1.0}) == {}


def test_radar_scores_use_the_ranking_and_name_what_is_missing(tmp_path: Path) -> None:
    add_training(tmp_path, sizes=("XS",), seeds=1)
    scores = radar_scores(read_evidence(tmp_path))
    # Seven models: first 3, second and third 2, others 1; the best has 5, the others 1 + 4 s / 3.
    certified = scores.scores["Certified accuracy"]
    assert certified["lot"] == 5.0
    assert certified["cpl"] == certified["soc"] == pytest.approx(1 + 4 * 2 / 3)
    assert certified["bcop"] == pytest.approx(1 + 4 / 3)
    assert "standard" not in certified
    assert len(scores.notes) == len(METRICS) - 2
    assert scores.notes[0].startswith("Training time")


def test_diagnostics_are_read_from_any_finished_run(tmp_path: Path) -> None:
    add_diagnostics(tmp_path)
    rows = read_evidence(tmp_path).diagnostics
    assert {row.method for row in rows} == {"aol", "bcop", "cayley", "cpl", "lot", "sll", "soc"}
    assert rows[0].layers[0]["path"] == "input"
