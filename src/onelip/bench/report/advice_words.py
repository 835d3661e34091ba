"""The advice in words that a person can act on: what to use, why, what one gives up, and from which evidence."""

from __future__ import annotations

from collections.abc import Sequence

from onelip.bench.report.advice import GIB, Limits, Verdict
from onelip.bench.report.style import method_style

_NAMES = {"memory": "memory", "hours": "training time", "latency": "latency"}
_CLOSE = 0.01
"""Certified accuracy that one may want to give up for a cheaper model: one point."""


def explain(verdicts: Sequence[Verdict], limits: Limits) -> list[str]:
    """Paragraphs for a ranking that is not empty."""
    best = verdicts[0]
    evidence = (
        f"Evidence: accuracies {best.candidate.result_source}. Memory: {_sources(verdicts, 'memory_source')}. "
        f"Latency: {_sources(verdicts, 'latency_source')}."
    )
    if best.candidate.latency_source.startswith("counted"):
        evidence += " For times on your machine: onelip measure time --runs-dir DIR, then --study DIR here."
    if best.group != "fits":
        return [_nothing(best, limits), evidence]
    return [_best(best), *_cheaper(verdicts), *_lost(verdicts), evidence]


def name(verdict: Verdict) -> str:
    """Method and size."""
    return f"{method_style(verdict.candidate.method).label} {verdict.candidate.size}"


def figures_of(verdict: Verdict) -> tuple[str, str, str, str, str]:
    """Certified accuracy, accuracy, training time, memory and latency for a row of a table."""
    candidate, result = verdict.candidate, verdict.result
    return (
        f"{100 * result.certified:.1f}",
        "-" if result.accuracy is None else f"{100 * result.accuracy:.1f}",
        result.budget,
        "-" if candidate.memory_bytes is None else f"{candidate.memory_bytes / GIB:.1f}",
        "-" if candidate.latency_ratio is None else f"{candidate.latency_ratio:.2f}x",
    )


def reason(verdict: Verdict) -> str:
    """Why a candidate stands where it stands."""
    if verdict.broken:
        return f"too much {', '.join(_NAMES[cost] for cost in verdict.broken)}"
    if verdict.unknown:
        return f"{', '.join(_NAMES[cost] for cost in verdict.unknown)} not known"
    return "fits"


def _best(best: Verdict) -> str:
    certified, accuracy, time, memory, latency = figures_of(best)
    costs = [f"{time} of training"]
    costs += [f"{memory} GiB of memory in training"] if memory != "-" else []
    if latency != "-":
        is_time = not best.candidate.latency_source.startswith("counted")
        costs.append(
            f"{latency} the {'inference time' if is_time else 'operations at inference'} of plain convolutions"
        )
    return (
        f"Use {name(best)} on {best.candidate.dataset}: it certifies {certified} % of the test images at radius 36/255 "
        f"(accuracy {accuracy} %), the most of all that fit your limits, with {', '.join(costs)}."
    )


def _cheaper(verdicts: Sequence[Verdict]) -> list[str]:
    """The model that needs least memory among those within one point of the best, if it needs less."""
    best = verdicts[0]
    close = [v for v in verdicts[1:] if v.group == "fits" and best.result.certified - v.result.certified <= _CLOSE]
    known = [v for v in close if v.candidate.memory_bytes is not None]
    if best.candidate.memory_bytes is None or not known:
        return []
    lean = min(known, key=lambda v: v.candidate.memory_bytes or 0)
    if (lean.candidate.memory_bytes or 0) > 0.8 * best.candidate.memory_bytes:
        return []
    lost = 100 * (best.result.certified - lean.result.certified)
    memory = (lean.candidate.memory_bytes or 0) / GIB
    return [f"Leaner: {name(lean)} gives up {lost:.1f} points and needs {memory:.1f} GiB."]


def _lost(verdicts: Sequence[Verdict]) -> list[str]:
    """What the limits cost: the best model that they exclude, if it is better than the best that fits."""
    best = verdicts[0]
    better = [v for v in verdicts if v.group == "excluded" and v.result.certified > best.result.certified]
    if not better:
        return []
    first = better[0]
    certified, _, time, memory, latency = figures_of(first)
    needs = {"memory": f"{memory} GiB", "hours": f"{time} of training", "latency": f"{latency} the latency"}
    needed = ", ".join(needs[cost] for cost in first.broken)
    return [f"Your limits exclude {name(first)}, which would certify {certified} % but takes {needed}."]


def _nothing(nearest: Verdict, limits: Limits) -> str:
    given = []
    if limits.memory_bytes is not None:
        given.append(f"{limits.memory_bytes / GIB:g} GiB")
    if limits.train_hours is not None:
        given.append(f"{limits.train_hours:g} h of training")
    if limits.latency_ratio is not None:
        given.append(f"{limits.latency_ratio:g}x latency")
    shortest = min((r.hours for r in nearest.candidate.results if r.hours is not None), default=None)
    hint = "" if shortest is None or "hours" not in nearest.broken else f" Its shortest training has {shortest:g} h."
    return (
        f"Nothing is known to fit {' and '.join(given)} on {nearest.candidate.dataset}. The best of the rest is "
        f"{name(nearest)} with {100 * nearest.result.certified:.1f} % certified: {reason(nearest)}.{hint}"
    )


def _sources(verdicts: Sequence[Verdict], field: str) -> str:
    return "; ".join(dict.fromkeys(getattr(verdict.candidate, field) for verdict in verdicts))
