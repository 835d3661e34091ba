"""What all figures share: size, fonts, colours, files, and the form in which the page holds them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onelip.bench.report.style import css_variable, method_style, slug

INK, AXIS, GRID, GROUND = "#1b2027", "#7d8590", "#dfe3e8", "#ffffff"
"""Colours of text, axes, grid and ground in files; the page replaces them by variables of its theme."""

WIDTH, HEIGHT = 5.2, 3.8
_PIXELS_PER_INCH = 96

_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.labelsize": 10,
    "axes.edgecolor": AXIS,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "figure.facecolor": GROUND,
    "savefig.facecolor": GROUND,
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and takes the theme's colour
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class ReportFigure:
    """A figure with the words that go with it; `alt` tells what it shows to somebody who cannot see it."""

    name: str
    section: str
    title: str
    caption: str
    alt: str
    figure: Figure

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", slug(self.name))

    @property
    def is_wide(self) -> bool:
        """Whether it takes the whole width of the page."""
        return self.figure.get_size_inches()[0] > 1.2 * WIDTH


@contextmanager
def figure_style() -> Iterator[None]:
    """Drawing and saving happen inside, so that the user's own matplotlib settings have no influence."""
    with mpl.rc_context():
        mpl.rcdefaults()
        update: Any = mpl.rcParams.update  # its stub wants literal names
        update(_STYLE)
        yield


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> Figure:
    """An empty figure that arranges its parts by itself."""
    return Figure(figsize=(width, height), layout="constrained")


def panels(count: int, height: float = 3.0, *, share: bool = True) -> tuple[Figure, list[Axes]]:
    """Up to two panels in a row, by default with one scale for y."""
    columns = min(count, 2)
    rows = -(-count // columns)
    figure = new_figure(WIDTH if columns == 1 else 1.6 * WIDTH, HEIGHT if count == 1 else height * rows)
    grid = figure.subplots(rows, columns, sharey=share, squeeze=False)
    axes = [axis for row in grid for axis in row]
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def save_figure(figure: ReportFigure, folder: Path) -> str:
    """Write SVG, PDF and PNG; return the SVG text. Files of the same evidence are the same byte for byte."""
    figure.figure.draw_without_rendering()
    figure.figure.set_layout_engine("none")  # the layout is final; each format would else work it out again
    with mpl.rc_context({"svg.hashsalt": figure.name}):  # also keeps ids of different figures apart in the page
        text = io.StringIO()
        figure.figure.savefig(text, format="svg", metadata={"Date": None, "Creator": "onelip"})
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{figure.name}.svg").write_text(text.getvalue(), encoding="utf-8")
        pdf_metadata = {"CreationDate": None, "Title": figure.title, "Creator": "onelip"}
        figure.figure.savefig(folder / f"{figure.name}.pdf", metadata=pdf_metadata)
        figure.figure.savefig(folder / f"{figure.name}.png", dpi=200)
    return text.getvalue()


def inline_svg(figure: ReportFigure, text: str, methods: Iterable[str]) -> str:
    """The SVG element for the page: sized in pixels, with a name for screen readers, in the theme's colours."""
    body = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    width, height = (round(side * _PIXELS_PER_INCH) for side in figure.figure.get_size_inches())
    attributes = f'width="{width}" height="{height}" role="img" aria-label="{_attribute(figure.alt)}"'
    body = re.sub(r'width="[\d.]+pt" height="([\d.]+)pt"', attributes, body, count=1)
    return _themed(_own_ids(body, figure.name), methods)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _own_ids(svg: str, name: str) -> str:
    """Names of groups such as axes_1 occur in every figure, but a page must have each id once."""
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)


def _themed(svg: str, methods: Iterable[str]) -> str:
    variables: Mapping[str, str] = {
        INK: "var(--ink)",
        AXIS: "var(--axis)",
        GRID: "var(--grid)",
        GROUND: "var(--ground)",
        **{method_style(key).light: f"var({css_variable(key)})" for key in methods},
    }
    return re.sub(r"#[0-9a-f]{6}\b", lambda match: variables.get(match[0], match[0]), svg)
