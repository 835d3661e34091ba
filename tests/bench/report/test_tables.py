"""Tables in all formats: bold where best, readable back, safe in LaTeX and Markdown."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from synthetic_study import add_training, finish, train_config, train_metrics

from onelip.bench.published import published_results
from onelip.bench.report.evidence import read_evidence
from onelip.bench.report.result_tables import ranking_table, result_tables
from onelip.bench.report.summaries import Spread, all_settings, chosen_models
from onelip.bench.report.tables import Cell, Column, Table, method, number, percent, scientific, text, with_best
from onelip.bench.report.writers import latex_escape, to_csv, to_latex, to_markdown

COLUMNS = (Column("Method", numeric=False), Column("XS", "Accuracy [%]"), Column("S", "Accuracy [%]"))


def small_table() -> Table:
    rows = [
        (method("soc"), percent(Spread(0.7123456, 0.004, 3)), percent(0.5)),
        (method("aol"), percent(Spread(0.69, 0.001, 3)), percent(None)),
    ]
    return Table("small", "accuracy", "A_title", "50 % of | all", COLUMNS, with_best(rows, (1, 2)))


def test_csv_has_full_values_and_deviations() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(small_table()))))
    assert rows[0] == ["Method", "Accuracy [%] XS", "Accuracy [%] XS deviation", "Accuracy [%] S"]
    assert rows[1] == ["soc", "71.23456", "0.4", "50.0"]
    assert rows[2] == ["aol", "69.0", "0.1", ""]


def test_markdown_is_one_pipe_table_with_the_best_in_bold() -> None:
    lines = to_markdown(small_table()).splitlines()
    assert lines[2] == "| Method | Accuracy [%] XS | Accuracy [%] S |"
    assert lines[3] == "| :--- | ---: | ---: |"
    assert lines[4] == "| SOC | **71.2 ± 0.4** | 50.0 |"
    assert lines[5] == "| AOL | 69.0 ± 0.1 | - |"


def test_latex_is_a_booktabs_table() -> None:
    latex = to_latex(small_table())
    assert r"\multicolumn{2}{c}{Accuracy [\%]}" in latex
    assert r"\cmidrule(lr){2-3}" in latex
    assert r" SOC & \textbf{71.2 $\pm$ 0.4} & 50.0 \\" in latex
    assert r"\begin{tabular}{lrr}" in latex
    assert r"\textbf{A\_title.} 50 \% of | all" in latex
    for command in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{table}", r"\end{table}"):
        assert latex.count(command) == 1
    body = latex[latex.index(r"\midrule") : latex.index(r"\bottomrule")]
    assert all(line.count("&") == 2 for line in body.splitlines()[1:] if line.strip())


def test_latex_specials_are_escaped() -> None:
    assert latex_escape(r"a_b & 5% {x} ~ ^ # $ \ <") == (
        r"a\_b \& 5\% \{x\} \textasciitilde{} \textasciicircum{} \# \$ \textbackslash{} $<$"
    )


def test_best_marks_ties_leaves_baselines_out_and_needs_a_rival() -> None:
    rows = [
        (method("soc"), number(1.0), text("a")),
        (method("aol"), number(1.0), text("a")),
        (method("standard"), number(9.0), text("a")),
        (method("cpl"), number(0.7), text("a")),
        (method("lot"), number(0.5), text("b")),
    ]
    marked = with_best(rows, (1,), same=lambda row: row[2].text)
    assert [row[1].best for row in marked] == [True, True, False, False, False]
    lowest = with_best([*rows[:1], (method("cpl"), number(0.1), text("a"))], (1,), lowest=True)
    assert [row[1].best for row in lowest] == [False, True]
    zeros = with_best([(method(key), number(0.0)) for key in ("aol", "soc")], (1,))
    assert not any(row[1].best for row in zeros), "where all are equal none is best"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.06, "6e-2"), (7e-6, "7e-6"), (0.0123, "1.2e-2"), (0.0, "0"), (None, "-")]
)
def test_learning_rates(value: float | None, shown: str) -> None:
    assert scientific(value).text == shown


def test_nan_and_infinity_are_dashes_without_a_value() -> None:
    assert number(float("nan")) == number(float("inf")) == number(None) == Cell("-")


def test_accuracy_table_is_like_the_papers(tmp_path: Path) -> None:
    add_training(tmp_path, methods=("aol", "lot", "standard"), sizes=("XS", "S"), seeds=1)
    settings = all_settings(read_evidence(tmp_path).training)
    table = result_tables(chosen_models(settings), settings)[0]
    assert [f"{c.group} {c.title}".strip() for c in table.columns] == [
        "Budget",
        "Method",
        "Accuracy [%] XS",
        "Accuracy [%] S",
        "Certified accuracy [%] XS",
        "Certified accuracy [%] S",
    ]
    assert [(row[0].text, row[1].value) for row in table.rows] == [
        (budget, key) for budget in ("20s", "1m") for key in ("aol", "lot", "standard")
    ]
    best = {(row[0].text, row[1].value) for row in table.rows if row[4].best}
    assert best == {("20s", "lot"), ("1m", "lot")}
    assert "One seed" in table.caption


def test_the_published_figures_stand_beside_the_same_model(tmp_path: Path) -> None:
    finish(tmp_path, "train", train_config("soc", "M", "cifar10", "24h"), train_metrics(0.6, 0.7, 86400.0))
    finish(tmp_path, "train", train_config("soc", "M", "cifar10", "3h"), train_metrics(0.5, 0.6, 10800.0))
    settings = all_settings(read_evidence(tmp_path).training)
    full = next(t for t in result_tables(chosen_models(settings), settings) if t.name == "full-cifar10")
    printed = {row[3].text: (row[-2].text, row[-1].text) for row in full.rows}
    assert printed == {"24h": ("76.9", "66.3"), "3h": ("-", "-")}


def test_the_kernel_table_has_both_kernels(tmp_path: Path) -> None:
    for kernel in (1, 3):
        add_training(tmp_path, methods=("aol",), sizes=("XS",), budgets=(("1m", 60.0),), seeds=1, kernel_size=kernel)
    settings = all_settings(read_evidence(tmp_path).training)
    table = next(t for t in result_tables(chosen_models(settings), settings) if t.name == "kernel-1x1")
    (row,) = table.rows
    one, three = float(str(row[5].value)), float(str(row[7].value))
    assert three > one > 0
    assert row[8].value == pytest.approx(one - three, abs=1e-5)


def test_the_ranking_of_the_published_models_is_the_papers(tmp_path: Path) -> None:
    """The paper's 24 h tables, put into records, give the counts that its text names."""
    for row in published_results():
        if row.train_hours == 24 and row.kernel_size == 3 and not row.failed:
            metrics = {
                "test_accuracy": row.accuracy / 100,
                "test_certified_accuracy_36": row.certified_accuracy_36 / 100,
            }
            finish(tmp_path, "train", train_config(row.key, row.size, row.dataset, "24h"), metrics)
    table = ranking_table(chosen_models(all_settings(read_evidence(tmp_path).training)))
    counts = {row[0].value: tuple(int(float(str(cell.value))) for cell in row[2:5]) for row in table.rows}
    assert counts["soc"][:2] == (2, 6)
    assert counts["cpl"][1:] == (2, 9)
    assert counts["lot"][0] == 1
    assert counts["aol"][2] == 5
    assert counts["sll"][2] == counts["bcop"][2] == 1
