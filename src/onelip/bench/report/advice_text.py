"""The advice in words that a person can act on: what to use, why, what one gives up, and from which evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onelip.bench.records.durations import format_duration
from onelip.bench.report.advice import GIB, NOT_MEASURED, Candidate, Limits, Verdict, rank
from onelip.bench.report.method_style import method_style
from onelip.bench.report.report_table import NOTHING, listed, memory
from onelip.bench.report.shares import differ
from onelip.bench.report.study_rows import Budget

_NAMES = {"memory": "memory", "hours": "training time", "latency": "latency"}

CARDS = (2, 4, 8, 24, 80)
"""GiB of the cards in the table of decisions; those with the same answers share a row."""

HOURS = (2.0, 10.0, 24.0)
"""Hours of training in the table of decisions, where the evidence has too many of its own for columns."""

_PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def figures_of(verdict: Verdict) -> tuple[str, str, str, str, str]:
    """Certified accuracy, accuracy, training time, memory and latency for a row of a table."""
    candidate, result = verdict.candidate, verdict.result
    return (
        str(verdict.share),
        NOTHING if result.accuracy is None else f"{100 * result.accuracy:.1f}",
        Budget(result.budget, None).words,
        NOTHING if candidate.memory_bytes is None else memory(candidate.memory_bytes),
        NOTHING if candidate.latency_ratio is None else f"{candidate.latency_ratio:.2f}x",
    )


def reason(verdict: Verdict) -> str:
    """Why a candidate stands where it stands."""
    if verdict.broken:
        return f"too much {', '.join(_NAMES[cost] for cost in verdict.broken)}"
    return f"{_unknown(verdict)} not known" if verdict.unknown else "fits"


def _unknown(verdict: Verdict) -> str:
    return " and ".join(_NAMES[cost] for cost in verdict.unknown)


def explain_ranking(verdicts: Sequence[Verdict], limits: Limits) -> list[str]:
    """Paragraphs for a ranking that is not empty."""
    best = verdicts[0]
    memories, latencies = (
        "; ".join(dict.fromkeys(getattr(verdict.candidate, field) for verdict in verdicts))
        for field in ("memory_source", "latency_source")
    )
    evidence = f"Evidence: accuracies {best.candidate.result_source}. Memory: {memories}. Latency: {latencies}."
    if best.candidate.latency_source == NOT_MEASURED:
        evidence += " To measure it on your machine: onelip measure time --runs-dir DIR, then --study DIR here."
    if best.group != "fits":
        return [_nothing_fits(verdicts, limits), evidence]
    return [_best(best, limits), *_equally_good(verdicts), *_lost(verdicts), evidence]


def _best(best: Verdict, limits: Limits) -> str:
    _, accuracy, time, needed, _ = figures_of(best)
    costs = [f"training for {time}"]
    costs += [f"{needed} of memory in training"] if needed != NOTHING else []
    costs += _speed(best)
    most = "the most of all" if limits == Limits() else "the most of all that fit your limits"
    return (
        f"Use {best.label} on {best.candidate.dataset}: it certifies {best.share} % of the test images "
        f"at radius 36/255 (accuracy {accuracy} %), {most}. Costs: {', '.join(costs)}."
    )


def _speed(verdict: Verdict) -> list[str]:
    """The measured latency, or what the paper's logs say about speed, if anything."""
    _, *_, latency = figures_of(verdict)
    slowness = verdict.candidate.published_slowness
    if latency != NOTHING:
        return [f"{latency} the inference time of the plain network"]
    if slowness is None:
        return []
    times = "" if slowness == 1 else f"{slowness:.1f} times "
    return [f"{times}the shortest evaluation time of this size (with the paper's code)"]


def _equally_good(verdicts: Sequence[Verdict]) -> list[str]:
    """Models of other methods that fit and whose accuracy cannot be told from the best one's."""
    best, *others = verdicts
    equal = [verdict for verdict in others if verdict.group == "fits" and not differ(verdict.share, best.share)]
    if not equal:
        return []
    sentence = f"Not distinguishable from it: {', '.join(f'{v.label} ({v.share} %)' for v in equal[:4])}."
    lean = min(equal, key=lambda v: v.candidate.memory_bytes or float("inf"))
    least, most = lean.candidate.memory_bytes, best.candidate.memory_bytes
    if least is not None and most is not None and least < 0.8 * most:
        sentence += f" {lean.label} needs only {memory(least)}."
    return [sentence]


def _lost(verdicts: Sequence[Verdict]) -> list[str]:
    """What the limits cost: the best model that they exclude, if it is better than the best that fits."""
    excluded = [verdict for verdict in verdicts if verdict.group == "excluded"]
    first = max(excluded, key=lambda verdict: verdict.result.certified, default=None)
    if first is None or first.result.certified <= verdicts[0].result.certified:
        return []
    return [f"Your limits exclude {first.label}, which would certify {first.share} % but takes {_needs(first)}."]


