"""Show the results printed in the paper.

```
onelip published
onelip published --dataset cifar100 --size L --hours 2 10 24
onelip published ranking --dataset cifar10
```

"1-Lipschitz Layers Compared: Memory, Speed, and Certifiable Robustness" (Prach, Brau, Buttazzo, Lampert; CVPR 2024;
arXiv 2311.16833). By default the 24 hour models with 3 x 3 kernels: accuracy and certified accuracy at radius 36/255.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from onelip.bench.cli.options import Json
from onelip.bench.paper import published
from onelip.bench.records import dump_json
from onelip.bench.report.report_table import NOTHING, scientific
from onelip.bench.report.table_files import csv_text
from onelip.bench.terminal import Terminal, plain_table
from onelip.errors import InvalidInputError, did_you_mean

_ALL = ("dataset", "method", "size", "kernel_size", "hours")
_TABLES = {
    "results": (published.published_results, _ALL, "Published results (certified accuracy at radius 36/255)"),
    "ranking": (published.published_results, _ALL, "Published results ranked by certified accuracy"),
    "epochs": (published.published_epochs, ("dataset", "method", "size"), "Published epochs in a budget of 2 h"),
    "sota": (
        published.published_state_of_the_art,
        ("method",),
        "CIFAR-10 in the literature (certified accuracy in %, radius in 1/255)",
    ),
    "curves": (
        published.published_curves,
        ("method", "size"),
        "Published runs of 24 h on CIFAR-10, from the paper's logs",
    ),
}
"""Where the rows of a table are from, the options that choose among them, and its title."""
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


@dataclass(frozen=True, kw_only=True)
class Command(Json):
    table: Literal["results", "ranking", "epochs", "sota", "curves"] = field(default="results", kw_only=False)
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
    csv: bool = False
    """Print CSV."""

    def run(self) -> int:
        if self.json and self.csv:
            raise InvalidInputError("choose one of --json and --csv")
        rows = self._rows()
        if self.json:
            print(dump_json(rows))
        elif self.csv:
            print(csv_text(rows[0], (row.values() for row in rows)), end="")
        else:
            self._print_table([_shown_epoch(row) for row in rows] if self.table == "curves" else rows)
        return 0

    def _rows(self) -> list[dict[str, Any]]:
        if self.table == "ranking" and (len(self.hours), len(self.kernel_size)) != (1, 1):
            raise InvalidInputError("the ranking needs exactly one value of --hours and of --kernel-size")
        read, filters, _ = _TABLES[self.table]
        chosen = every = read()
        for option in filters:
            column = "train_hours" if option == "hours" else option
            names = list(dict.fromkeys(str(getattr(row, column)) for row in every))
            wanted = {str(value).lower(): str(value) for value in getattr(self, option)}
            if unknown := [word for folded, word in wanted.items() if folded not in map(str.lower, names)]:
                instead = f"choose from {', '.join(names)}{did_you_mean(unknown[0], names)}"
                raise InvalidInputError(f"--{option.replace('_', '-')} {', '.join(unknown)}: {instead}")
            chosen = [row for row in chosen if not wanted or str(getattr(row, column)).lower() in wanted]
        if not chosen:
            raise InvalidInputError(f"the paper has no {self.table} for this choice")
        if self.table == "ranking":
            return [asdict(score) | {"score": score.score} for score in published.published_ranking(chosen)]
        return [asdict(row) for row in chosen]

    def _print_table(self, rows: list[dict[str, Any]]) -> None:
        title = _TABLES[self.table][2]
        if self.table == "ranking":
            title += f" ({self.hours[0]} h, kernel size {self.kernel_size[0]})"
        names = sorted(rows[0], key=lambda name: _FIRST_COLUMNS.index(name) if name in _FIRST_COLUMNS else 9)
        words = [name for name in names if isinstance(rows[0][name], str)]
        numbers = [name for name in names if name not in words]
        table = plain_table(*([_HEADINGS.get(name, name) for name in part] for part in (words, numbers)), padding=0)
        best: dict[tuple[Any, ...], float] = defaultdict(float)
        for row in rows:
            best[_setting(row)] = max(best[_setting(row)], row.get("certified_accuracy_36", 0.0))
        for row in rows:
            is_best = row.get("certified_accuracy_36") == best[_setting(row)]
            table.add_row(*(_cell(name, row[name]) for name in (*words, *numbers)), style="bold" if is_best else "")
        console = Terminal()
        console.print(title, style="bold")
        console.print(table)
        console.print("Prach, Brau, Buttazzo, Lampert: 1-Lipschitz Layers Compared, CVPR 2024, arXiv 2311.16833")


def _setting(row: dict[str, Any]) -> tuple[Any, ...]:
    """The best result is that of its data set, kernel size and budget."""
    return tuple(row.get(name) for name in ("dataset", "kernel_size", "train_hours"))


def _shown_epoch(row: dict[str, Any]) -> dict[str, Any]:
    """What fits on a line: accuracies in per cent, images per second of training."""
    shares = {"acc %": "test_accuracy", "36": "certified_36", "72": "certified_72", "108": "certified_108"}
    return {
        "method": row["method"],
        "size": row["size"],
        "epoch": f"{row['epoch']} of {row['epochs']}",
        **{heading: 100 * row[name] for heading, name in shares.items()},
        "train loss": row["train_loss"],
        "images/s": round(row["train_images_per_second"]),
    }


def _cell(column: str, value: Any) -> str:
    if value is None:
        return NOTHING
    if column in ("learning_rate", "weight_decay"):
        return scientific(value)
    if column == "parameters_millions":
        return f"{value:g}"
    if column == "train loss":
        return f"{value:.4f}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
