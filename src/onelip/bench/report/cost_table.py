"""Predicted memory and counted operations of the paper's networks, shipped with the package.

They let the advisor say what fits a card before anything was measured. The file is made from records, never by hand:

    onelip measure memory --predict --sizes XS S M L --datasets cifar10 tiny-imagenet --runs-dir /tmp/predicted
    onelip measure macs --sizes XS S M L --datasets cifar10 tiny-imagenet --runs-dir /tmp/predicted
    python -m onelip.bench.report.cost_table /tmp/predicted
"""

from __future__ import annotations

import csv
import functools
import sys
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path

from onelip.bench.report.rows import Evidence
from onelip.bench.report.style import REFERENCE
from onelip.bench.report.summaries import newest
from onelip.errors import InvalidInputError
from onelip.protocol import DATA_SETS

_FILE = "costs.csv"


@dataclass(frozen=True)
class PredictedCost:
    """One network at batch 256: peak bytes of training, operations of cached inference relative to plain."""

    method: str
    size: str
    image_size: int
    training_bytes: int
    inference_operations_ratio: float


def image_size(dataset: str) -> int | None:
    """Side of the images of a known data set: memory and operations depend on it, not on the number of classes."""
    return DATA_SETS[dataset].image_size if dataset in DATA_SETS else None


@functools.cache
def predicted_costs() -> dict[tuple[str, str, int], PredictedCost]:
    """(method, size, image size) to the shipped predictions."""
    text = resources.files("onelip.bench.report").joinpath(_FILE).read_text(encoding="utf-8")
    rows = [
        PredictedCost(
            line["method"],
            line["size"],
            int(line["image_size"]),
            int(line["training_bytes"]),
            float(line["inference_operations_ratio"]),
        )
        for line in csv.DictReader(text.splitlines())
    ]
    return {(row.method, row.size, row.image_size): row for row in rows}


def cost_rows(evidence: Evidence) -> list[PredictedCost]:
    """The table from records of predicted memory and counted operations."""
    macs = {row.key: row for row in newest(evidence.macs)}
    plain = {(row.key.size, row.key.dataset): row.inference for row in macs.values() if row.key.method == REFERENCE}
    rows = []
    for memory in newest(row for row in evidence.memory if row.source == "predicted"):
        key = memory.key
        side = image_size(key.dataset)
        if side is None or key not in macs or (key.size, key.dataset) not in plain:
            raise InvalidInputError(f"{key.method} {key.size} on {key.dataset}: operations were not counted")
        ratio = round(macs[key].inference / plain[key.size, key.dataset], 4)
        rows.append(PredictedCost(key.method, key.size, side, memory.training, ratio))
    return rows


def write_cost_table(evidence: Evidence, path: Path) -> int:
    """Write the CSV file and return its number of rows."""
    rows = cost_rows(evidence)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(PredictedCost)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    return len(rows)


if __name__ == "__main__":
    from onelip.bench.report.evidence import read_evidence

    target = Path(__file__).with_name(_FILE)
    print(write_cost_table(read_evidence(Path(sys.argv[1])), target), "rows in", target)
