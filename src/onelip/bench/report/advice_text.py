"""The advice in words that a person can act on: what to use, why, what one gives up, and from which evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onelip.bench.report.advice import GIB, Candidate, Limits, Verdict, rank
from onelip.bench.report.candidates import NOT_MEASURED
from onelip.bench.report.intervals import Share, differ
from onelip.bench.report.method_style import method_style
from onelip.bench.report.report_table import NOTHING, listed, memory
from onelip.bench.report.study_rows import Budget
from onelip.bench.runs.durations import format_duration

_NAMES = {"memory": "memory", "hours": "training time", "latency": "latency"}

CARDS = (2, 4, 8, 24, 80)
"""GiB of the cards in the table of decisions; those with the same answers share a row."""

HOURS = (2.0, 10.0, 24.0)
"""Hours of training in the table of decisions, where the evidence has too many of its own for columns."""

_PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def name(candidate: Candidate) -> str:
    """Method and size."""
    return f"{method_style(candidate.method).label} {candidate.size}"


def share_of(verdict: Verdict) -> Share:
    """Certified accuracy with its standard error."""
    return Share(verdict.result.certified, verdict.result.error, 1)


def figures_of(verdict: Verdict) -> tuple[str, str, str, str, str]:
    """Certified accuracy, accuracy, training time, memory and latency for a row of a table."""
    candidate, result = verdict.candidate, verdict.result
    return (
        str(share_of(verdict)),
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

    def sources(field: str) -> str:
        return "; ".join(dict.fromkeys(getattr(verdict.candidate, field) for verdict in verdicts))

    evidence = (
        f"Evidence: accuracies {best.candidate.result_source}. Memory: {sources('memory_source')}. "
        f"Latency: {sources('latency_source')}."
    )
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
        f"Use {name(best.candidate)} on {best.candidate.dataset}: it certifies {share_of(best)} % of the test images "
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
    best = verdicts[0]
    equal = [v for v in verdicts[1:] if v.group == "fits" and not differ(share_of(v), share_of(best))]
    if not equal:
        return []
    lean = min(equal, key=lambda v: v.candidate.memory_bytes or float("inf"))
    sentence = f"Not distinguishable from it: {', '.join(f'{name(v.candidate)} ({share_of(v)} %)' for v in equal[:4])}."
    saved = lean.candidate.memory_bytes is not None and best.candidate.memory_bytes is not None
    if saved and (lean.candidate.memory_bytes or 0) < 0.8 * (best.candidate.memory_bytes or 0):
        sentence += f" {name(lean.candidate)} needs only {memory(lean.candidate.memory_bytes or 0)}."
    return [sentence]


def _lost(verdicts: Sequence[Verdict]) -> list[str]:
    """What the limits cost: the best model that they exclude, if it is better than the best that fits."""
    excluded = [v for v in verdicts if v.group == "excluded"]
    first = max(excluded, key=lambda v: v.result.certified, default=None)
    if first is None or first.result.certified <= verdicts[0].result.certified:
        return []
    would = f"which would certify {share_of(first)} % but takes {_needs(first)}"
    return [f"Your limits exclude {name(first.candidate)}, {would}."]


def _needs(verdict: Verdict) -> str:
    _, _, time, needed, latency = figures_of(verdict)
    needs = {
        "memory": f"{needed} of memory and 1 GiB to spare",
        "hours": f"a training of {time}",
        "latency": f"{latency} the inference time of the plain network",
    }
    return " and ".join(needs[cost] for cost in verdict.broken)


def _nothing_fits(verdicts: Sequence[Verdict], limits: Limits) -> str:
    given = []
    if limits.memory_bytes is not None:
        given.append(f"{limits.memory_bytes / GIB:g} GiB")
    if limits.train_hours is not None:
        given.append(f"{limits.train_hours:g} h of training")
    if limits.latency_ratio is not None:
        given.append(f"{limits.latency_ratio:g}x latency")
    text = f"Nothing is known to fit {listed(given)} on {verdicts[0].candidate.dataset}."
    uncertain = [verdict for verdict in verdicts if verdict.group == "uncertain"]
    excluded = [verdict for verdict in verdicts if verdict.group == "excluded"]
    if uncertain:
        first = uncertain[0]
        text += (
            f" {name(first.candidate)} may fit, with {share_of(first)} % certified: its {_unknown(first)} is not known."
        )
    if excluded:
        closest = excluded[0]
        text += f" The closest that does not is {name(closest.candidate)} with {share_of(closest)} % certified"
        text += f": it takes {_needs(closest)}."
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
    verdicts = [v for v in rank(candidates, limits) if v.group == "fits"]
    equal = [v for v in verdicts if not differ(share_of(v), share_of(verdicts[0]))]
    return ", ".join(dict.fromkeys(name(v.candidate) for v in equal)) or "nothing fits"


def _cards(cards: list[int]) -> str:
    """`8 GB`, `4 to 8 GB`, `8 GB or more`."""
    if len(cards) > 1 and cards[-1] == CARDS[-1]:
        return f"{cards[0]} GB or more"
    return f"{cards[0]} to {cards[-1]} GB" if len(cards) > 1 else f"{cards[0]} GB"


def portraits(candidates: Iterable[Candidate]) -> list[tuple[str, str]]:
    """(method, three sentences): what it certifies at best, what that costs, and when to take it."""
    verdicts = rank(candidates, Limits())
    own: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        own.setdefault(verdict.candidate.method, []).append(verdict)
    leader = share_of(verdicts[0])
    found = []
    for place, (method, group) in enumerate(own.items()):
        best = group[0]
        _, accuracy, time, needed, _ = figures_of(best)
        rank_words = f", {_PLACES[place]} of {len(own)} methods" if 1 < len(own) <= len(_PLACES) else ""
        first = f"Its best model, {name(best.candidate)}, certifies {share_of(best)} % of the test images "
        first += f"(accuracy {accuracy} %){rank_words}."
        costs = [time, *([f"{needed} of memory"] if needed != NOTHING else [])]
        second = f"Training takes {' and '.join(costs)}{''.join(f'; inference takes {s}' for s in _speed(best))}."
        better = _better_for_less(best, verdicts)
        if not differ(share_of(best), leader):
            third = "Take it if certified accuracy is what counts: nothing certifies distinguishably more."
        elif better is not None:
            more = f"{name(better.candidate)} certifies more, {share_of(better)} %"
            third = f"{more}, with no more memory or training time."
        else:
            third = "Take it if memory is short: with as much or less, nothing certifies distinguishably more."
        found.append((method_style(method).label, " ".join((first, second, third))))
    return found


def _better_for_less(verdict: Verdict, others: Iterable[Verdict]) -> Verdict | None:
    """The best of the models that certify distinguishably more and need no more memory and training time."""
    for other in others:  # best first
        pairs: list[tuple[float | None, float | None]] = [
            (other.candidate.memory_bytes, verdict.candidate.memory_bytes),
            (other.result.hours, verdict.result.hours),
        ]
        cheaper = all(cost is not None and limit is not None and cost <= limit for cost, limit in pairs)
        more = other.result.certified > verdict.result.certified and differ(share_of(other), share_of(verdict))
        if cheaper and more:
            return other
    return None
