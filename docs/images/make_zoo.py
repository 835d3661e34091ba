"""Draw zoo.png: all methods by year and by the way in which they become 1-Lipschitz."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.layout_engine import ConstrainedLayoutEngine

from onelip.layers import list_methods

FAMILIES = {
    "weights divided by a bound": ("aol", "spectral", "cholesky"),
    "orthogonal matrices": ("bjorck", "oni", "stiefel"),
    "orthogonal kernels": ("bcop", "aoc"),
    "orthogonal per frequency": ("cayley", "lot", "eco", "bro"),
    "exponential of a skew kernel": ("soc",),
    "x minus a monotone part": ("cpl", "sll"),
    "two halves of one matrix": ("sandwich",),
}
FORMULAS = {
    "weights divided by a bound": "$P\\,/\\,s$, $P D$ or $L^{-1} P$, of norm at most 1",
    "orthogonal matrices": "$(V V^T)^{-1/2}\\,V$, or stored orthonormal",
    "orthogonal kernels": "$H$ times $[R,\\ I - R]$ with projections $R$",
    "orthogonal per frequency": "one unitary matrix for each frequency",
    "exponential of a skew kernel": "$e^{L}$ with $L^T = -L$",
    "x minus a monotone part": "$x - 2\\,W^T\\mathrm{relu}(W x + b)\\,/\\,\\Vert W\\Vert^2$",
    "two halves of one matrix": "$\\sqrt{2}\\,A^T\\mathrm{relu}(\\sqrt{2}\\,B x + b)$",
}
COLOURS = {"orthogonal": "#0a2f86", "bounded": "#d9480f"}
MEANINGS = {"orthogonal": "orthogonal: keeps distances", "bounded": "bounded: never increases them"}


def main() -> None:
    """One row per family, one label per method."""
    methods = [method for method in list_methods() if method.guarantee != "none"]
    rows = dict(FAMILIES)
    rest = tuple(m.key for m in methods if not any(m.key in keys for keys in FAMILIES.values()))
    if rest:
        rows["other"] = rest
    years = sorted({method.year for method in methods})
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    figure, axis = plt.subplots(figsize=(11, 0.66 * len(rows) + 0.7), layout=layout)
    for row, keys in enumerate(rows.values()):
        axis.axhspan(row - 0.5, row + 0.5, color="0.96" if row % 2 else "1.0", zorder=0)
        for year in years:
            here = [method for method in methods if method.key in keys and method.year == year]
            for place, method in enumerate(here):
                shift = (place - (len(here) - 1) / 2) * 0.42
                box = {"boxstyle": "round,pad=0.35", "facecolor": COLOURS[method.guarantee], "edgecolor": "none"}
                text = {"ha": "center", "va": "center", "color": "white", "fontsize": 10, "bbox": box}
                axis.text(year, row + shift, method.title.replace(" norm", "\nnorm").replace("jo", "jö"), **text)
    axis.set_yticks(range(len(rows)), [""] * len(rows))
    for row, name in enumerate(rows):
        place = {"transform": axis.get_yaxis_transform(), "ha": "right"}
        axis.text(-0.01, row - 0.03, name, fontsize=10.5, va="bottom", **place)
        axis.text(-0.01, row + 0.06, FORMULAS.get(name, ""), fontsize=9.5, va="top", color="0.35", **place)
    axis.set_xticks(years, [str(year) for year in years], fontsize=10)
    axis.set_xlim(years[0] - 0.6, years[-1] + 0.6)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    for guarantee, colour in COLOURS.items():
        axis.scatter([], [], marker="s", s=80, color=colour, label=MEANINGS[guarantee])
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=10.5, borderpad=0)
    figure.savefig(Path(__file__).with_name("zoo.png"), dpi=130)


if __name__ == "__main__":
    main()
