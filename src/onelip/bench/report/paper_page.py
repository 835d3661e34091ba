"""`write_paper`: tables and figures of the paper beside ours, as one page and as files."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from onelip.atomic_files import replace_files
from onelip.bench.report.figures.drawing import FigureFiles, ReportFigure, figure_style, render
from onelip.bench.report.paper_items import PaperItem, PaperSources, Part
from onelip.bench.report.report_table import ReportTable
from onelip.bench.report.table_files import TABLE_FORMATS

PAGE = "paper.html"


@dataclass(frozen=True)
class PaperEntry:
    """One item as it was made: the published side and ours, each of them HTML fragments in order."""

    item: PaperItem
    published: Sequence[Markup]
    ours: Sequence[Markup]


def write_paper(
    items: Sequence[PaperItem],
    given: PaperSources,
    out: Path,
    tell: Callable[[str], None],
) -> list[PaperEntry]:
    """Write `paper.html` and, in `published/` and `ours/`, every part as files; nothing before all of it is made.

    `tell` hears what is being made.
    """
    entries: list[PaperEntry] = []
    files: dict[Path, bytes] = {}
    with figure_style():
        for number, item in enumerate(items, 1):
            tell(f"{item.name}, {number} of {len(items)}")
            printed, ours = item.build(given)
            sides = []
            for side, parts in (("published", printed), ("ours", ours)):
                shown = [part for part in parts if isinstance(part, ReportFigure) or part.rows]
                sides.append([_fragment(part, out / side, files) for part in shown])
            entries.append(PaperEntry(item, *sides))
    template = resources.files("onelip.bench.report").joinpath("paper.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template).render(entries=entries, study=given.study.folder.name)
    replace_files({**files, out / PAGE: page.encode()})
    return entries


def _fragment(part: Part, folder: Path, files: dict[Path, bytes]) -> Markup:
    if isinstance(part, ReportTable):
        files |= {folder / f"{part.name}.{form}": write(part).encode() for form, write in TABLE_FORMATS.items()}
        return _table(part)
    drawn = render(part)
    files |= {folder / f"{part.name}.{form}": getattr(drawn, form) for form in ("svg", "pdf", "png")}
    return _figure(part, drawn)


def _figure(figure: ReportFigure, drawn: FigureFiles) -> Markup:
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawn.svg).decode()}"
    words = Markup("<figure><h3>{}</h3><img src='{}' alt='{}'><figcaption>{}</figcaption></figure>")
    return words.format(figure.title, source, figure.alt, figure.caption)


def _table(table: ReportTable) -> Markup:
    groups = Markup("").join(Markup("<th>{}</th>").format(column.full_title) for column in table.columns)
    rows = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(text) for text in texts))
        for texts in table.texts
    )
    words = Markup("<h3>{}</h3><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table><p class='caption'>{}</p>")
    return words.format(table.title, groups, rows, table.caption)