def _needs(verdict: Verdict) -> str:
    _, _, time, needed, latency = figures_of(verdict)
    needs = {
        "memory": f"{needed} of memory and 1 GiB to spare",
        "hours": f"a training of {time}",
        "latency": f"{latency} the inference time of the plain network",
    }
    return " and ".join(needs[cost] for cost in verdict.broken)


def _nothing_fits(verdicts: Sequence[Verdict], limits: Limits) -> str:
    memory_limit = None if limits.memory_bytes is None else limits.memory_bytes / GIB
    given = (
        (memory_limit, "{:g} GiB"),
        (limits.train_hours, "{:g} h of training"),
        (limits.latency_ratio, "{:g}x latency"),
    )
    named = listed([words.format(limit) for limit, words in given if limit is not None])
    text = f"Nothing is known to fit {named} on {verdicts[0].candidate.dataset}."
    first: dict[str, Verdict] = {}
    for verdict in verdicts:
        first.setdefault(verdict.group, verdict)
    if near := first.get("uncertain"):
        text += f" {near.label} may fit, with {near.share} % certified: its {_unknown(near)} is not known."
    if out := first.get("excluded"):
        text += f" The closest that does not is {out.label} with {out.share} % certified: it takes {_needs(out)}."
    return text


def decisions(candidates: Sequence[Candidate]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Training times, and for each card the best model in each of them, with all that cannot be told from it."""
    budgets = {r.hours: r.budget for c in candidates for r in c.results if r.hours is not None}
    columns = sorted(budgets) if 0 < len(budgets) <= len(HOURS) else HOURS
    rows: list[tuple[list[int], list[str]]] = []
    for card in CARDS:
        cells = [_best_within(candidates, Limits(card * GIB, hours)) for hours in columns]
        if rows and rows[-1][1] == cells:
            rows[-1][0].append(card)
        else:
            rows.append(([card], cells))
    names = [budgets.get(hours) or format_duration(round(3600 * hours, 3)) for hours in columns]
    return [Budget(name, None).words for name in names], [(_cards(cards), cells) for cards, cells in rows]


def _best_within(candidates: Sequence[Candidate], limits: Limits) -> str:
    verdicts = [verdict for verdict in rank(candidates, limits) if verdict.group == "fits"]
    equal = [verdict.label for verdict in verdicts if not differ(verdict.share, verdicts[0].share)]
    return ", ".join(dict.fromkeys(equal)) or "nothing fits"


def _cards(cards: list[int]) -> str:
    """`8 GB`, `4 to 8 GB`, `8 GB or more`."""
    if len(cards) > 1 and cards[-1] == CARDS[-1]:
        return f"{cards[0]} GB or more"
    return f"{cards[0]} to {cards[-1]} GB" if len(cards) > 1 else f"{cards[0]} GB"


def portraits(candidates: Iterable[Candidate]) -> list[tuple[str, str]]:
    """(method, three sentences): what it certifies at best, what that costs, and when to take it."""
    verdicts = rank(candidates, Limits())
    best_of: dict[str, Verdict] = {}
    for verdict in verdicts:
        best_of.setdefault(verdict.candidate.method, verdict)
    found = []
    for place, (method, best) in enumerate(best_of.items()):
        _, accuracy, time, needed, _ = figures_of(best)
        rank_words = f", {_PLACES[place]} of {len(best_of)} methods" if 1 < len(best_of) <= len(_PLACES) else ""
        first = f"Its best model, {best.label}, certifies {best.share} % of the test images "
        first += f"(accuracy {accuracy} %){rank_words}."
        costs = [time, *([f"{needed} of memory"] if needed != NOTHING else [])]
        second = f"Training takes {' and '.join(costs)}{''.join(f'; inference takes {s}' for s in _speed(best))}."
        better = next((verdict for verdict in verdicts if _is_better_for_less(verdict, best)), None)
        if not differ(best.share, verdicts[0].share):
            third = "Take it if certified accuracy is what counts: nothing certifies distinguishably more."
        elif better is not None:
            third = f"{better.label} certifies more, {better.share} %, with no more memory or training time."
        else:
            third = "Take it if memory is short: with as much or less, nothing certifies distinguishably more."
        found.append((method_style(method).label, f"{first} {second} {third}"))
    return found


def _is_better_for_less(other: Verdict, verdict: Verdict) -> bool:
    """Whether it certifies distinguishably more and needs no more memory and training time."""
    pairs: list[tuple[float | None, float | None]] = [
        (other.candidate.memory_bytes, verdict.candidate.memory_bytes),
        (other.result.hours, verdict.result.hours),
    ]
    cheaper = all(cost is not None and limit is not None and cost <= limit for cost, limit in pairs)
    return cheaper and other.result.certified > verdict.result.certified and differ(other.share, verdict.share)
