"""Print certified accuracy on CIFAR-10 against training time.

```
onelip leaderboard runs --out leaderboard.md
```

Rows are finished trainings that were evaluated on all 10,000 test images, and the networks that come with onelip.
Core-seconds are what the processes used, evaluation not counted. Results of the literature stand below: trained on GPUs
for hours to days, with estimates of the constant in some cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from onelip import pretrained
from onelip.atomic_files import write_atomically
from onelip.bench.cli.options import FILE
from onelip.bench.paper.published import published_later, published_state_of_the_art
from onelip.bench.records import RunRecord, RunStatus, load_records, view
from onelip.bench.records.views import TrainResult
from onelip.bench.report.report_table import Column, ReportTable, Row, percent, words
from onelip.bench.report.shares import mean_share
from onelip.bench.report.table_files import to_markdown
from onelip.protocol import DATA_SETS, RADIUS_NUMERATORS


@dataclass(frozen=True, kw_only=True)
class Command:
    runs: tuple[Path, ...] = field(default=(), kw_only=False)
    """Folders of runs; without any, the networks that come with onelip."""
    out: Annotated[Path | None, FILE] = None
    """Where to write the page, in Markdown; by default it is printed."""

    def run(self) -> int:
        records = [run.record for folder in self.runs for run in load_records(folder).runs]
        page = leaderboard_page([*rows_of_shipped_networks(), *rows_of_runs(records)])
        if self.out is None:
            print(page)
        else:
            write_atomically(self.out, page.encode())
            print(self.out)
        return 0


_TEST_IMAGES = DATA_SETS["cifar10"].test_size
_RADII = tuple(f"{radius}/255" for radius in RADIUS_NUMERATORS)


def rows_of_runs(records: Iterable[RunRecord]) -> list[Row]:
    """Trainings on CIFAR-10 that ended, were timed and were certified on all test images."""
    found = []
    for record in records:
        is_trained = record.kind == "train" and record.status is RunStatus.FINISHED
        if not is_trained or record.network.dataset != "cifar10":
            continue
        result = view(record).result
        if isinstance(result, TrainResult) and result.test_images == _TEST_IMAGES and result.core_seconds is not None:
            label = f"{record.network.label}, recipe {record.config.get('recipe')}, seed {record.seed}"
            figures = (result.test_accuracy, result.certified, result.test_lipschitz_bound)
            found.append(_row(result.core_seconds, label, *figures))
    return found


def rows_of_shipped_networks() -> list[Row]:
    """The networks that come with onelip."""
    found = []
    for card in map(pretrained.card, pretrained.names()):
        if card["data"] == "cifar10" and card["images"] == _TEST_IMAGES:
            certified = {radius: card["certified_accuracy"][str(radius)] for radius in RADIUS_NUMERATORS}
            found.append(_row(card["core_seconds"], card["name"], card["accuracy"], certified, card["lipschitz_bound"]))
    return found


def _row(seconds: float, label: str, accuracy: float | None, certified: Mapping[int, float], bound: Any) -> Row:
    first, *rest = (certified.get(radius, math.nan) for radius in RADIUS_NUMERATORS)
    return (seconds, label, accuracy, mean_share([first], _TEST_IMAGES), *rest, bound)


def leaderboard_page(rows: Iterable[Row]) -> str:
    """The page in Markdown, quickest first, of equal times the best; of several with one label the last one counts."""
    unique = {row[1]: row for row in rows}
    own = ReportTable(
        "leaderboard",
        "",
        "Certified accuracy and processor time of training",
        "CIFAR-10 test set: 10,000 images, in %, with the standard error of the draw of images.",
        (
            Column("core-seconds", show="{:,.0f}".format),
            words("network"),
            Column("accuracy", show=percent),
            Column(_RADII[0]),
            *(Column(radius, show=percent) for radius in _RADII[1:]),
            Column("proven constant", show="{:.6f}".format),
        ),
        sorted(unique.values(), key=lambda row: (round(row[0]), -row[3].mean)),
    )
    plain: dict[str, Any] = {"show": "{:.1f}".format}
    literature = ReportTable(
        "literature",
        "",
        "Results of the literature",
        "Trained on GPUs for hours to days.",
        (
            Column("million parameters", show="{:g}".format),
            words("network"),
            *(Column(title, **plain) for title in ("accuracy", *_RADII)),
        ),
        [
            (m.parameters_millions, m.model, m.clean_accuracy, m.certified_36, m.certified_72, m.certified_108,
             m.certified_255)
            for m in (*published_state_of_the_art(), *published_later())
        ],
    )  # fmt: skip
    return f"# Leaderboard\n\n{to_markdown(own)}\n{to_markdown(literature)}\nWritten by `onelip leaderboard`.\n"
