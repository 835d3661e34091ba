"""`build_report`: a folder of records becomes a page, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onelip.atomic_files import write_atomically
from onelip.bench.report.advice import Candidate
from onelip.bench.report.candidates import measured_candidates, published_candidates
from onelip.bench.report.cost_tables import Theory, cost_tables, layer_table, theory_table
from onelip.bench.report.evidence import read_evidence
from onelip.bench.report.figures.bars import accuracy_bars
from onelip.bench.report.figures.canvas import ReportFigure, figure_style, inline_svg, save_figure
from onelip.bench.report.figures.costs import cost_figures
from onelip.bench.report.figures.curves import budget_figures, loss_figures, radius_figures
from onelip.bench.report.figures.layers import layer_figures
from onelip.bench.report.figures.pareto import pareto_figures
from onelip.bench.report.figures.radar import radar_figures
from onelip.bench.report.findings import facts, findings
from onelip.bench.report.page import PageContent, render_page
from onelip.bench.report.result_tables import radar_table, ranking_table, result_tables
from onelip.bench.report.rows import Evidence
from onelip.bench.report.run_tables import run_tables
from onelip.bench.report.scores import RULE, RadarScores, radar_scores
from onelip.bench.report.summaries import ModelSummary, all_settings, chosen_models
from onelip.bench.report.tables import Table
from onelip.bench.report.writers import to_csv, to_latex, to_markdown
from onelip.errors import InvalidInputError

PAGE = "report.html"


@dataclass(frozen=True)
class BuiltReport:
    """Where the parts are, and what the evidence did not have."""

    page: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    missing: tuple[str, ...]


def build_report(
    study: Path,
    out: Path | None = None,
    *,
    theory: Theory | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> BuiltReport:
    """Write `report.html`, `tables/` and `figures/` into `out` (by default the folder `report` in the study).

    Args:
        study: folder of runs; those in its sub-folders count too.
        out: where to write.
        theory: the complexity table, which no record holds.
        progress: called with the name of a figure, how many are done and how many there are.
    """
    evidence = read_evidence(study)
    if not evidence.runs and not evidence.problems:
        raise InvalidInputError(f"{study}: there are no records of runs in this folder")
    out = study / "report" if out is None else out
    settings = all_settings(evidence.training)
    models = chosen_models(settings)
    scores = radar_scores(evidence)
    tables = _all_tables(evidence, models, settings, scores, theory)
    table_files = _write_tables(tables, out / "tables")
    methods = _methods(evidence, theory)
    with figure_style():
        figures = _all_figures(evidence, models, scores)
        inlined: list[tuple[ReportFigure, str]] = []
        for index, figure in enumerate(figures):
            progress(figure.name, index, len(figures))
            inlined.append((figure, inline_svg(figure, save_figure(figure, out / "figures"), methods)))
    page = render_page(_content(evidence, models, scores, tables, inlined, methods))
    write_atomically(out / PAGE, page.encode())
    pictures = tuple(out / "figures" / f"{figure.name}.{form}" for figure in figures for form in ("svg", "pdf", "png"))
    return BuiltReport(out / PAGE, table_files, pictures, tuple(evidence.missing))


def _content(
    evidence: Evidence,
    models: Sequence[ModelSummary],
    scores: RadarScores,
    tables: Sequence[Table],
    figures: Sequence[tuple[ReportFigure, str]],
    methods: Sequence[str],
) -> PageContent:
    return PageContent(
        title="1-Lipschitz layers compared",
        subtitle=_subtitle(evidence),
        facts=facts(evidence),
        findings=findings(evidence, models),
        missing=evidence.missing,
        rule=RULE if any(figure.name == "radar" for figure, _ in figures) else (),
        rule_notes=scores.notes,
        tables=tables,
        figures=figures,
        candidates=_candidates(evidence),
        methods=methods,
    )


def _all_tables(
    evidence: Evidence,
    models: Sequence[ModelSummary],
    settings: Sequence[ModelSummary],
    scores: RadarScores,
    theory: Theory | None,
) -> list[Table]:
    tables = [radar_table(scores), ranking_table(models)]
    tables += [*result_tables(models, settings), *cost_tables(evidence), *layer_table(evidence)]
    tables += [theory_table(theory)] if theory is not None else []
    return [table for table in (*tables, *run_tables(evidence)) if table.rows]


def _all_figures(evidence: Evidence, models: Sequence[ModelSummary], scores: RadarScores) -> list[ReportFigure]:
    return [
        *radar_figures(scores),
        *accuracy_bars(models),
        *budget_figures(models),
        *radius_figures(models),
        *pareto_figures(evidence, models),
        *cost_figures(evidence),
        *loss_figures(models),
        *layer_figures(evidence),
    ]


def _write_tables(tables: Sequence[Table], folder: Path) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        for suffix, write in (("csv", to_csv), ("md", to_markdown), ("tex", to_latex)):
            path = folder / f"{table.name}.{suffix}"
            path.write_text(write(table), encoding="utf-8")
            written.append(path)
    return tuple(written)


def _methods(evidence: Evidence, theory: Theory | None) -> list[str]:
    """All methods that the page may colour, the paper's among them for the advisor."""
    found = {run.record.network.method for run in evidence.runs}
    found |= {candidate.method for candidate in published_candidates()}
    return sorted(found | {line.method for line in (theory.lines if theory else ())})


def _candidates(evidence: Evidence) -> list[tuple[str, Sequence[Candidate]]]:
    measured = measured_candidates(evidence)
    published = ("the paper's published results", published_candidates(evidence))
    return [("this study", measured), published] if measured else [published]


def _subtitle(evidence: Evidence) -> str:
    newest = max((run.record.updated_at for run in evidence.runs), default="")
    when = f", up to {newest[:16].replace('T', ' ')} UTC" if newest else ""
    return f"Records in {evidence.folder.resolve().name}{when}"
