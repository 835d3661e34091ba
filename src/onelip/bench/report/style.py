"""One colour, one marker and one name per method, the same in every figure, in the page and in both themes.

The colours of the seven main methods and of the baseline were chosen by maximising their smallest distance (CIELAB)
over normal vision and simulated protanopia, deuteranopia and tritanopia, with a contrast of at least 4 to the ground;
a test computes both. Colour is never the only sign: lines have markers and labels too.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from onelip.protocol import REFERENCE, SIZES

BASELINES = ("standard", REFERENCE)
"""Networks without a guarantee."""


@dataclass(frozen=True)
class MethodStyle:
    """How a method is shown: its name, its colours on light and on dark ground, and its marker."""

    key: str
    label: str
    light: str
    dark: str
    marker: str


_STYLES = {
    "aol": ("#0a2f86", "#3b8eea", "o"),
    "bcop": ("#d9480f", "#f2541b", "s"),
    "cayley": ("#00573a", "#56eb95", "^"),
    "cpl": ("#6a194e", "#a868ad", "D"),
    "lot": ("#997742", "#ffc700", "v"),
    "sll": ("#1678d8", "#b3d4ff", "P"),
    "soc": ("#7c0007", "#cb5a4d", "*"),
    "bjorck": ("#6a51a3", "#b3a2e0", "<"),
    "eco": ("#5d7a1f", "#a8cc55", ">"),
    "oni": ("#8c6d5a", "#c9a893", "p"),
    "sandwich": ("#2f4b8f", "#8ea6e8", "X"),
    "standard": ("#707070", "#a3a3a3", "d"),
    REFERENCE: ("#404040", "#d0d0d0", "h"),
}

_SPARE = (
    ("#117733", "#57c785", "H"),
    ("#882255", "#d98bb3", "8"),
    ("#44807d", "#8cc7c4", "1"),
    ("#8a6a3c", "#d2b48c", "2"),
)

_LABELS = {"standard": "Standard", REFERENCE: "Plain conv.", "bjorck": "Björck"}


def method_style(key: str) -> MethodStyle:
    """The style of a method; a method that this table does not know gets a spare one, always the same."""
    if key in _STYLES:
        light, dark, marker = _STYLES[key]
    else:
        light, dark, marker = _SPARE[hashlib.sha256(key.encode()).digest()[0] % len(_SPARE)]
    label = _LABELS.get(key) or (key.upper() if len(key) <= 4 else key.capitalize())
    return MethodStyle(key, label, light, dark, marker)


def slug(name: str) -> str:
    """The name with nothing in it that a file name or an id cannot hold."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")


def css_variable(key: str) -> str:
    """Name of the page's variable that holds the method's colour in the current theme."""
    return f"--m-{slug(key.lower()).replace('.', '-')}"


def size_order(size: str) -> tuple[int, str]:
    """Sorts XS, S, M, L before anything else."""
    return (SIZES.index(size) if size in SIZES else len(SIZES), size)
