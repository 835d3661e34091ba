"""The one HTML file: tables, figures and the advisor, with style and scripts inside."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from onelip.bench.report.advice import MEMORY_ALLOWANCE, Candidate
from onelip.bench.report.escaping import script_json
from onelip.bench.report.figures.drawing import FigureFiles, ReportFigure
from onelip.bench.report.inline_svg import InlineFigures
from onelip.bench.report.intervals import centre
from onelip.bench.report.method_style import css_variable, method_style, slug
from onelip.bench.report.report_table import METHOD, Column, ReportTable
from onelip.bench.report.table_files import TABLE_FORMATS

SECTIONS = {
    "overview": "Overview",
    "advisor": "Advisor",
    "accuracy": "Accuracy",
    "reproduction": "Reproduction",
    "pareto": "Trade-offs",
    "costs": "Costs",
    "training": "Training",
    "layers": "Layers",
    "full": "Full tables",
    "theory": "Theory",
    "runs": "Runs",
}


@dataclass(frozen=True)
class PageContent:
    """All that the page shows."""

    title: str
    subtitle: str
    head_figures: Sequence[tuple[str, str]]
    findings: Sequence[str]
    baseline: str
    absent: Sequence[str]
    tables: Sequence[ReportTable]
    figures: Sequence[tuple[ReportFigure, FigureFiles]]
    candidates: Sequence[tuple[str, Sequence[Candidate]]]
    methods: Sequence[str]


def render_page(content: PageContent) -> str:
    """The page as text."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {"slug": slug, "sort_value": _sort_value, "header_groups": _header_groups, "METHOD": METHOD}
    environment.filters["with_code"] = _with_code
    inline = InlineFigures(content.methods)
    figures = [(figure, Markup(inline.element(figure, files))) for figure, files in content.figures]
    shown = {"overview", *(table.section for table in content.tables), *(figure.section for figure, _ in figures)}
    shown |= {"advisor"} if content.candidates else set()
    css = f"{_file('page.css')}\n{_method_css(content.methods)}{inline.css}"
    scripts = _file("page.js") + _file("advisor.js")
    forms = {table.name: {form: write(table) for form, write in TABLE_FORMATS.items()} for table in content.tables}
    pictures = {
        figure.name: {form: base64.b64encode(getattr(files, form)).decode() for form in ("svg", "png", "pdf")}
        for figure, files in content.figures
    }
    return environment.from_string(_file("page.html.j2")).render(
        content=content,
        sections=[(key, name) for key, name in SECTIONS.items() if key in shown],
        tables={key: [table for table in content.tables if table.section == key] for key in SECTIONS},
        figures={key: [(figure, svg) for figure, svg in figures if figure.section == key] for key in SECTIONS},
        css=Markup(css),
        css_hash=_hash(css),
        scripts=Markup(scripts),
        scripts_hash=_hash(scripts),
        data=Markup(script_json({"tables": forms, "figures": pictures, "advisor": _advisor_data(content.candidates)})),
    )


def _hash(text: str) -> str:
    """How a content security policy names the one style sheet or script that it allows."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _with_code(sentence: str) -> Markup:
    """Words in `backticks` as code."""
    return Markup(re.sub("`([^`]+)`", lambda match: f"<code>{match[1]}</code>", str(escape(sentence))))


def _file(name: str) -> str:
    return resources.files("onelip.bench.report").joinpath(name).read_text(encoding="utf-8")


def _sort_value(value: Any) -> Any:
    number = centre(value)
    return ("" if value is None else value) if number is None else number


def _header_groups(table: ReportTable) -> list[tuple[str, list[Column]]]:
    """Group headings and the columns below each; empty if the table has none."""
    if not any(column.group for column in table.columns):
        return []
    return [(group, list(members)) for group, members in groupby(table.columns, lambda column: column.group)]


def _method_css(methods: Iterable[str]) -> str:
    styles = [(css_variable(key), method_style(key)) for key in methods]
    light = "".join(f"{name}:{style.light};" for name, style in styles)
    dark = "".join(f"{name}:{style.dark};" for name, style in styles)
    dots = "".join(f".dot-{slug(key)}{{background:var({css_variable(key)})}}\n" for key in methods)
    return (
        f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}\n{dots}"
    )


def _advisor_data(candidates: Sequence[tuple[str, Sequence[Candidate]]]) -> dict[str, Any]:
    def told(candidate: Candidate) -> dict[str, Any]:
        style = method_style(candidate.method)
        return dataclasses.asdict(candidate) | {"label": style.label, "slug": slug(candidate.method)}

    evidence = [{"name": name, "candidates": [told(candidate) for candidate in own]} for name, own in candidates]
    return {"allowance": MEMORY_ALLOWANCE, "evidence": evidence}
