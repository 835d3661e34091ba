"""`write_report`: a folder of records becomes a page, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onelip.atomic_files import check_place
from onelip.bench.report.advice import Candidate, measured_candidates, published_candidates
from onelip.bench.report.cost_tables import Counts, cost_tables
from onelip.bench.report.figures.accuracies import accuracy_bars, pareto_figures
from onelip.bench.report.figures.cost_lines import cost_figures
from onelip.bench.report.figures.curves import budget_figures, loss_figures, published_curve_figures, radius_figures
from onelip.bench.report.figures.drawing import FigureFiles, ReportFigure, figure_style, render
from onelip.bench.report.figures.layer_lines import layer_figures
from onelip.bench.report.figures.radar import radar_figures, radar_table, study_radar
from onelip.bench.report.findings import GUIDELINES, baseline, findings, head_figures, notes, warnings, with_notes
from onelip.bench.report.page import PageContent, Section, Side, write_page
from onelip.bench.report.read_study import read_study
from onelip.bench.report.report_table import ReportTable
from onelip.bench.report.result_tables import result_tables
from onelip.bench.report.run_tables import run_tables
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.report.trained_models import all_settings, chosen_models
from onelip.bench.terminal import visible
from onelip.errors import InvalidInputError

PAGE = "report.html"

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
class WrittenReport:
    """Where the parts are, and what the study did not have."""

    page: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    absent: tuple[str, ...]
    unreadable: int


def write_report(
    study: Path,
    out: Path | None = None,
    *,
    counts: Counts | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> WrittenReport:
    """Write `report.html`, `tables/` and `figures/` into `out` (by default the folder `report` in the study).

    Nothing is written before all of it is made.

    Args:
        study: folder of runs; those in its sub-folders count too.
        out: where to write.
        counts: what was counted of one layer of each method, for the table of theory.
        progress: called with the name of a figure, how many are done and how many there are.
    """
    results = read_study(study)
    if not results.runs and not results.missing_results:
        raise InvalidInputError(f"{study}: there are no records of runs in this folder")
    out = study / "report" if out is None else out
    check_place(out)
    settings = all_settings(results.trained)
    models = chosen_models(settings)
    radar = study_radar(results, models)
    drawn: dict[str, FigureFiles] = {}
    with figure_style():
        figures = [
            *radar_figures(radar),
            *accuracy_bars(models),
            *budget_figures(models),
            *radius_figures(models),
            *pareto_figures(results, models),
            *cost_figures(results),
            *loss_figures(models),
            *published_curve_figures(models),
            *layer_figures(results),
        ]
        for index, figure in enumerate(figures):
            progress(figure.name, index, len(figures))
            drawn[figure.name] = render(figure)
    values = [radar_table(radar)] if "radar" in drawn else []
    tables = [*values, *result_tables(models, settings), *cost_tables(results, counts), *run_tables(results)]
    tables = with_notes([table for table in tables if table.rows], results)
    updated = max((run.record.updated_at for run in results.runs), default="")
    when = f", up to {updated[:16].replace('T', ' ')} UTC" if updated else ""
    content = PageContent(
        title="1-Lipschitz layers compared",
        subtitle=visible(f"Records in {results.folder.resolve().name}{when}"),
        introduction="This comparison follows {paper}, called the paper below.",
        sections=_sections(figures, tables),
        files="Every table is beside this page as CSV, Markdown and LaTeX in `tables/`, every figure as SVG, PDF and "
        "PNG in `figures/`.",
        head_figures=head_figures(results),
        findings=findings(results, models),
        guidelines=GUIDELINES,
        warnings=warnings(results),
        notes=notes(results, models),
        baseline=baseline(models),
        absent=results.absent,
        candidates=_candidates(results),
    )
    texts, pictures = write_page(out / PAGE, content, drawn)
    unreadable = sum(row.status == "not readable" for row in results.missing_results)
    return WrittenReport(out / PAGE, tuple(texts), tuple(pictures), tuple(results.absent), unreadable)


def _sections(figures: Sequence[ReportFigure], tables: Sequence[ReportTable]) -> list[Section]:
    """Those that have anything to show; every report has an overview and an advisor."""
    sections = []
    for key, name in SECTIONS.items():
        side = Side([f for f in figures if f.section == key], [table for table in tables if table.section == key])
        if side.figures or side.tables or key in ("overview", "advisor"):
            sections.append(Section(key, name, name, [side]))
    return sections


def _candidates(study: StudyResults) -> list[tuple[str, Sequence[Candidate]]]:
    measured = measured_candidates(study)
    published = ("the paper's published results", published_candidates(study))
    return [("this study", measured), published] if measured else [published]
