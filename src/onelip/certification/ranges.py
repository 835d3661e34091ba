"""Where the entries of a value are: what makes exponentials, squares and roots of bounded values Lipschitz.

Ranges are those of the exact function. A constant that is taken from one holds in a slightly wider range, and the
program's values are within it where its error is at most `margin`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from onelip.certification.graph import Extremum, Moved, Node, Range

EVERYTHING: Range = (-math.inf, math.inf)
_WIDER = 2.0**-10


def range_of(node: Node) -> Range:
    """The smallest and the largest entry that a value can have."""
    if node.known_range is None or node.known_range[0] is not node.limits:
        node.known_range = node.limits, _found(node)
    return node.known_range[1]


def _found(node: Node) -> Range:
    if node.limits is not None:
        return node.limits([range_of(source) for source in node.inputs])
    moved, extremum = node.fact(Moved), node.fact(Extremum)
    if not node.inputs:
        return EVERYTHING
    ranges = [range_of(source) for source in node.inputs]
    if any(found == EVERYTHING for found in ranges):
        return EVERYTHING
    lows, highs = zip(*ranges, strict=True)
    if extremum is not None:
        choose = max if extremum.which == "max" else min
        return choose(lows), choose(highs)
    if moved is None:
        return EVERYTHING
    taken = torch.stack([moved.indices(place) >= 0 for place in range(len(ranges))]).any(0)
    return (min(lows), max(highs)) if bool(taken.all()) else EVERYTHING  # constants are in the other places


def unchanged(ranges: Sequence[Range]) -> Range:
    """Entries, or means and extrema of them."""
    return ranges[0]


def clamped(low: float, high: float) -> Any:
    """Entries that are cut off."""
    return lambda ranges: tuple(min(max(end, low), high) for end in ranges[0])


def filled(indices: Any, number: float) -> Any:
    """Entries that were moved, and this number where none came from."""

    def limits(ranges: Sequence[Range]) -> Range:
        low, high = ranges[0]
        return (low, high) if bool((indices(0) >= 0).all()) else (min(low, number), max(high, number))

    return limits


def magnitudes(ranges: Sequence[Range]) -> Range:
    """Absolute values."""
    low, high = ranges[0]
    return max(0.0, low, -high), max(-low, high)


def rising(function: Any) -> Any:
    """Values of a function that rises."""

    def limits(ranges: Sequence[Range]) -> Range:
        low, high = function(torch.tensor(ranges[0], dtype=torch.float64)).tolist()
        return (low, high) if low <= high else EVERYTHING

    return limits


def summed(ranges: Sequence[Range]) -> Range:
    """Sums of two values."""
    return math.fsum(low for low, _ in ranges), math.fsum(high for _, high in ranges)


def affine(factor: Any, shift: Any) -> Any:
    """Multiples by numbers, plus numbers."""
    factors, shifts = (torch.as_tensor(number, dtype=torch.float64).flatten() for number in (factor, shift))

    def limits(ranges: Sequence[Range]) -> Range:
        if ranges[0] == EVERYTHING or not (factors.numel() and shifts.numel()):
            return EVERYTHING
        ends = torch.cat([factors * end for end in ranges[0]])
        ends = torch.where(ends.isnan(), 0.0, ends)  # 0 times infinity
        low, high = float(ends.amin() + shifts.amin()), float(ends.amax() + shifts.amax())
        return EVERYTHING if math.isnan(low) or math.isnan(high) else (low, high)

    return limits


def widened(found: Range) -> tuple[Range, float]:
    """A range in which the values of a program are, too, and how much wider it is on either side, twice the margin."""
    sizes = [abs(end) for end in found if end and math.isfinite(end)]
    more = _WIDER * min(sizes, default=1.0)
    return (found[0] - more, found[1] + more), more
