"""Say which layer to use for your memory, time and latency.

```
onelip advise
onelip advise --gpu-memory 24GB --train-hours 10
onelip advise --max-latency 2x --study runs
```

Without limits it prints a table of decisions and describes each method in brief. Accuracies are those of a study's
records where it has results for the data set, else the paper's. A limit that is not given does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from onelip.bench.cli.options import POSITIVE, Json
from onelip.bench.records import dump_json
from onelip.bench.report.advice import (
    Candidate,
    Limits,
    Verdict,
    measured_candidates,
    parse_memory,
    parse_ratio,
    published_candidates,
    rank,
)
from onelip.bench.report.advice_text import decisions, explain_ranking, figures_of, portraits, reason
from onelip.bench.report.read_study import read_study
from onelip.bench.terminal import Terminal, plain_table, say
from onelip.errors import InvalidInputError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Command(Json):
    dataset: str = "cifar10"
    """cifar10, cifar100 or tiny-imagenet, or a data set of the study."""
    gpu_memory: str | None = None
    """Memory of the card, such as 24GB; training must fit with 1 GB to spare."""
    train_hours: Annotated[float | None, POSITIVE] = None
    """Hours of training that you have; on an A100 for the paper's results, unless the study timed its own machine."""
    max_latency: str | None = None
    """Inference time relative to the same network with plain convolutions, such as 2x; needs a study with times."""
    study: Path | None = None
    """Folder of runs whose results and measurements are used."""

    def run(self) -> int:
        """Rank and print; 1 if nothing is known to fit."""
        limits = Limits(
            None if self.gpu_memory is None else parse_memory(self.gpu_memory),
            self.train_hours,
            None if self.max_latency is None else parse_ratio(self.max_latency),
        )
        candidates = self._candidates()
        verdicts = rank(candidates, limits)
        if self.json:
            print(dump_json([asdict(verdict) for verdict in verdicts]))
        elif limits == Limits():
            _print_overview(candidates, verdicts)
        else:
            _print_advice(verdicts, limits)
        return 0 if verdicts[0].group == "fits" else 1

    def _candidates(self) -> list[Candidate]:
        study = None if self.study is None else read_study(self.study)
        if study is not None and study.mixed_devices:
            say(study.mixed_devices)
        measured = [] if study is None else measured_candidates(study)
        for candidates in (measured, published_candidates(study)):
            found = [candidate for candidate in candidates if candidate.dataset == self.dataset]
            if found:
                return found
        known = {candidate.dataset for candidate in (*measured, *published_candidates())}
        names = f"{', '.join(sorted(known))}{did_you_mean(self.dataset, known)}"
        raise InvalidInputError(f"--dataset {self.dataset}: there are results only for {names}")


def _print_overview(candidates: Sequence[Candidate], verdicts: Sequence[Verdict]) -> None:
    """Which layer should I use? One table of decisions, three sentences for each method."""
    console = Terminal()
    *best, evidence = explain_ranking(verdicts, Limits())
    console.print(" ".join(best))
    console.print(f"\nWhat to use on {candidates[0].dataset}, by memory of the card and training time:\n")
    times, rows = decisions(candidates)
    columns = ("card", *times)
    console.print(plain_table(columns, (), ((card, *cells) for card, cells in rows), wrapped=columns))
    console.print("Several names: their certified accuracies cannot be told apart.\n")
    for method, sentences in portraits(candidates):
        console.print(f"{method}: {sentences}\n")
    console.print(evidence)


def _print_advice(verdicts: Sequence[Verdict], limits: Limits) -> None:
    console = Terminal()
    for paragraph in explain_ranking(verdicts, limits):
        console.print(paragraph)
        console.print()
    table = plain_table(("model",), ("cert %", "acc %", "time", "memory", "latency"), wrapped=("time",), padding=0)
    table.add_column("verdict")
    for index, verdict in enumerate(verdicts):
        style = "bold" if index == 0 and verdict.group == "fits" else "" if verdict.group == "fits" else "dim"
        table.add_row(verdict.label, *figures_of(verdict), reason(verdict), style=style)
    console.print(table)
