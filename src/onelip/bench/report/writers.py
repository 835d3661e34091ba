"""Tables as CSV, Markdown and LaTeX (booktabs), ready for a paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from itertools import groupby

from onelip.bench.report.tables import Cell, Column, Table


def to_csv(table: Table) -> str:
    """Plain values with full precision; a column with spreads is followed by one with its deviations."""
    spreads = [any(row[i].deviation is not None for row in table.rows) for i in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heading: list[str] = []
    for column, has_spread in zip(table.columns, spreads, strict=True):
        heading += [full_title(column), f"{full_title(column)} deviation"] if has_spread else [full_title(column)]
    writer.writerow(heading)
    for row in table.rows:
        cells: list[object] = []
        for cell, has_spread in zip(row, spreads, strict=True):
            cells.append("" if cell.value is None else cell.value)
            if has_spread:
                cells.append("" if cell.deviation is None else cell.deviation)
        writer.writerow(cells)
    return out.getvalue()


def full_title(column: Column) -> str:
    """Title with its group: "Accuracy XS"."""
    return f"{column.group} {column.title}".strip()


def to_markdown(table: Table) -> str:
    """A pipe table with its caption; best values in bold."""
    titles = [_pipe(full_title(column)) for column in table.columns]
    rules = ["---:" if column.numeric else ":---" for column in table.columns]
    lines = [_line(titles), _line(rules)]
    for row in table.rows:
        lines.append(_line(f"**{_pipe(cell.text)}**" if cell.best else _pipe(cell.text) for cell in row))
    return f"**{table.title}.** {table.caption}\n\n" + "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _pipe(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "\u00d7": r"$\times$",
    "\u2212": r"$-$",
    "\u2013": "--",
    "≤": r"$\leq$",
    "₂": r"$_2$",
    "²": r"$^2$",
    "³": r"$^3$",
    "⁴": r"$^4$",
    "√": r"$\surd$",
    "Σ": r"$\Sigma$",
}


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def to_latex(table: Table) -> str:
    """A table environment for the booktabs package; group headings span their columns."""
    body = [r" \toprule"]
    groups = [(group, len(list(members))) for group, members in groupby(table.columns, lambda c: c.group)]
    if any(group for group, _ in groups):
        spanned = [
            rf"\multicolumn{{{n}}}{{c}}{{{latex_escape(group)}}}" if group else " & " * (n - 1) for group, n in groups
        ]
        body.append(f" {' & '.join(spanned)} \\\\")
        body.append(f" {_group_rules(groups)}")
    body.append(f" {' & '.join(latex_escape(column.title) for column in table.columns)} \\\\")
    body.append(r" \midrule")
    body += [f" {' & '.join(_latex_cell(cell) for cell in row)} \\\\" for row in table.rows]
    body.append(r" \bottomrule")
    alignment = "".join("r" if column.numeric else "l" for column in table.columns)
    caption = rf"\caption{{\textbf{{{latex_escape(table.title)}.}} {latex_escape(table.caption)}}}"
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            caption,
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            *body,
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _group_rules(groups: list[tuple[str, int]]) -> str:
    rules, start = [], 1
    for group, count in groups:
        if group:
            rules.append(rf"\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    return " ".join(rules)


def _latex_cell(cell: Cell) -> str:
    escaped = latex_escape(cell.text)
    return rf"\textbf{{{escaped}}}" if cell.best else escaped
