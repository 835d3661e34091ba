"""`onelip advise`: which method and size to use for one's memory, training time and latency, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onelip.bench.cli import CommandInfo
from onelip.errors import InvalidInputError

if TYPE_CHECKING:
    from onelip.bench.report.advice import Candidate, Limits, Verdict


@dataclass(frozen=True)
class AdviseOptions:
    """Rank methods and sizes for your limits, and say why.

    Example: onelip advise --gpu-memory 24GB --train-hours 10 --max-latency 2x --dataset cifar10

    Accuracies are those of a study's records where it has results for the data set, else the paper's. A limit that
    is not given does not count.
    """

    dataset: str = "cifar10"
    """cifar10, cifar100 or tiny-imagenet, or a data set of the study."""
    gpu_memory: str | None = None
    """Memory of the card, such as 24GB; training must fit with 1 GB to spare."""
    train_hours: float | None = None
    """Hours of training that you have."""
    max_latency: str | None = None
    """Inference time relative to the same network with plain convolutions, such as 2x."""
    study: Path | None = None
    """Folder of runs whose results and measurements are used."""
    json: bool = False
    """Print JSON: every candidate in order, with its figures and their sources."""

    def run(self) -> int:
        """Rank and print; 1 if nothing is known to fit."""
        from onelip.bench.report.advice import rank

        candidates = self._candidates()
        verdicts = rank(candidates, self._limits())
        if self.json:
            _print_json(verdicts)
        else:
            _print_advice(verdicts, self._limits())
        return 0 if verdicts[0].group == "fits" else 1

    def _limits(self) -> Limits:
        from onelip.bench.report.advice import Limits, parse_memory, parse_ratio

        if self.train_hours is not None and not self.train_hours > 0:
            raise InvalidInputError(f"--train-hours must be above 0, not {self.train_hours:g}")
        return Limits(
            None if self.gpu_memory is None else parse_memory(self.gpu_memory),
            self.train_hours,
            None if self.max_latency is None else parse_ratio(self.max_latency),
        )

    def _candidates(self) -> list[Candidate]:
        from onelip.bench.report.candidates import measured_candidates, published_candidates
        from onelip.bench.report.evidence import read_evidence

        evidence = None if self.study is None else read_evidence(self.study)
        measured = [] if evidence is None else measured_candidates(evidence)
        for candidates in (measured, published_candidates(evidence)):
            found = [candidate for candidate in candidates if candidate.dataset == self.dataset]
            if found:
                return found
        known = {candidate.dataset for candidate in (*measured, *published_candidates())}
        raise InvalidInputError(f"there are no results for {self.dataset!r}, only for {', '.join(sorted(known))}")


def _print_json(verdicts: Sequence[Verdict]) -> None:
    from dataclasses import asdict

    from onelip.bench.runs import dump_json

    print(dump_json([asdict(verdict) for verdict in verdicts]))


def _print_advice(verdicts: Sequence[Verdict], limits: Limits) -> None:
    from rich.console import Console

    from onelip.bench.report.advice_words import explain

    console = Console(markup=False, highlight=False)
    for paragraph in explain(verdicts, limits):
        console.print(paragraph)
        console.print()
    console.print(_table(verdicts))


def _table(verdicts: Sequence[Verdict]) -> Any:
    from rich import box
    from rich.table import Table

    from onelip.bench.report.advice_words import figures_of, reason
    from onelip.bench.report.style import method_style

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("model", no_wrap=True)
    for title in ("cert %", "acc %", "time", "GiB", "latency"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict")
    for index, verdict in enumerate(verdicts):
        name = f"{method_style(verdict.candidate.method).label} {verdict.candidate.size}"
        style = "bold" if index == 0 and verdict.group == "fits" else "" if verdict.group == "fits" else "dim"
        table.add_row(name, *figures_of(verdict), reason(verdict), style=style)
    return table


COMMAND = CommandInfo("advise", AdviseOptions)
