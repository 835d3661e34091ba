"""Rows become models, costs and positions in the radar: against numbers computed by hand."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
from synthetic_study import add_memory, add_times, add_training, finish, train_config, train_metrics

from onelip.bench.records import load_records
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.records.views import MedianTime
from onelip.bench.report.figures.radar import RadarMetric, accuracy_metric, cost_metric, published_radar, study_radar
from onelip.bench.report.findings import TRAINED_ONCE, findings, notes
from onelip.bench.report.read_study import read_study
from onelip.bench.report.shares import Share, differ, mean_share
from onelip.bench.report.trained_models import (
    TrainedModel,
    all_settings,
    chosen_models,
    longest_budget,
    main_memory,
    main_times,
    relative_to_plain,
)


def models_in(folder: Path) -> list[TrainedModel]:
    return chosen_models(all_settings(read_study(folder).trained))


def test_the_standard_error_has_a_part_of_the_images_and_one_of_the_seeds() -> None:
    one = mean_share([0.5], 1000)
    assert one is not None
    assert one.error == pytest.approx(math.sqrt(0.25 / 1000), rel=0.01)
    values = [0.50, 0.53, 0.55]
    three = mean_share(values, 10**9)
    assert three is not None
    assert three.error == pytest.approx(statistics.stdev(values) / math.sqrt(3), rel=1e-3)
    assert mean_share([0.0], 1000) != Share(0.0, 0.0, 1), "nothing of 1000 is not proof of nothing"
    assert mean_share([0.5], None) == Share(0.5, None, 1)
    assert mean_share([], 10) is None


def test_the_interval_of_a_share_covers_the_truth() -> None:
    """Brute force: of all outcomes of 200 images with p = 0.3, those within 1.96 errors weigh at least 94 %."""
    covered = 0.0
    for hits in range(201):
        share = mean_share([hits / 200], 200)
        assert share is not None
        assert share.error is not None
        if abs(share.mean - 0.3) <= 1.96 * share.error:
            covered += math.comb(200, hits) * 0.3**hits * 0.7 ** (200 - hits)
    assert 0.94 <= covered <= 0.97


def test_figures_differ_only_beyond_their_intervals() -> None:
    assert not differ(Share(0.214, 0.013, 1), Share(0.204, 0.013, 1))
    assert differ(Share(0.264, 0.013, 1), Share(0.204, 0.013, 1))
    assert not differ(MedianTime(1.0, 0.9, 1.1), MedianTime(1.15, 1.05, 1.2))
    assert differ(MedianTime(1.0, 0.9, 1.1), MedianTime(1.3, 1.2, 1.4))
    assert not differ(MedianTime(1.0, 0.9, 1.1), MedianTime(9.0, -math.inf, math.inf)), "few measurements tell nothing"


def test_seeds_of_a_setting_are_one_model(tmp_path: Path) -> None:
    for seed, value in enumerate([0.50, 0.53, 0.55]):
        config = train_config("aol", "XS", "cifar10", "2h", seed)
        finish(tmp_path, "train", config, train_metrics(value, 0.7, 7200.0))
    (model,) = models_in(tmp_path)
    assert model.certified_36 is not None
    assert (model.certified_36.mean, model.certified_36.seeds) == (pytest.approx(0.5266667), 3)
    assert len(model.curve) == 86
    assert model.curve[12] == (pytest.approx(36 / 255), pytest.approx(model.certified_36.mean))


def test_the_setting_is_chosen_on_the_validation_split(tmp_path: Path) -> None:
    """The one with the better test result must not win, nor a trial that was never tested."""
    best = train_metrics(0.40, 0.6, 1.0) | {"validation_certified_accuracy_36": 0.45}
    lucky = train_metrics(0.50, 0.7, 1.0) | {"validation_certified_accuracy_36": 0.35}
    untested = {"validation_certified_accuracy_36": 0.60, "train_seconds": 1.0}
    for lr, metrics in ((0.1, best), (0.2, lucky), (0.3, untested)):
        finish(tmp_path, "train", train_config("aol", "XS", "cifar10", "2h", lr=lr), metrics)
    settings = all_settings(read_study(tmp_path).trained)
    assert len(settings) == 3
    (model,) = chosen_models(settings)
    assert model.spec.lr == 0.1


def test_only_the_longest_budget_is_compared(tmp_path: Path) -> None:
    budgets = (("30m", 1800.0), ("2h", 7200.0), ("10h", 36000.0))
    add_training(tmp_path, methods=("aol", "soc"), sizes=("XS",), budgets=budgets, seeds=1)
    found = {(model.network.method, model.budget.name) for model in longest_budget(models_in(tmp_path))}
    assert found == {("aol", "10h"), ("soc", "10h")}


def test_times_of_two_machines_are_not_mixed_and_the_baseline_is_one(tmp_path: Path) -> None:
    add_times(tmp_path, sizes=("XS", "S"))
    stored = next(r for r in load_records(tmp_path).runs)
    finish(tmp_path, "measure", stored.record.config | {"hardware": "another"}, stored.record.metrics)
    times = main_times(read_study(tmp_path))
    assert {row.hardware for row in times} == {"a test machine"}
    assert len(times) == 14, "seven methods at two sizes; the plain network is the unit and no row"


def test_memory_measured_on_a_gpu_comes_before_a_prediction(tmp_path: Path) -> None:
    add_memory(tmp_path, sizes=("XS",))
    spec = NetworkSpec(method="aol", size="XS", dataset="cifar10-mini")
    config = {"quantity": "memory", "network": spec.as_dict(), "batch_size": 256}
    metrics = {"fits": True, "parameters": 1, "training": 77, "inference": 7}
    finish(tmp_path, "measure", config | {"device": "cuda"}, metrics)
    finish(tmp_path, "measure", config | {"device": "cpu"}, metrics | {"training": 99})
    rows = {row.network.method: row for row in main_memory(read_study(tmp_path))}
    assert (rows["aol"].training, rows["aol"].source) == (77, "measured on cuda")
    assert rows["lot"].source == "predicted"


def test_memory_is_relative_to_the_plain_network_of_the_same_shape(tmp_path: Path) -> None:
    add_memory(tmp_path)
    ratios = relative_to_plain(main_memory(read_study(tmp_path)), "training")
    assert ratios[NetworkSpec(method="lot", size="S", dataset="cifar10-mini")] == pytest.approx(3.1)
    assert {network.method for network in ratios} == {"aol", "bcop", "cayley", "cpl", "lot", "sll", "soc"}


def network(method: str, size: str = "XS") -> NetworkSpec:
    return NetworkSpec(method=method, size=size)


def positions(metric: RadarMetric) -> dict[str, float]:
    return {method: metric.position(method) for method in metric.values}


def test_costs_lie_in_the_radar_by_their_ranks() -> None:
    """The cheapest is at the rim, the dearest at ring 1, and only what all methods share counts."""
    ratios = {network("a"): 1.0, network("b"): 2.0, network("c"): 4.0, network("d"): 16.0}
    metric = cost_metric("Time", ratios | {network("b", "S"): 64.0})
    assert positions(metric) == pytest.approx({"a": 5, "b": 5 - 4 / 3, "c": 5 - 8 / 3, "d": 1})
    assert metric.values["b"] == 2.0
    assert cost_metric("Time", {network("a"): 1.0, network("b", "S"): 1.0}).values == {}


def test_accuracies_lie_in_the_radar_by_their_ranks() -> None:
    accuracies = {network("a"): 0.33, network("b"): 0.20, network("c"): 0.21, network("standard"): 0.9}
    metric = accuracy_metric("Accuracy", accuracies)
    assert metric.values == {"a": 0.33, "b": 0.20, "c": 0.21}
    assert positions(metric) == {"a": 5, "b": 1, "c": 3}
    assert positions(accuracy_metric("Accuracy", {network("a"): 0.3, network("b"): 0.3})) == {"a": 5, "b": 5}


def test_the_radar_has_what_was_measured_and_the_papers_its_tables(tmp_path: Path) -> None:
    add_training(tmp_path, sizes=("XS",), seeds=1)
    study = read_study(tmp_path)
    assert [metric.name for metric in study_radar(study, models_in(tmp_path))] == ["Certified accuracy", "Accuracy"]
    certified, _, time = published_radar()
    assert set(certified.values) == {"aol", "bcop", "cayley", "cpl", "lot", "sll", "soc"}
    assert 1 <= min(time.values.values()) < 1.01


def test_findings_call_nothing_better_that_is_not(tmp_path: Path) -> None:
    for method, value in (("aol", 0.214), ("bcop", 0.204)):
        finish(tmp_path, "train", train_config(method, "XS", "cifar10", "2h"), train_metrics(value, 0.3, 1.0))
    (sentence,) = findings(read_study(tmp_path), models_in(tmp_path))
    assert notes(read_study(tmp_path), models_in(tmp_path)) == [TRAINED_ONCE]
    assert "AOL XS and BCOP XS are not distinguishable" in sentence
    assert "21.4 ± 1.3 and 20.4 ± 1.3 %" in sentence
    finish(tmp_path, "train", train_config("soc", "XS", "cifar10", "2h"), train_metrics(0.30, 0.4, 1.0))
    (sentence,) = findings(read_study(tmp_path), models_in(tmp_path))
    assert "SOC XS certifies most: 30.0 ± 1.4 %" in sentence
    finish(tmp_path, "train", train_config("soc", "XS", "cifar10", "2h", seed=1), train_metrics(0.31, 0.4, 1.0))
    assert notes(read_study(tmp_path), models_in(tmp_path)) == []


def test_findings_name_the_best_of_other_networks_apart(tmp_path: Path) -> None:
    finish(tmp_path, "train", train_config("aol", "XS", "cifar10", "2h"), train_metrics(0.25, 0.3, 1.0))
    for method, value in (("stiefel", 0.41), ("bcop", 0.35)):
        config = train_config(method, "S", "cifar10", "2h")
        config["network"]["model"] = "fastnet"
        finish(tmp_path, "train", config, train_metrics(value, 0.5, 1.0))
    best, other = findings(read_study(tmp_path), models_in(tmp_path))
    assert "AOL XS certifies 25.0" in best
    assert "fastnet S certifies 41.0" in other
