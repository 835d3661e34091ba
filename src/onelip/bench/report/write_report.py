"""`write_report`: a folder of records becomes a page, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onelip.atomic_files import check_place, remove_temporaries, replace_files
from onelip.bench.file_lock import RunLock
from onelip.bench.report.advice import Candidate
from onelip.bench.report.candidates import measured_candidates, published_candidates
from onelip.bench.report.cost_tables import LayerTheory, cost_tables
from onelip.bench.report.figures.bars import accuracy_bars
from onelip.bench.report.figures.cost_lines import cost_figures
from onelip.bench.report.figures.curves import budget_figures, loss_figures, radius_figures
from onelip.bench.report.figures.drawing import FigureFiles, ReportFigure, figure_style, render
from onelip.bench.report.figures.layer_lines import layer_figures
from onelip.bench.report.figures.pareto import pareto_figures
from onelip.bench.report.figures.published_overlay import published_curve_figures
from onelip.bench.report.figures.radar import radar_figures
from onelip.bench.report.findings import baseline, findings, head_figures
from onelip.bench.report.page import PageContent, render_page
from onelip.bench.report.radar_scale import published_radar, radar_table, study_radar
from onelip.bench.report.read_study import read_study
from onelip.bench.report.report_table import METHOD
from onelip.bench.report.result_tables import result_tables
from onelip.bench.report.run_tables import run_tables
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.report.table_files import TABLE_FORMATS
from onelip.bench.report.trained_models import TrainedModel, all_settings, chosen_models
from onelip.bench.terminal import visible
from onelip.errors import InvalidInputError

PAGE = "report.html"


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
    theory: LayerTheory | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> WrittenReport:
    """Write `report.html`, `tables/` and `figures/` into `out` (by default the folder `report` in the study).

    Nothing is written before all of it is made, and no file is replaced before all of them are on the disk.

    Args:
        study: folder of runs; those in its sub-folders count too.
        out: where to write.
        theory: the complexity table, which no record holds.
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
    drawn: list[tuple[ReportFigure, FigureFiles]] = []
    with figure_style():
        radars = radar_figures(radar, published_radar())
        figures = [*radars, *_figures(results, models)]
        for index, figure in enumerate(figures):
            progress(figure.name, index, len(figures))
            drawn.append((figure, render(figure)))
    values = [radar_table(radar)] if radars else []
    tables = [*values, *result_tables(models, settings), *cost_tables(results, theory), *run_tables(results)]
    tables = [table for table in tables if table.rows]
    candidates = _candidates(results)
    keys = {row[table.columns.index(METHOD)] for table in tables if METHOD in table.columns for row in table.rows}
    keys |= {candidate.method for _, own in candidates for candidate in own}
    updated = max((run.updated_at for run in results.runs), default="")
    when = f", up to {updated[:16].replace('T', ' ')} UTC" if updated else ""
    page = render_page(
        PageContent(
            title="1-Lipschitz layers compared",
            subtitle=visible(f"Records in {results.folder.resolve().name}{when}"),
            head_figures=head_figures(results),
            findings=findings(results, models),
            baseline=baseline(models),
            absent=results.absent,
            tables=tables,
            figures=drawn,
            candidates=candidates,
            methods=sorted({key for key in keys if key} | {"standard", "reference"}),
        )
    )
    texts = {
        out / "tables" / f"{t.name}.{form}": write(t).encode() for t in tables for form, write in TABLE_FORMATS.items()
    }
    pictures = {
        out / "figures" / f"{figure.name}.{form}": getattr(files, form)
        for figure, files in drawn
        for form in ("svg", "pdf", "png")
    }
    lock = RunLock(out)  # what a killed writer has left can be told from what another one is writing
    try:
        for folder in (out, out / "tables", out / "figures"):
            remove_temporaries(folder)
        replace_files({**texts, **pictures, out / PAGE: page.encode()})
    finally:
        lock.release()
    unreadable = sum(row.status == "not readable" for row in results.missing_results)
    return WrittenReport(out / PAGE, tuple(texts), tuple(pictures), tuple(results.absent), unreadable)


def _figures(study: StudyResults, models: Sequence[TrainedModel]) -> list[ReportFigure]:
    return [
        *accuracy_bars(models),
        *budget_figures(models),
        *radius_figures(models),
        *pareto_figures(study, models),
        *cost_figures(study),
        *loss_figures(models),
        *published_curve_figures(models),
        *layer_figures(study),
    ]


def _candidates(study: StudyResults) -> list[tuple[str, Sequence[Candidate]]]:
    measured = measured_candidates(study)
    published = ("the paper's published results", published_candidates(study))
    return [("this study", measured), published] if measured else [published]
