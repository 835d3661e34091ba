"""Tables as CSV, Markdown and LaTeX (booktabs), ready for a paper, and text from records made safe for each format.

A study folder travels between people. Whatever its records say is shown as text and never read as markup, as a
formula, as TeX or as a command to the terminal (`onelip.bench.terminal`). HTML is escaped by Jinja, and SVG by the XML
library that writes it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from onelip.bench.records.views import MedianTime
from onelip.bench.report.report_table import ReportTable
from onelip.bench.report.shares import Share


def _in_percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 6)


_CSV_PARTS: dict[type, dict[str, Callable[[Any], Any]]] = {
    Share: {"": lambda share: _in_percent(share.mean), " error": lambda share: _in_percent(share.error)},
    MedianTime: {"": lambda time: time.median, " low": lambda time: time.low, " high": lambda time: time.high},
}
"""What is written of a figure that is more than a number, by the ends of the columns' titles."""


def to_csv(table: ReportTable) -> str:
    """Values with full precision; shares in per cent with their standard errors, timings with their intervals."""
    columns: dict[str, list[Any]] = {}
    for index, column in enumerate(table.columns):
        values, title = [row[index] for row in table.rows], csv_cell(column.full_title)
        kind = next((type(value) for value in values if type(value) in _CSV_PARTS), object)
        for suffix, part in _CSV_PARTS.get(kind, {"": csv_cell}).items():
            columns[title + suffix] = [part(value) if isinstance(value, kind) else None for value in values]
    return csv_text(columns, zip(*columns.values(), strict=True))


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Lines of comma-separated values; what is missing or no number is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([None if value != value else value for value in row] for row in rows)
    return text.getvalue()


def to_markdown(table: ReportTable) -> str:
    """A pipe table with its caption; best values in bold."""

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    lines = [line(markdown(column.full_title) for column in table.columns)]
    lines.append(line("---:" if column.numeric else ":---" for column in table.columns))
    lines += [line(row) for row in _emphasised(table, markdown, "**{}**")]
    return f"**{markdown(table.title)}.** {markdown(table.caption)}\n\n" + "\n".join(lines) + "\n"


def to_latex(table: ReportTable) -> str:
    """A table environment for the booktabs package; group headings span their columns."""
    head: list[str] = []
    if table.groups:
        spans, rules, start = [], [], 1
        for group, count in ((group, len(columns)) for group, columns in table.groups):
            spans.append(rf"\multicolumn{{{count}}}{{c}}{{{latex(group)}}}" if group else " & " * (count - 1))
            rules += [rf"\cmidrule(lr){{{start}-{start + count - 1}}}"] if group else []
            start += count
        head = [f" {' & '.join(spans)} \\\\", f" {' '.join(rules)}"]
    head.append(f" {' & '.join(latex(column.title) for column in table.columns)} \\\\")
    body = [f" {' & '.join(row)} \\\\" for row in _emphasised(table, latex, r"\textbf{{{}}}")]
    alignment = "".join("r" if column.numeric else "l" for column in table.columns)
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{\textbf{{{latex(table.title)}.}} {latex(table.caption)}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r" \toprule",
            *head,
            r" \midrule",
            *body,
            r" \bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _emphasised(table: ReportTable, escape: Callable[[str], str], emphasis: str) -> Iterable[list[str]]:
    for row, texts in enumerate(table.texts):
        escaped = [escape(text) for text in texts]
        yield [emphasis.format(text) if (row, i) in table.best else text for i, text in enumerate(escaped)]


TABLE_FORMATS: dict[str, Callable[[ReportTable], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}


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
