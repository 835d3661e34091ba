"""Draws docs/images/tutorial.png by the code of docs/tutorial.md, section 4: run it from any folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch

DOCS = Path(__file__).parents[1]


def names_of_section(title: str) -> dict[str, Any]:
    """What the Python blocks of one section define, after those of the imports of the first."""
    text = (DOCS / "tutorial.md").read_text()
    section = text.split(f"## {title}")[1].split("\n## ")[0]
    names: dict[str, Any] = {}
    exec("import torch\nfrom torch import nn\nimport onelip\ntorch.manual_seed(0)", names)
    for block in re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[:2]:
        exec(block, names)
    return names


def main() -> None:
    """Two panels: the critic's values over the plane, the regression over the line."""
    names = names_of_section("4. A critic, a regression and a signal")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    grid = torch.stack(torch.meshgrid(torch.linspace(-4, 8, 90), torch.linspace(-4, 9, 90), indexing="xy"), -1)
    with torch.no_grad():
        heights = names["critic"](grid.reshape(-1, 2)).reshape(90, 90)
        curve = names["curve"](names["t"])
    drawn = left.contourf(grid[..., 0], grid[..., 1], heights, levels=14, cmap="Blues")
    figure.colorbar(drawn, ax=left, label="critic")
    points = names["points"]
    left.scatter(*points[256:].T, s=5, color="#d95f02", label="cloud")
    left.scatter(*points[:256].T, s=5, color="#1b9e77", label="moved by (3, 4)")
    left.set(xlim=(-4, 8), ylim=(-4, 9))
    left.legend(loc="lower right", fontsize=8, markerscale=2)
    left.set_title("The critic is 5 higher on the cloud that was moved by 5", fontsize=10)
    right.scatter(names["t"], names["steps"], s=6, color="0.6", label="data")
    right.plot(names["t"], curve, color="#1f4e8c", label="constant at most 2")
    right.legend(loc="upper left", fontsize=8)
    right.set_title("The regression cannot jump: its slope is at most 2", fontsize=10)
    right.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "images" / "tutorial.png", dpi=150)


if __name__ == "__main__":
    main()
