from __future__ import annotations

import csv
import io
import json

import pytest

from onelip.bench.cli import run
from onelip.bench.paper import published


def test_every_row_is_there_and_typed() -> None:
    results = published.published_results()
    assert len(results) == 333
    assert {row.dataset for row in results} == {"cifar10", "cifar100", "tiny-imagenet"}
    assert {row.train_hours for row in results} == {2, 10, 24}
    assert {row.size for row in results} == {"XS", "S", "M", "L"}
    assert all(0 < row.certified_accuracy_36 < row.accuracy < 100 for row in results if not row.failed)
    failed = [row for row in results if row.failed]
    assert len(failed) == 9
    assert all(row.accuracy == {"cifar10": 10.0, "cifar100": 1.0}[row.dataset] for row in failed)
    assert {(r.key, r.size) for r in failed if r.kernel_size == 3} == {("cpl", "S")}
    assert all(1e-4 <= row.learning_rate <= 1e-1 for row in results)
    models = {(r.dataset, r.kernel_size, r.method, r.size, r.train_hours) for r in results}
    assert len(models) == len(results)


def test_known_values() -> None:
    (row,) = [
        row
        for row in published.published_results()
        if (row.dataset, row.kernel_size, row.key, row.size, row.train_hours) == ("cifar10", 3, "soc", "M", 24)
    ]
    assert (row.accuracy, row.certified_accuracy_36) == (76.9, 66.3)
    epochs = {(row.dataset, row.key, row.size): row.epochs for row in published.published_epochs()}
    assert len(epochs) == 64
    assert epochs["cifar", "cayley", "XS"] == 356
    assert epochs["tiny-imagenet", "lot", "L"] is None
    best = {row.model: row for row in published.published_state_of_the_art()}
    assert best["SLL X-Large"].certified_255 == 27.3
    assert best["BCOP Large"].certified_72 is None


def test_command_prints_csv_that_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["published", "--dataset", "cifar10", "--hours", "2", "24", "--kernel-size", "1", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["train_hours"] for row in rows} == {"2", "24"}
    assert {row["kernel_size"] for row in rows} == {"1"}
    assert len(rows) == 60


def test_command_prints_the_ranking_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["published", "ranking", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "method": "SOC",
        "first": 2,
        "top3": 6,
        "top10": 8,
        "score": 16,
    }


@pytest.mark.parametrize("table", ["results", "ranking", "epochs", "sota"])
def test_tables_fit_80_columns_uncut(
    table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["published", table]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    assert any("SOC" in line for line in lines)
    if table == "results":  # one line per model: nothing was wrapped
        assert sum("  24 " in line for line in lines) == 81


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "mnist"], "--dataset mnist: choose from cifar10, cifar100, tiny-imagenet"),
        (["--hours", "5"], "--hours 5: choose from 2, 10, 24"),
        (["--method", "lot", "--size", "L"], "the paper has no results for this choice"),
        (["ranking", "--hours", "2", "24"], "exactly one value of --hours"),
        (["--json", "--csv"], "choose one of --json and --csv"),
    ],
)
def test_bad_choices_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["published", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
