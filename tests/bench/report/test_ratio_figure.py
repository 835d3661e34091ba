"""The figure of ratios: a bar for each, cheapest first, in the format of the file's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from onelip.bench.report.figures.cost_lines import draw_ratios, save_ratios
from onelip.errors import InvalidInputError

RATIOS = {
    "lot": {"training step": 2.5, "inference": 1.2, "training memory": 1.05},
    "aol": {"training step": 0.9, "inference": 1.0, "training memory": 0.78},
    "orthogonium:aoc": {"training step": 1.6, "inference": 1.3, "training memory": 0.9},
}


def test_a_bar_for_each_ratio_cheapest_first() -> None:
    axes = draw_ratios(RATIOS, "a title").axes[0]
    heights = sorted(bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle))
    assert heights == pytest.approx(sorted(value for row in RATIOS.values() for value in row.values()))
    labels = axes.get_xticklabels()
    assert [label.get_text() for label in labels] == ["aol", "orthogonium:aoc", "lot"]
    assert to_rgb(labels[0].get_color()) == to_rgb(labels[2].get_color()) != to_rgb(labels[1].get_color())
    assert {"0.90", "2.50", "1.05"} <= {text.get_text() for text in axes.texts}


def test_a_figure_of_nothing_is_empty() -> None:
    assert not draw_ratios({}, "").axes[0].patches


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_name_says_the_format(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"costs.{suffix}"
    save_ratios(RATIOS, "a title", path)
    assert path.read_bytes().startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    with pytest.raises(InvalidInputError, match=r"\.svg"):
        save_ratios(RATIOS, "", tmp_path / "costs.doc")
