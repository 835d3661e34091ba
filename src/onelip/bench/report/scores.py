"""The radar plot's six metrics, each with a score from 1 (worst) to 5 (best), and the rule in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onelip.bench.published.ranking import score_methods
from onelip.bench.report.rows import Evidence
from onelip.bench.report.style import BASELINES
from onelip.bench.report.summaries import (
    ModelSummary,
    all_settings,
    chosen_models,
    longest_budget,
    main_memory,
    main_times,
    memory_ratios,
    ranking_entries,
)

LOWEST, HIGHEST = 1.0, 5.0

METRICS = (
    "Certified accuracy",
    "Accuracy",
    "Training time",
    "Inference time",
    "Training memory",
    "Inference memory",
)

RULE = (
    "Time and memory: 5 - log₂(cost relative to the same network with plain convolutions), kept between 1 and 5. "
    "As cheap as a plain convolution is 5, and every doubling of the cost takes one point. The relative cost is the "
    "geometric mean over the sizes and data sets that all methods in the plot were measured on.",
    "Accuracy and certified accuracy: 1 + 4 x s / max s, where s is the paper's ranking score of a method at the "
    "longest "
    "budget: the number of its models that are first, plus those in the top 3, plus those in the top 10, over all data "
    "sets (so a first place counts three times). The method with the highest s has 5, one that is never in a top 10 "
    "has 1.",
)


@dataclass(frozen=True)
class RadarScores:
    """Scores by metric and method, and what kept a metric from being scored."""

    scores: dict[str, dict[str, float]]
    notes: tuple[str, ...]

    @property
    def methods(self) -> list[str]:
        """Methods that have a score in every scored metric."""
        tables = list(self.scores.values())
        common = set(tables[0]).intersection(*tables[1:]) if tables else set()
        return sorted(common)


def radar_scores(evidence: Evidence) -> RadarScores:
    """Scores of all metrics that the evidence allows."""
    models = longest_budget(chosen_models(all_settings(evidence.training)))
    times, memory = main_times(evidence), memory_ratios(main_memory(evidence))
    train = {(r.key.method, r.key.size, r.key.dataset): r.train_ratio[0] for r in times}
    inference = {(r.key.method, r.key.size, r.key.dataset): r.inference_ratio[0] for r in times}
    tables = {
        "Certified accuracy": _ranking_scores(models, lambda model: model.certified_36),
        "Accuracy": _ranking_scores(models, lambda model: None if model.accuracy is None else model.accuracy.mean),
        "Training time": cost_scores(train),
        "Inference time": cost_scores(inference),
        "Training memory": cost_scores({key: ratios[0] for key, ratios in memory.items()}),
        "Inference memory": cost_scores({key: ratios[1] for key, ratios in memory.items()}),
    }
    notes = tuple(f"{name}: not scored, there are no records for it." for name in METRICS if not tables[name])
    return RadarScores({name: table for name, table in tables.items() if table}, notes)


def cost_scores(ratios: Mapping[tuple[str, str, str], float]) -> dict[str, float]:
    """Score of each method from {(method, size, data set): cost relative to plain convolutions}."""
    methods = {method for method, _, _ in ratios if method not in BASELINES}
    places = sorted({(size, dataset) for _, size, dataset in ratios})
    common = [place for place in places if all((method, *place) in ratios for method in methods)]
    if not common:
        return {}
    scores = {}
    for method in methods:
        logarithms = [math.log2(ratios[(method, *place)]) for place in common]
        scores[method] = min(HIGHEST, max(LOWEST, HIGHEST - sum(logarithms) / len(logarithms)))
    return scores


def _ranking_scores(models: list[ModelSummary], value: Callable[[ModelSummary], float | None]) -> dict[str, float]:
    found = score_methods(ranking_entries(models, value))
    highest = max((score.score for score in found), default=0)
    if highest == 0:
        return {}
    return {score.method: LOWEST + (HIGHEST - LOWEST) * score.score / highest for score in found}
