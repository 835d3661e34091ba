"""Text from records, made safe for the place where it is shown: one function for each format.

A study folder travels between people. Whatever its records say is shown as text and never read as markup, as a
formula, as TeX or as a command to the terminal (`onelip.bench.terminal`). HTML is escaped by Jinja, and SVG by the XML
library that writes it.
"""

from __future__ import annotations

import json
import re
from typing import Any

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "…": r"\dots{}",
    "\u00d7": r"$\times$", "\u2212": r"$-$", "\u2013": "--", "≤": r"$\leq$", "₂": r"$_2$", "²": r"$^2$", "³": r"$^3$",
    "⁴": r"$^4$", "√": r"$\surd$", "Σ": r"$\Sigma$",
}  # fmt: skip


def latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def markdown(text: str) -> str:
    """Text for a cell of a pipe table: no markup, no HTML, no new column."""
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def csv_cell(value: Any) -> Any:
    """A value for a CSV file; a text that a spreadsheet would take for a formula is quoted with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") and value[:1] else value


def script_json(tree: Any) -> str:
    """JSON for a script element: nothing in it can end the element."""
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
