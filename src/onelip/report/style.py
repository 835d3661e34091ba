"""One colour, one marker and one name per method, the same in every figure, in the page and in both themes.

The colours of the main methods are those of Okabe and Ito, which people with colour-vision deficiencies can tell apart,
darkened where needed to be seen on white. Colour is never the only sign: lines have markers and labels too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

REFERENCE = "reference"
"""The plain network that costs are relative to; a row of its own in memory and operation counts."""

BASELINES = ("standard", REFERENCE)
"""Networks without a guarantee."""

SIZES = ("XS", "S", "M", "L")


@dataclass(frozen=True)
class MethodStyle:
    """How a method is shown: its name, its colours on light and on dark ground, and its marker."""

    key: str
    label: str
    light: str
    dark: str
    marker: str


_STYLES = {
    "aol": ("#0072b2", "#4fa9e2", "o"),
    "bcop": ("#d55e00", "#f08338", "s"),
    "cayley": ("#007a5a", "#2fbf97", "^"),
    "cpl": ("#b8559a", "#e08cc4", "D"),
    "lot": ("#a67c00", "#e6b422", "v"),
    "sll": ("#3aa0c9", "#8fd3f4", "P"),
    "soc": ("#8b1a2b", "#ff7a85", "*"),
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


def css_variable(key: str) -> str:
    """Name of the page's variable that holds the method's colour in the current theme."""
    return "--m-" + "".join(letter if letter.isalnum() else "-" for letter in key.lower())


def size_order(size: str) -> tuple[int, str]:
    """Sorts XS, S, M, L before anything else."""
    return (SIZES.index(size) if size in SIZES else len(SIZES), size)
