"""Draw docs/images/costs.png from costs.json, which has the ratios of the first table of docs/speed.md.

python docs/images/make_costs.py
"""

from __future__ import annotations

import json
from pathlib import Path

from onelip.bench.report.figures.cost_lines import save_ratios

HERE = Path(__file__).parent


def main() -> None:
    """Write the figure beside this file."""
    costs = json.loads((HERE / "costs.json").read_text())
    save_ratios(costs["ratios"], costs["title"], HERE / "costs.png")


if __name__ == "__main__":
    main()
