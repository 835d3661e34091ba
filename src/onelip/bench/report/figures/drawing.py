"""What all figures share: size, fonts, colours, and how they become files.

Values appear when one points at them: an artist gets its words by `tell`, and they become SVG titles.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onelip.bench.report.method_style import MethodStyle, slug

INK, AXIS, GRID, GROUND = "#1b2027", "#7d8590", "#dfe3e8", "#ffffff"
"""Colours of text, axes, grid and ground in files; the page replaces them by variables of its theme."""

WIDTH, HEIGHT = 5.2, 3.8
SVG = "{http://www.w3.org/2000/svg}"
_TELLS = "tells:"

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
    "errorbar.capsize": 2,
    "text.parse_math": False,  # a name with dollar signs is a name
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
    with mpl.rc_context(), warnings.catch_warnings():
        # The font lacks some letters, and a very long name leaves no room for its axes: nobody can mend either.
        warnings.filterwarnings("ignore", "Glyph .* missing from|constrained_layout not applied")
        mpl.rcdefaults()
        update: Any = mpl.rcParams.update  # its stub wants literal names
        update(_STYLE)
        yield


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> Figure:
    """An empty figure that arranges its parts by itself."""
    return Figure(figsize=(width, height), layout="constrained")


def panels(count: int, height: float = 3.7, *, share: bool = True) -> tuple[Figure, list[Axes]]:
    """Up to two panels in a row, by default with one scale for y."""
    columns = min(count, 2)
    rows = -(-count // columns)
    figure = new_figure(WIDTH if columns == 1 else 1.6 * WIDTH, HEIGHT if count == 1 else height * rows)
    grid = figure.subplots(rows, columns, sharey=share, squeeze=False)
    axes = [axis for row in grid for axis in row]
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def line_look(style: MethodStyle, *, markers: bool = True, **changes: Any) -> dict[str, Any]:
    """Colour, dashes and marker of a method's line."""
    dashes = (0, style.dashes) if style.dashes else "-"
    look = {"color": style.light, "linestyle": dashes, "markeredgewidth": 0}
    return look | ({"marker": style.marker, "markersize": style.marker_size} if markers else {}) | changes


def horizontal_bars(
    bars: list[tuple[str, str, float, tuple[float, float] | None, str]], label: str, most: float | None = None
) -> tuple[Figure, Axes]:
    """Bars of (name, colour, value, 95 % interval, words) from top to bottom, from 0, with the words behind each."""
    figure = new_figure(WIDTH, 1.0 + 0.27 * len(bars))
    axes = figure.subplots()
    ends = [max(value, interval[1]) if interval else value for _, _, value, interval, _ in bars]
    for place, (name, colour, value, interval, words) in enumerate(bars):
        tell(axes.barh(place, value, color=colour, height=0.7)[0], f"{name}: {words}")
        if interval is not None:
            low, high = max(value - interval[0], 0.0), max(interval[1] - value, 0.0)
            axes.errorbar(value, place, xerr=[[low], [high]], ecolor=INK, elinewidth=1, fmt="none")
        axes.annotate(words, (ends[place], place), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max([*ends, most or 0.0, 1e-9]))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(label)
    return figure, axes


def tell(artist: Artist, words: str) -> None:
    """Show these words when somebody points at the artist."""
    artist.set_gid(_TELLS + words)


@dataclass(frozen=True)
class FigureFiles:
    """A figure in its three formats."""

    svg: bytes
    pdf: bytes
    png: bytes


def render(figure: ReportFigure) -> FigureFiles:
    """The files of a figure; those of the same study are the same byte for byte."""
    figure.figure.draw_without_rendering()
    figure.figure.set_layout_engine("none")  # the layout is final; each format would else work it out again
    svg, pdf, png = io.BytesIO(), io.BytesIO(), io.BytesIO()
    metadata = {"CreationDate": None, "Title": figure.title, "Creator": "onelip"}
    with mpl.rc_context({"svg.hashsalt": figure.name}):  # keeps ids of different figures apart in the page
        figure.figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "onelip"})
        figure.figure.savefig(pdf, format="pdf", metadata=metadata)
        figure.figure.savefig(png, format="png", dpi=160)
    return FigureFiles(_with_titles(svg.getvalue(), figure), pdf.getvalue(), png.getvalue())


def _with_titles(svg: bytes, figure: ReportFigure) -> bytes:
    """The SVG with a name for screen readers, and what artists tell as titles of their groups."""
    ElementTree.register_namespace("", SVG[1:-1])
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(svg)
    root.attrib |= {"role": "img", "aria-label": figure.alt}
    for metadata in root.findall(f"{SVG}metadata"):
        root.remove(metadata)
    for element in root.iter():
        words = element.get("id", "")
        if words.startswith(_TELLS):
            title = ElementTree.Element(f"{SVG}title")
            title.text = words.removeprefix(_TELLS)
            element.insert(0, title)
            del element.attrib["id"]
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
