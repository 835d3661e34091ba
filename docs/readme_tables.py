"""Write the two tables of README.md that hold figures, from the cards of trained networks and from recorded timings.

python docs/readme_tables.py
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from onelip import pretrained
from onelip.bench.paper.published import published_results

ROOT = Path(__file__).parents[1]
PEERS = (("aol", "AOL"), ("bcop", "BCOP"), ("aoc", "AOC"), ("cayley", "Cayley"), ("lot", "LOT"), ("soc", "SOC"))


def results() -> str:
    """Certified accuracy of the networks that come with onelip, and what the paper has."""
    cards = sorted((pretrained.card(name) for name in pretrained.names()), key=lambda card: card["core_seconds"])
    lines = ["| core-minutes | accuracy | certified | commit | load it |", "|---:|---:|---:|---|---|"]
    for card in cards:
        share = card["certified_accuracy"]["36"]
        error = math.sqrt(share * (1 - share) / card["images"])
        minutes, commit = round(card["core_seconds"] / 60), card["commit"].split()[-1][:10]
        figures = f"{minutes} | {100 * card['accuracy']:.1f} % | {100 * share:.1f} ± {100 * error:.1f} %"
        lines.append(f'| {figures} | {commit} | `onelip.load_model("{card["name"]}")` |')
    best: dict[str, float] = {}
    for row in published_results():
        if (row.dataset, row.kernel_size, row.train_hours) == ("cifar10", 3, 24):
            best[row.method] = max(row.certified_accuracy_36, best.get(row.method, 0.0))
    low, high = min(best.values()), max(best.values())
    words = f"With 24 hours on an A100, the paper certifies {low:.0f} to {high:.0f} % with each method's best size"
    return "\n".join([*lines, "", f"{words} (`onelip published results`)."])


def peers() -> str:
    """Training step and inference of ours and of other packages, and the commits at which they were timed."""
    (costs, ours), (others, theirs) = _recorded("costs"), _recorded("peers")
    packages = ("lipnn", "orthogonium")
    lines = ["| method | onelip | the paper's code | orthogonium |", "|---|---:|---:|---:|"]
    for key, title in PEERS:
        cells = [_pair(costs[title]["training step"], costs[title]["inference"])]
        for package in packages:
            row = others.get(f"{package}:{key}")
            cells.append("" if row is None else _pair(row["training step"][0], row["inference"][0]))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Timed at {ours} (onelip) and {theirs} (the others)."])


def _pair(training: float, inference: float) -> str:
    return ", ".join(f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}" for ratio in (training, inference))


def _recorded(name: str) -> tuple[dict[str, Any], str]:
    """The ratios of a file, and the commits that it names."""
    record = json.loads((ROOT / "docs" / "images" / f"{name}.json").read_text())
    (commits,) = re.findall(r"commits? (?:before )?[0-9a-f]{7}", record["runs"])
    return record["ratios"], commits


def with_tables(readme: str) -> str:
    """README with the tables between their marks."""
    for name, table in (("results", results()), ("peers", peers())):
        start, end = f"<!-- {name}: python docs/readme_tables.py -->", f"<!-- end of {name} -->"
        readme = re.sub(f"{start}\n.*?{end}", f"{start}\n\n{table}\n\n{end}", readme, flags=re.DOTALL)
    return readme


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(with_tables(path.read_text()))
