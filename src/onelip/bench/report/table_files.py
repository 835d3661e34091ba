"""Tables as CSV, Markdown and LaTeX (booktabs), ready for a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import pandas as pd

from onelip.bench.report.escaping import csv_cell, latex, markdown
from onelip.bench.report.intervals import MedianTime, Share
from onelip.bench.report.report_table import ReportTable


def to_csv(table: ReportTable) -> str:
    """Values with full precision; shares in per cent with their standard errors, timings with their intervals."""
    columns: dict[str, list[Any]] = {}
    for index, column in enumerate(table.columns):
        values, title = [row[index] for row in table.rows], csv_cell(column.full_title)
        if any(isinstance(value, Share) for value in values):
            shares = [value if isinstance(value, Share) else None for value in values]
            columns[title] = [None if s is None else round(100 * s.mean, 6) for s in shares]
            columns[f"{title} error"] = [
                None if s is None or s.error is None else round(100 * s.error, 6) for s in shares
            ]
        elif any(isinstance(value, MedianTime) for value in values):
            timings = [value if isinstance(value, MedianTime) else None for value in values]
            for suffix, field in (("", "median"), (" low", "low"), (" high", "high")):
                columns[title + suffix] = [None if t is None else getattr(t, field) for t in timings]
        else:
            columns[title] = [csv_cell(value) for value in values]
    # dtype=object: a column of whole numbers with gaps stays one of whole numbers
    return pd.DataFrame(columns, dtype=object).to_csv(index=False, lineterminator="\n")


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
    groups = [(group, len(list(members))) for group, members in groupby(table.columns, lambda column: column.group)]
    if any(group for group, _ in groups):
        spans, rules, start = [], [], 1
        for group, count in groups:
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
