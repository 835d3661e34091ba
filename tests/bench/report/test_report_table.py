"""Tables in all formats: bold where best, readable back, safe in LaTeX and Markdown."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from synthetic_study import add_training, finish, train_config, train_metrics

from onelip.bench.paper.published import published_results
from onelip.bench.records.views import MedianTime
from onelip.bench.report.read_study import read_study
from onelip.bench.report.report_table import (
    METHOD,
    Column,
    ReportTable,
    duration,
    memory,
    scientific,
    three_digits,
    with_prefix,
    words,
)
from onelip.bench.report.result_tables import result_tables
from onelip.bench.report.shares import Share
from onelip.bench.report.table_files import to_csv, to_latex, to_markdown
from onelip.bench.report.trained_models import all_settings, chosen_models

COLUMNS = (METHOD, Column("XS", "Accuracy [%]", best="highest"), Column("S", "Accuracy [%]"))


def small_table() -> ReportTable:
    rows = [("soc", Share(0.7123456, 0.004, 3), Share(0.5, None, 1)), ("aol", Share(0.69, 0.001, 3), None)]
    return ReportTable("small", "accuracy", "A_title", "50 % of | all", COLUMNS, rows)


def test_csv_has_full_values_and_errors() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(small_table()))))
    titles = ["Method", "Accuracy [%] XS", "Accuracy [%] XS error", "Accuracy [%] S", "Accuracy [%] S error"]
    assert rows[0] == titles
    assert rows[1] == ["soc", "71.23456", "0.4", "50.0", ""]
    assert rows[2] == ["aol", "69.0", "0.1", "", ""]


def test_csv_has_the_intervals_of_times_and_whole_numbers() -> None:
    rows = [(MedianTime(1.5, 1.25, 1.75), 3, "=2+2"), (None, None, "-")]
    table = ReportTable("t", "costs", "T", "c", (Column("ratio"), Column("n"), words("note")), rows)
    found = list(csv.reader(io.StringIO(to_csv(table))))
    assert found[0] == ["ratio", "ratio low", "ratio high", "n", "note"]
    assert found[1] == ["1.5", "1.25", "1.75", "3", "'=2+2"]
    assert found[2] == ["", "", "", "", "'-"]


def test_markdown_is_one_pipe_table_with_the_best_in_bold() -> None:
    lines = to_markdown(small_table()).splitlines()
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


def best_in(rows: list[tuple[object, ...]], best: str = "highest") -> set[tuple[int, int]]:
    columns = (METHOD, Column("value", best=best), words("group"))  # pyright: ignore[reportArgumentType]
    return ReportTable("t", "s", "T", "c", columns, rows, best_within=("group",)).best


def test_best_marks_what_cannot_be_told_from_it_leaves_baselines_out_and_needs_a_rival() -> None:
    rows: list[tuple[object, ...]] = [
        ("soc", Share(0.60, 0.01, 1), "a"),
        ("aol", Share(0.59, 0.01, 1), "a"),
        ("standard", Share(0.90, 0.01, 1), "a"),
        ("cpl", Share(0.40, 0.01, 1), "a"),
        ("lot", Share(0.30, 0.01, 1), "b"),
    ]
    assert best_in(rows) == {(0, 1), (1, 1)}
    assert best_in([("soc", 2.0, "a"), ("aol", 1.0, "a"), ("cpl", None, "a")], "lowest") == {(1, 1)}
    assert best_in([("soc", 0.0, "a"), ("aol", 0.0, "a")]) == set(), "where all are equal none is best"
    overlapping = [
        ("soc", MedianTime(1.0, 0.9, 1.1), "a"),
        ("aol", MedianTime(1.05, 1.0, 1.2), "a"),
        ("cpl", MedianTime(3, 2.9, 3.1), "a"),
    ]
    assert best_in(list(overlapping), "lowest") == {(0, 1), (1, 1)}


@pytest.mark.parametrize(("value", "shown"), [(0.06, "6e-2"), (7e-6, "7e-6"), (0.0123, "1.2e-2"), (0.0, "0")])
def test_learning_rates(value: float, shown: str) -> None:
    assert scientific(value) == shown


def test_numbers_are_legible() -> None:
    assert [memory(x) for x in (17.5 * 2**20, 2.314 * 2**30, 94 * 2**30)] == ["17.5 MiB", "2.31 GiB", "94.0 GiB"]
    assert [three_digits(x) for x in (2813.0, 0.123456, 12.0, 1.0)] == ["2,810", "0.123", "12", "1"]
    assert [with_prefix(x) for x in (9.7e9, 1210, 7)] == ["9.70 G", "1.21 k", "7"]
    assert [duration(x) for x in (0.0123, 12.34, 210, 7200)] == ["12.3 ms", "12.3 s", "3.50 min", "2.00 h"]


def tables_of(folder: Path) -> dict[str, ReportTable]:
    settings = all_settings(read_study(folder).trained)
    return {table.name: table for table in result_tables(chosen_models(settings), settings)}


def test_accuracy_table_is_like_the_papers(tmp_path: Path) -> None:
    add_training(tmp_path, methods=("aol", "lot", "standard"), sizes=("XS", "S"), seeds=1)
    table = tables_of(tmp_path)["accuracy-cifar10-mini"]
    titles = [column.full_title for column in table.columns]
    assert titles == ["Method", "Budget", "XS certified", "XS accuracy", "S certified", "S accuracy"]
    assert [(row[1], row[0]) for row in table.rows] == [
        (budget, key) for budget in ("20s", "1m") for key in ("aol", "lot", "standard")
    ]
    assert {table.rows[row][:2] for row, column in table.best if column == 4} == {("lot", "1m")}, (
        "after 20 s the two cannot be told apart, and neither is best"
    )


def test_the_paper_stands_beside_the_same_model(tmp_path: Path) -> None:
    finish(tmp_path, "train", train_config("soc", "M", "cifar10", "24h"), train_metrics(0.6, 0.765, 86400.0))
    finish(tmp_path, "train", train_config("soc", "M", "cifar10", "3h"), train_metrics(0.5, 0.6, 10800.0))
    table = tables_of(tmp_path)["reproduction"]
    (texts,) = table.texts
    assert texts[3] == "24h"
    assert texts[6] == "66.3 ± 0.5"
    assert (texts[8], texts[12]) == ("below", "agree")


def test_the_kernel_table_has_both_kernels(tmp_path: Path) -> None:
    for kernel in (1, 3):
        add_training(tmp_path, methods=("aol",), sizes=("XS",), budgets=(("1m", 60.0),), seeds=1, kernel_size=kernel)
    (row,) = tables_of(tmp_path)["kernel-1x1"].rows
    one, three, gap = row[4], row[6], row[8]
    assert three.mean > one.mean > 0
    assert gap.mean == pytest.approx(one.mean - three.mean)
    assert gap.error == pytest.approx((one.error**2 + three.error**2) ** 0.5)


def test_the_ranking_of_the_published_models_is_the_papers(tmp_path: Path) -> None:
    """The paper's 24 h tables, put into records, give the counts that its text names."""
    for row in published_results():
        if row.train_hours == 24 and row.kernel_size == 3 and not row.failed:
            metrics = {
                "test_accuracy": row.accuracy / 100,
                "test_certified_accuracy_36": row.certified_accuracy_36 / 100,
            }
            finish(tmp_path, "train", train_config(row.key, row.size, row.dataset, "24h"), metrics)
    counts = {row[0]: row[2:5] for row in tables_of(tmp_path)["ranking"].rows}
    assert counts["soc"][:2] == (2, 6)
    assert counts["cpl"][1:] == (2, 9)
    assert counts["lot"][0] == 1
    assert counts["aol"][2] == 5
    assert counts["sll"][2] == counts["bcop"][2] == 1
