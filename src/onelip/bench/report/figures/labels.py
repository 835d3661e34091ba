"""Names beside points and at the ends of lines, placed so that none lies on another.

To be called when limits and scales of the axes are final; for names beside points the layout, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

_DIRECTIONS = ((1, 1), (-1, 1), (1, -1), (0, 1), (1, 0), (0, -1), (-1, 0), (-1, -1), (1, 2), (1, -2), (-1, 2), (-1, -2))

Rectangle = tuple[float, float, float, float]


def spread_positions(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions close to the wanted ones, in their order, at least `gap` apart and within the range.

    The mean of two sweeps, one that moves positions up and one that moves them down: crowds spread to both sides. If
    the range is too small for all, the gap shrinks.
    """
    last = len(wanted) - 1
    gap = min(gap, (high - low) / max(last, 1))
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    # each leaves room for those below and above it
    inside = [min(max(wanted[i], low + k * gap), high - (last - k) * gap) for k, i in enumerate(order)]
    up = accumulate(inside, lambda below, own: max(own, below + gap))
    down = accumulate(reversed(inside), lambda above, own: min(own, above - gap))
    means = [(a + b) / 2 for a, b in zip(up, reversed(list(down)), strict=True)]
    return [position for _, position in sorted(zip(order, means, strict=True))]


End = tuple[float, float, str, str]
"""x, y, text and colour."""


def label_line_ends(figure: Figure, ends: Mapping[Axes, Sequence[End]], size: float = 8.5) -> None:
    """Write the texts to the right of their axes, each with a thin line to its point."""
    figure.draw_without_rendering()  # now the axes have their places
    for axes, own in ends.items():
        _label_line_ends(axes, own, size)


def _label_line_ends(axes: Axes, ends: Sequence[End], size: float) -> None:
    """The more there are, the farther they stand, so that the lines are not too steep to follow."""
    left = 1.01 + 0.003 * max(len(ends), 5)
    to_axes = axes.transData + axes.transAxes.inverted()
    points = [to_axes.transform((x, y)) for x, y, _, _ in ends]
    gap = 1.25 * size / (axes.bbox.height * _points_per_pixel(axes))
    placed = spread_positions([float(y) for _, y in points], gap, 0.0, 1.0)
    for (start_x, start_y), (_, _, text, colour), position in zip(points, ends, placed, strict=True):
        look = {"transform": axes.transAxes, "clip_on": False, "color": colour}
        axes.add_line(Line2D([start_x + 0.015, left], [start_y, position], linewidth=0.6, alpha=0.6, **look))
        axes.text(left + 0.01, position, text, fontsize=size, va="center", **look)


def label_points(axes: Axes, points: Sequence[tuple[float, float, float, str, str]], size: float = 8.5) -> None:
    """Write (x, y, half of y's interval, text, colour) beside points, in the first of twelve places that is free.

    A place is better if no interval crosses it; crowded points go without. Widths of texts are estimated: the page and
    the files may be shown with different fonts anyway.
    """

    def spot(x: float, y: float) -> tuple[float, float]:
        """In points from the lower left corner of the axes."""
        right, up = (axes.transData.transform((x, y)) - axes.bbox.min) * _points_per_pixel(axes)
        return float(right), float(up)

    width, height = (side * _points_per_pixel(axes) for side in axes.bbox.size)
    marks = [(sx - 4, sy - 4, sx + 4, sy + 4) for sx, sy in (spot(x, y) for x, y, *_ in points)]
    bars = [(spot(x, y)[0] - 1, spot(x, y - h)[1], spot(x, y)[0] + 1, spot(x, y + h)[1]) for x, y, h, *_ in points]
    taken: list[Rectangle] = list(marks)
    for x, y, _, text, colour in points:
        place = (spot(x, y), 0.62 * size * len(text), size, (width, height))
        found = _free_place(*place, [*taken, *bars]) or _free_place(*place, taken)
        if found is not None:
            offset, rectangle = found
            taken.append(rectangle)
            axes.annotate(text, (x, y), offset, textcoords="offset points", fontsize=size, color=colour, va="center")


def _points_per_pixel(axes: Axes) -> float:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return 72 / figure.dpi


def _free_place(
    spot: tuple[float, float], width: float, height: float, area: tuple[float, float], taken: list[Rectangle]
) -> tuple[tuple[float, float], Rectangle] | None:
    for right, up in _DIRECTIONS:
        left = {1: 7.0, 0: -width / 2, -1: -7.0 - width}[right]
        middle = up * (height + 1) if right == 0 else up * height * 0.9
        start, centre = spot[0] + left, spot[1] + middle
        rectangle = (start, centre - height / 2, start + width, centre + height / 2)
        in_width = rectangle[0] >= 0 and rectangle[2] <= area[0] + 20
        in_height = rectangle[1] >= 0 and rectangle[3] <= area[1] + 8
        if in_width and in_height and not any(_overlap(rectangle, other) for other in taken):
            return (left, middle), rectangle
    return None


def _overlap(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
