"""The one HTML file: tables, figures and the advisor, with style and scripts inside."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from onelip.bench.report.advice import MEMORY_ALLOWANCE, Candidate
from onelip.bench.report.figures.canvas import ReportFigure
from onelip.bench.report.style import css_variable, method_style
from onelip.bench.report.tables import Table
from onelip.bench.report.writers import to_csv, to_latex, to_markdown

SECTIONS = (
    ("overview", "Overview"),
    ("advisor", "Advisor"),
    ("accuracy", "Accuracy"),
    ("pareto", "Trade-offs"),
    ("costs", "Costs"),
    ("training", "Training"),
    ("layers", "Layers"),
    ("full", "Full tables"),
    ("theory", "Theory"),
    ("runs", "Runs"),
)


@dataclass(frozen=True)
class PageContent:
    """All that the page shows."""

    title: str
    subtitle: str
    facts: Sequence[tuple[str, str]]
    findings: Sequence[str]
    missing: Sequence[str]
    rule: Sequence[str]
    rule_notes: Sequence[str]
    tables: Sequence[Table]
    figures: Sequence[tuple[ReportFigure, str]]
    candidates: Sequence[tuple[str, Sequence[Candidate]]]
    methods: Sequence[str]


def render_page(content: PageContent) -> str:
    """The page as text."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals["method_variable"] = css_variable
    environment.filters["with_code"] = _with_code
    template = environment.from_string(_file("page.html.j2"))
    shown = {table.section for table in content.tables} | {figure.section for figure, _ in content.figures}
    shown |= {"overview"} | ({"advisor"} if content.candidates else set())
    return template.render(
        content=content,
        sections=[(key, name) for key, name in SECTIONS if key in shown],
        tables=_by_section(content.tables),
        figures=_figures_by_section(content.figures),
        header_groups=_header_groups,
        css=Markup(_file("page.css")),
        method_css=Markup(_method_css(content.methods)),
        scripts=Markup(_file("tables.js") + _file("advisor.js")),
        table_files=_embedded(
            {t.name: {"csv": to_csv(t), "md": to_markdown(t), "tex": to_latex(t)} for t in content.tables}
        ),
        advisor=_embedded(_advisor_data(content.candidates)),
    )


def _with_code(sentence: str) -> Markup:
    """Words in `backticks` as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


def _file(name: str) -> str:
    return resources.files("onelip.bench.report").joinpath(name).read_text(encoding="utf-8")


def _by_section(tables: Iterable[Table]) -> dict[str, list[Table]]:
    found: dict[str, list[Table]] = {}
    for table in tables:
        found.setdefault(table.section, []).append(table)
    return found


def _figures_by_section(figures: Iterable[tuple[ReportFigure, str]]) -> dict[str, list[tuple[ReportFigure, Markup]]]:
    found: dict[str, list[tuple[ReportFigure, Markup]]] = {}
    for figure, svg in figures:
        found.setdefault(figure.section, []).append((figure, Markup(svg)))
    return found


def _header_groups(table: Table) -> list[tuple[str, int]]:
    """Group headings and how many columns each spans; empty if the table has none."""
    if not any(column.group for column in table.columns):
        return []
    return [(group, len(list(members))) for group, members in groupby(table.columns, lambda column: column.group)]


def _method_css(methods: Iterable[str]) -> str:
    styles = [(css_variable(key), method_style(key)) for key in methods]
    light = "".join(f"{name}:{style.light};" for name, style in styles)
    dark = "".join(f"{name}:{style.dark};" for name, style in styles)
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f":root[data-theme=dark]{{{dark}}}"
    )


def _embedded(tree: Any) -> Markup:
    """JSON for a script element: nothing in it can end the element."""
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _advisor_data(candidates: Sequence[tuple[str, Sequence[Candidate]]]) -> dict[str, Any]:
    return {
        "allowance": MEMORY_ALLOWANCE,
        "evidence": [
            {"name": name, "candidates": [_candidate_data(candidate) for candidate in group]}
            for name, group in candidates
        ],
    }


def _candidate_data(candidate: Candidate) -> dict[str, Any]:
    shown = {"label": method_style(candidate.method).label, "colour": css_variable(candidate.method)}
    return dataclasses.asdict(candidate) | shown
