"""A page as one HTML file, with style and scripts inside, and its tables and figures as files beside it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment
from markupsafe import Markup, escape

from onelip.atomic_files import remove_temporaries, replace_files
from onelip.bench.file_lock import RunLock
from onelip.bench.report.advice import MEMORY_ALLOWANCE, Candidate
from onelip.bench.report.figures.drawing import AXIS, GRID, GROUND, INK, SVG, FigureFiles, ReportFigure
from onelip.bench.report.method_style import KNOWN, css_variable, method_style, slug
from onelip.bench.report.report_table import METHOD, ReportTable
from onelip.bench.report.shares import centre
from onelip.bench.report.table_files import TABLE_FORMATS, script_json

_PAPER = Markup(
    "“1-Lipschitz Layers Compared: Memory, Speed, and Certifiable Robustness” (Prach, Brau, Buttazzo, Lampert; "
    "CVPR 2024; <a href='https://arxiv.org/abs/2311.16833'>arXiv 2311.16833</a>)"
)

Part = ReportFigure | ReportTable


@dataclass(frozen=True)
class Side:
    """Figures, then tables, whose files are in these folders; `empty` is what the page says where there are none."""

    figures: Sequence[ReportFigure]
    tables: Sequence[ReportTable]
    name: str = ""
    empty: str = ""
    figure_folder: str = "figures"
    table_folder: str = "tables"


@dataclass(frozen=True)
class Section:
    """A part of the page; several sides stand beside each other. `name` is for the navigation."""

    key: str
    name: str
    title: str
    sides: Sequence[Side] = ()
    note: str = ""

    @property
    def has_wide_figures(self) -> bool:
        """Whether a figure needs the whole width, so that the sides stand below each other."""
        return any(figure.is_wide for side in self.sides for figure in side.figures)


@dataclass(frozen=True)
class PageContent:
    """All that a page shows; `{paper}` in the introduction becomes the reference to the paper."""

    title: str
    subtitle: str
    introduction: str
    sections: Sequence[Section]
    files: str
    head_figures: Sequence[tuple[str, str]] = ()
    findings: Sequence[str] = ()
    guidelines: Sequence[str] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    baseline: str = ""
    absent: Sequence[str] = ()
    candidates: Sequence[tuple[str, Sequence[Candidate]]] = ()

    @property
    def sides(self) -> list[Side]:
        """Those of all sections."""
        return [side for section in self.sections for side in section.sides]

    @property
    def methods(self) -> list[str]:
        """All that have a colour on the page."""
        in_tables = {key for side in self.sides for table in side.tables for key in table.methods}
        return sorted({*in_tables, *(c.method for _, own in self.candidates for c in own), *KNOWN})


def write_page(page: Path, content: PageContent, drawn: Mapping[str, FigureFiles]) -> tuple[list[Path], list[Path]]:
    """Write the page and beside it every table and figure as files; returns the paths of both.

    No file is replaced before all of them are on the disk.
    """
    out, texts, pictures = page.parent, {}, {}
    tables = {
        table.name: {form: write(table) for form, write in TABLE_FORMATS.items()}
        for side in content.sides
        for table in side.tables
    }
    for side in content.sides:
        for name in (table.name for table in side.tables):
            texts |= {out / side.table_folder / f"{name}.{form}": text.encode() for form, text in tables[name].items()}
        for name in (figure.name for figure in side.figures):
            pictures |= {out / side.figure_folder / f"{name}.{form}": data for form, data in drawn[name].items()}
    text = _render_page(content, tables, drawn)
    lock = RunLock(out)  # what a killed writer has left can be told from what another one is writing
    try:
        for folder in {out, *(path.parent for path in (*texts, *pictures))}:
            remove_temporaries(folder)
        replace_files({**texts, **pictures, page: text.encode()})
    finally:
        lock.release()
    return list(texts), list(pictures)


def _render_page(
    content: PageContent, tables: Mapping[str, Mapping[str, str]], drawn: Mapping[str, FigureFiles]
) -> str:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {"slug": slug, "sort_value": _sort_value, "METHOD": METHOD}
    environment.filters["with_code"] = _with_code
    methods = content.methods
    inline = InlineFigures(methods)
    figures = [figure for side in content.sides for figure in side.figures]
    pictures = {figure.name: Markup(inline.element(figure, drawn[figure.name]["svg"])) for figure in figures}
    css = f"{_file('page.css')}{_file('advisor.css')}\n{_method_css(methods)}{inline.css}"
    scripts = _file("page.js") + (_file("advisor.js") if content.candidates else "")
    in_base64 = {
        figure.name: {form: base64.b64encode(data).decode() for form, data in drawn[figure.name].items()}
        for figure in figures
    }
    downloads = {"tables": tables, "figures": in_base64, "advisor": advisor_data(content.candidates)}
    return environment.from_string(_file("page.html.j2")).render(
        content=content,
        introduction=Markup(content.introduction).format(paper=_PAPER),
        pictures=pictures,
        css=Markup(css),
        css_hash=_hash(css),
        scripts=Markup(scripts),
        scripts_hash=_hash(scripts),
        advisor=Markup(_file("advisor.html")),
        data=Markup(script_json(downloads)),
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


def _method_css(methods: Iterable[str]) -> str:
    styles = [(css_variable(key), method_style(key)) for key in methods]
    light = "".join(f"{name}:{style.light};" for name, style in styles)
    dark = "".join(f"{name}:{style.dark};" for name, style in styles)
    dots = "".join(f".dot-{slug(key)}{{background:var({css_variable(key)})}}\n" for key in methods)
    return (
        f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}\n{dots}"
    )


def advisor_data(candidates: Sequence[tuple[str, Sequence[Candidate]]]) -> dict[str, Any]:
    """What advisor.js reads: candidates by the name of their evidence, with names and colours."""

    def told(candidate: Candidate) -> dict[str, Any]:
        style = method_style(candidate.method)
        return dataclasses.asdict(candidate) | {"label": style.label, "slug": slug(candidate.method)}

    evidence = [{"name": name, "candidates": [told(candidate) for candidate in own]} for name, own in candidates]
    return {"allowance": MEMORY_ALLOWANCE, "evidence": evidence}


_HREF = "{http://www.w3.org/1999/xlink}href"
_PIXELS_PER_INCH = 96


class InlineFigures:
    """Makes the SVG elements of one page (own ids, the theme's colours) and collects the style rules that they share.

    Classes stand in place of style attributes, which the page's content security policy forbids.
    """

    def __init__(self, methods: Iterable[str]) -> None:
        self._variables = {method_style(key).light: f"var({css_variable(key)})" for key in methods}
        self._variables |= {INK: "var(--ink)", AXIS: "var(--axis)", GRID: "var(--grid)", GROUND: "var(--ground)"}
        self._classes: dict[str, str] = {}

    @property
    def css(self) -> str:
        """The rules of all classes."""
        return "".join(f".{name}{{{style}}}\n" for style, name in self._classes.items())

    def element(self, figure: ReportFigure, svg: bytes) -> str:
        """The figure as an element of the page."""
        root = ElementTree.fromstring(svg)
        width, height = (round(side * _PIXELS_PER_INCH) for side in figure.figure.get_size_inches())
        root.attrib |= {"width": str(width), "height": str(height)}
        for parent in root.iter():
            for style in parent.findall(f"{SVG}style"):
                parent.remove(style)
        for element in root.iter():
            attributes = element.attrib
            if "id" in attributes:  # axes_1 occurs in every figure, but a page must have each id once
                attributes["id"] = f"{figure.name}-{attributes['id']}"
            if _HREF in attributes:
                attributes[_HREF] = f"#{figure.name}-{attributes[_HREF][1:]}"
            for name in ("clip-path", "fill"):
                if attributes.get(name, "").startswith("url(#"):
                    attributes[name] = f"url(#{figure.name}-{attributes[name][5:]}"
            style = attributes.pop("style", None)
            if style is not None:
                themed = re.sub(r"#[0-9a-f]{6}\b", lambda match: self._variables.get(match[0], match[0]), style)
                attributes["class"] = self._classes.setdefault(themed, f"s{len(self._classes)}")
        return ElementTree.tostring(root, encoding="unicode")
