"""`onelip published`: the paper's tables, filtered, as a table, JSON or CSV."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from onelip.bench import published
from onelip.bench.report.report_table import scientific
from onelip.errors import InvalidInputError, did_you_mean

_FIRST_COLUMNS = ("dataset", "method", "model", "size")
_HEADINGS = {
    "kernel_size": "kernel",
    "learning_rate": "lr",
    "weight_decay": "wd",
    "train_hours": "hours",
    "accuracy": "acc %",
    "certified_accuracy_36": "cert %",
    "clean_accuracy": "acc %",
    "certified_36": "36",
    "certified_72": "72",
    "certified_108": "108",
    "certified_255": "255",
    "parameters_millions": "M params",
}


@dataclass(frozen=True)
class PublishedOptions:
    """Show the results printed in the paper.

    "1-Lipschitz Layers Compared: Memory, Speed, and Certifiable Robustness" (Prach, Brau, Buttazzo, Lampert; CVPR
    2024; arXiv 2311.16833). By default the 24 hour models with 3 x 3 kernels: accuracy and certified accuracy at
    radius 36/255.
    """

    table: tyro.conf.Positional[Literal["results", "ranking", "epochs", "sota", "curves"]] = "results"
    """results: one line per model. ranking: the paper's score of each method over the chosen results (first
    place counts three times, top 3 twice, top 10 once). epochs: epochs in two hours. sota: the literature. curves:
    epoch by epoch, 24 h runs on CIFAR-10 at XS, S and M."""
    dataset: tuple[str, ...] = ()
    """Only these data sets: cifar10, cifar100, tiny-imagenet (epochs: cifar, tiny-imagenet)."""
    method: tuple[str, ...] = ()
    """Only these methods, such as soc or lot."""
    size: tuple[str, ...] = ()
    """Only these model sizes: XS, S, M, L."""
    kernel_size: tuple[int, ...] = (3,)
    """Only these kernel sizes, 3 or 1 (results and ranking); 1 was tried on CIFAR-10 alone."""
    hours: tuple[int, ...] = (24,)
    """Only these training budgets in hours: 2, 10, 24 (results and ranking)."""
    json: bool = False
    """Print JSON."""
    csv: bool = False
    """Print CSV."""

    def run(self) -> int:
        """Print the chosen rows."""
        if self.json and self.csv:
            raise InvalidInputError("choose one of --json and --csv")
        rows = self._rows()
        if self.json:
            print(json.dumps(rows, indent=2))
        elif self.csv:
            print(pd.DataFrame(rows).to_csv(index=False), end="")
        else:
            _print_table([_shown_epoch(row) for row in rows] if self.table == "curves" else rows, self._title())
        return 0

    def _rows(self) -> list[dict[str, Any]]:
        if self.table == "epochs":
            return self._selected(published.published_epochs(), ("dataset", "method", "size"))
        if self.table == "sota":
            return self._selected(published.published_state_of_the_art(), ("method",))
        if self.table == "curves":
            return self._selected(published.published_curves(), ("method", "size"))
        filters = ("dataset", "method", "size", "kernel_size", "hours")
        if self.table == "results":
            return self._selected(published.published_results(), filters)
        if len(self.hours) != 1 or len(self.kernel_size) != 1:
            raise InvalidInputError("the ranking needs exactly one value of --hours and of --kernel-size")
        chosen = self._selected(published.published_results(), filters)
        scores = published.published_ranking(published.PublishedResult(**row) for row in chosen)
        return [dataclasses.asdict(score) | {"score": score.score} for score in scores]

    def _selected(self, rows: Sequence[Any], filters: tuple[str, ...]) -> list[dict[str, Any]]:
        """Rows that pass the filters; a value that occurs nowhere in the table is a mistake and said so."""
        chosen = list(rows)
        for option in filters:
            column = "train_hours" if option == "hours" else option
            known = {_fold(getattr(row, column)): getattr(row, column) for row in rows}
            wanted = getattr(self, option)
            if unknown := [str(value) for value in wanted if _fold(value) not in known]:
                name = f"--{option.replace('_', '-')}"
                names = [str(value) for value in known.values()]
                instead = f"choose from {', '.join(names)}{did_you_mean(unknown[0], names)}"
                raise InvalidInputError(f"{name} {', '.join(unknown)}: {instead}")
            if wanted:
                accepted = {_fold(value) for value in wanted}
                chosen = [row for row in chosen if _fold(getattr(row, column)) in accepted]
        if not chosen:
            raise InvalidInputError(f"the paper has no {self.table} for this choice")
        return [dataclasses.asdict(row) for row in chosen]

    def _title(self) -> str:
        choice = f"{self.hours[0]} h, kernel size {self.kernel_size[0]}" if self.table == "ranking" else ""
        return {
            "results": "Published results (certified accuracy at radius 36/255)",
            "ranking": f"Published results ranked by certified accuracy ({choice})",
            "epochs": "Published epochs in a budget of 2 h",
            "curves": "Published runs of 24 h on CIFAR-10, from the paper's logs",
            "sota": "CIFAR-10 in the literature (certified accuracy in %, radius in 1/255)",
        }[self.table]


def _shown_epoch(row: dict[str, Any]) -> dict[str, Any]:
    """What fits on a line: accuracies in per cent, images per second of training."""
    shares = {"acc %": "test_accuracy", "36": "certified_36", "72": "certified_72", "108": "certified_108"}
    return {
        "method": row["method"],
        "size": row["size"],
        "epoch": f"{row['epoch']} of {row['epochs']}",
        **{heading: 100 * row[name] for heading, name in shares.items()},
        "train loss": f"{row['train_loss']:.4f}",
        "images/s": round(row["train_images_per_second"]),
    }


def _fold(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _print_table(rows: list[dict[str, Any]], title: str) -> None:
    columns = [column for column in _FIRST_COLUMNS if column in rows[0]]
    columns += [column for column in rows[0] if column not in _FIRST_COLUMNS]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        numeric = any(isinstance(row[column], (int, float)) for row in rows)
        table.add_column(_HEADINGS.get(column, column), justify="right" if numeric else "left")
    best = _best_per_dataset(rows)
    for row in rows:
        table.add_row(*(_cell(column, row[column]) for column in columns), style="bold" if best(row) else "")
    console = Console()
    console.print(title, style="bold")
    console.print(table)
    console.print("Prach, Brau, Buttazzo, Lampert: 1-Lipschitz Layers Compared, CVPR 2024, arXiv 2311.16833")


def _best_per_dataset(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], bool]:
    """Tells whether a row of the results is the best of its data set, kernel size and budget."""
    value = "certified_accuracy_36"
    if value not in rows[0]:
        return lambda row: False
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        group = (row["dataset"], row["kernel_size"], row["train_hours"])
        best[group] = max(best.get(group, 0.0), row[value])
    return lambda row: row[value] == best[(row["dataset"], row["kernel_size"], row["train_hours"])]


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "-"
    if column in ("learning_rate", "weight_decay"):
        return scientific(value)
    if column == "parameters_millions":
        return f"{value:g}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


COMMAND = PublishedOptions
