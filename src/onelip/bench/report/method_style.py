"""One colour, one marker and one name per method, the same in every figure, in the page and in both themes.

The colours of the seven main methods and of the baseline were chosen by maximising their smallest distance (CIELAB)
over normal vision and simulated protanopia, deuteranopia and tritanopia, with a contrast of at least 4 to the ground;
a test computes both. Colour is never the only sign: methods also differ in markers, which cover equal areas, in dashes
and in labels beside their lines, so that a print in grey can be read.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from onelip.protocol import SIZES


@dataclass(frozen=True)
class MethodStyle:
    """How a method is shown: its name, its colours on light and on dark ground, and its marker."""

    key: str
    label: str
    light: str
    dark: str
    marker: str
    dashes: tuple[float, ...]

    @property
    def marker_size(self) -> float:
        """Size at which markers of all shapes have about the same area."""
        return 6.5 * _MARKER_SCALE.get(self.marker, 1.0)


_STYLES = {
    "aol": ("#0a2f86", "#3b8eea", "o"),
    "bcop": ("#d9480f", "#f2541b", "s"),
    "cayley": ("#00573a", "#56eb95", "^"),
    "cpl": ("#6a194e", "#a868ad", "D"),
    "lot": ("#997742", "#ffc700", "v"),
    "sll": ("#1678d8", "#b3d4ff", "P"),
    "soc": ("#7c0007", "#cb5a4d", "X"),
    "bjorck": ("#6a51a3", "#b3a2e0", "<"),
    "eco": ("#5d7a1f", "#a8cc55", ">"),
    "oni": ("#8c6d5a", "#c9a893", "h"),
    "sandwich": ("#2f4b8f", "#8ea6e8", "p"),
    "standard": ("#707070", "#a3a3a3", "d"),
    "reference": ("#707070", "#a3a3a3", "d"),
    "aoc": ("#8420e0", "#8454fc", "*"),
    "bro": ("#485424", "#30a824", "H"),
    "cholesky": ("#b4609c", "#e07cc8", "8"),
    "spectral": ("#22807c", "#90e4d8", "^"),
    "stiefel": ("#d80cd8", "#b448c0", "s"),
}

KNOWN = frozenset(_STYLES)
"""Methods with a colour of their own."""

_SPARE = (
    ("#117733", "#57c785", "h"),
    ("#882255", "#d98bb3", "o"),
    ("#44807d", "#8cc7c4", "8"),
    ("#8a6a3c", "#d2b48c", "s"),
)

_MARKER_SCALE = {
    "s": 0.88,
    "D": 0.82,
    "d": 1.05,
    "^": 1.1,
    "v": 1.1,
    "<": 1.1,
    ">": 1.1,
    "P": 1.12,
    "X": 1.12,
    "*": 1.35,
}
_DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.2), (1.2, 1.2), (6, 1.2, 1.2, 1.2), (8, 2))

_LONGEST_LABEL = 24

_LABELS = {"standard": "Plain", "reference": "Plain", "bjorck": "Björck"}
"""Both are the plain network: trained by onelip, and as the fixed reference of all costs."""


def method_style(key: str) -> MethodStyle:
    """The style of a method; a method that this table does not know gets a spare one, always the same."""
    if key in _STYLES:
        light, dark, marker = _STYLES[key]
    else:
        light, dark, marker = _SPARE[hashlib.sha256(key.encode()).digest()[0] % len(_SPARE)]
    position = list(_STYLES).index(key) if key in _STYLES else len(key)
    label = _LABELS.get(key) or (key.upper() if len(key) <= 4 else key.capitalize())
    label = label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"
    return MethodStyle(key, label, light, dark, marker, _DASHES[position % len(_DASHES)])


def slug(name: str) -> str:
    """The name with nothing in it that a file name, an id or a class cannot hold; different names stay different."""
    clean = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:60]
    return clean if clean == name else f"{clean}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def css_variable(key: str) -> str:
    """Name of the page's variable that holds the method's colour in the current theme."""
    return f"--m-{slug(key)}"


def size_order(size: str) -> tuple[int, str]:
    """Sorts XS, S, M, L before anything else."""
    return (SIZES.index(size) if size in SIZES else len(SIZES), size)
