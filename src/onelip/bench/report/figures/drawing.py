"""What all figures share: size, fonts, colours, marks, bars and ticks, and how they become files.

Values appear when one points at them: an artist gets its words by `tell`, and they become SVG titles.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from onelip.bench.report.method_style import MethodStyle, slug
from onelip.bench.report.report_table import three_digits

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
        """Whether its canvas needs more than one column of the page."""
        return self.figure.get_size_inches()[0] > WIDTH


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


Interval = tuple[float, float] | None


def draw_mark(axes: Axes, x: float, y: float, style: MethodStyle, words: str, interval: Interval, **look: Any) -> None:
    """A method's marker that tells these words, with the 95 % interval of y where there is one."""
    tell(axes.plot(x, y, **line_look(style, **look))[0], words)
    if interval is not None:
        axes.errorbar(x, y, yerr=_sides(y, interval), ecolor=style.light, elinewidth=1, fmt="none")


def _sides(value: float, interval: tuple[float, float]) -> list[list[float]]:
    return [[max(value - interval[0], 0.0)], [max(interval[1] - value, 0.0)]]


@dataclass(frozen=True)
class Bar:
    """A bar with its name to the left and words behind its end; `mark` is what the paper printed."""

    name: str
    colour: str
    value: float
    interval: Interval
    words: str
    mark: float | None = None

    @property
    def end(self) -> float:
        """Where bar, interval and mark end."""
        return max(self.value, self.interval[1] if self.interval else 0.0, self.mark or 0.0)


def horizontal_bars(bars: Sequence[Bar], label: str) -> Figure:
    """Bars from top to bottom, from 0 to all their ends."""
    figure = new_figure(WIDTH, 1.0 + 0.27 * len(bars))
    axes = figure.subplots()
    for place, bar in enumerate(bars):
        tell(axes.barh(place, bar.value, color=bar.colour, height=0.7)[0], f"{bar.name}: {bar.words}")
        if bar.interval is not None:
            axes.errorbar(bar.value, place, xerr=_sides(bar.value, bar.interval), ecolor=INK, elinewidth=1, fmt="none")
        if bar.mark is not None:
            look: dict[str, Any] = {"marker": "D", "color": "none", "markeredgecolor": INK}
            (mark,) = axes.plot(bar.mark, place, **look, linestyle="", markersize=6, label="published in the paper")
            tell(mark, f"{bar.name} in the paper: {bar.mark:.1f}")
        words = bar.words if bar.mark is None else f"{bar.words}, paper {bar.mark:.1f}"
        behind = (8 if bar.end == bar.mark else 4, 0)
        axes.annotate(words, (bar.end, place), behind, textcoords="offset points", va="center", fontsize=8.5)
    if marks := [line for line in axes.get_lines() if line.get_marker() == "D"]:
        axes.legend(handles=marks[:1], loc="lower right", bbox_to_anchor=(1, 1), fontsize=8.5)
    axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max([*(bar.end for bar in bars), 1e-9]))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(label)
    return figure


_LOG_STEPS = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8),
)
"""Round numbers of a decade, ever denser."""


def plain_log_ticks(axis: Axis) -> None:
    """Labels such as 0.5, 2, 50 on a logarithmic axis: the fewest round numbers of which four are in sight."""
    low, high = axis.get_view_interval()
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) if low > 0 else range(0)
    ticks: list[float] = []
    for steps in _LOG_STEPS:
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) >= 4:
            break
    if len(ticks) < 3:  # a narrow range, on which a logarithmic axis looks like a linear one
        ticks = [tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: three_digits(value)))
    axis.set_minor_locator(NullLocator())


def tell(artist: Artist, words: str) -> None:
    """Show these words when somebody points at the artist."""
    artist.set_gid(_TELLS + words)


FigureFiles = dict[str, bytes]
"""A figure as svg, pdf and png."""


def render(figure: ReportFigure) -> FigureFiles:
    """The files of a figure; those of the same study are the same byte for byte."""
    figure.figure.draw_without_rendering()
    figure.figure.set_layout_engine("none")  # the layout is final; each format would else work it out again
    options: dict[str, dict[str, Any]] = {
        "svg": {"metadata": {"Date": None, "Creator": "onelip"}},
        "pdf": {"metadata": {"CreationDate": None, "Title": figure.title, "Creator": "onelip"}},
        "png": {"dpi": 160},
    }
    files = {}
    with mpl.rc_context({"svg.hashsalt": figure.name}):  # keeps ids of different figures apart in the page
        for form, how in options.items():
            file = io.BytesIO()
            figure.figure.savefig(file, format=form, **how)
            files[form] = file.getvalue()
    return files | {"svg": _with_titles(files["svg"], figure)}


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
