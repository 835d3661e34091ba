"""The paper's tables and figures beside ours."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import synthetic_study
from synthetic_study import finish, layers, network

from onelip.bench.cli import run
from onelip.bench.paper.architecture import SANDWICH_GRADIENTS
from onelip.bench.paper.complexity import known_counts, published_training_memory
from onelip.bench.report.figures.curves import published_curve_figures
from onelip.bench.report.figures.drawing import ReportFigure, figure_style
from onelip.bench.report.page import Part
from onelip.bench.report.paper_items import ITEMS, PAGE, PaperSources
from onelip.bench.report.read_study import read_study
from onelip.bench.report.report_table import ReportTable
from onelip.bench.report.study_rows import TrainedRun
from onelip.bench.report.table_files import to_csv
from onelip.bench.report.trained_models import all_settings, chosen_models

FLOATS = {f"Figure {n}" for n in range(1, 10)} | {f"Table {n}" for n in range(1, 13)}
"""All floats in the source of the paper, appendix included."""


def gradients(scale: float) -> list[dict[str, object]]:
    rows = layers(0.9)[:1]
    for place, (path, _, norm) in enumerate(SANDWICH_GRADIENTS):
        row = {"path": f"{path}.conv1" if "block" in path else path, "kind": "x", "output_shape": [1], "variance": 1.0}
        row |= {"norm_estimate": 1.0, "bound": 1.0, "bound_product": float("inf")}
        rows.append(row | {"gradient_norm": scale * norm if place else scale})
    return rows


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Sequence[Part], Sequence[Part]]]:
    """Every item, published and ours, of a small study that has everything."""
    study = tmp_path_factory.mktemp("study")
    few: dict[str, Any] = {"methods": ("aol", "soc"), "sizes": ("XS",), "seeds": 1}
    synthetic_study.add_training(study, datasets=("cifar10", "cifar100", "tiny-imagenet"), **few)
    synthetic_study.add_training(study, datasets=("cifar10",), kernel_size=1, **few)
    for dataset in ("cifar10", "tiny-imagenet"):
        synthetic_study.add_times(study, dataset=dataset, sizes=("XS",))
        synthetic_study.add_memory(study, dataset=dataset, sizes=("XS",))
    for method in ("eco", "sandwich"):
        for setting in ("published", "own"):
            config = {"network": network(method), "setting": setting}
            finish(study, "diagnose", config, {"diagnostics": gradients(2.0 if setting == "published" else 1.0)})
    given = PaperSources(read_study(study), known_counts())
    with figure_style():
        return {item.name: item.build(given) for item in ITEMS}


def test_every_float_of_the_paper_has_an_item() -> None:
    places = {item.place for item in ITEMS} - {"Section 5.3", "Tables 5 to 7"}
    assert places | {"Table 5", "Table 6", "Table 7"} == FLOATS
    docs = (Path(__file__).parents[3] / "docs" / "reproduction.md").read_text()
    assert f"onelip paper --list                    # all {len(ITEMS)} names" in docs


def test_both_sides_are_there_for_a_study_with_everything(parts: dict[str, Any]) -> None:
    for name, sides in parts.items():
        for side, found in zip(("published", "ours"), sides, strict=True):
            assert found, f"{name} has no part that is {side}"
            assert all(isinstance(part, ReportFigure) or part.rows for part in found), f"{name}: an empty table"


def rows(parts: Sequence[Part], name: str = "") -> list[dict[str, str]]:
    (table,) = (part for part in parts if name in part.name)
    assert isinstance(table, ReportTable)
    return list(csv.DictReader(to_csv(table).splitlines()))


def test_published_numbers_are_the_printed_ones(parts: dict[str, Any]) -> None:
    soc = next(r for r in rows(parts["results"][0], "cifar10-") if r["Method"] == "soc")
    assert (soc["M certified"], soc["M accuracy"]) == ("66.3", "76.9")
    lot = next(r for r in rows(parts["cifar100"][0]) if (r["Method"], r["Size"]) == ("lot", "S"))
    assert (lot["LR"], lot["Certified [%] 24h"]) == ("0.05", "32.5")
    broken = next(r for r in rows(parts["kernel-1x1"][0]) if (r["Method"], r["Size"]) == ("sll", "M"))
    assert broken["Certified [%] 24h"] == "0.0"
    assert next(r for r in rows(parts["epochs"][0]) if r["Method"] == "eco")["cifar XS"] == "399"


def test_gradients_of_sandwich_stand_in_the_rows_of_the_paper(parts: dict[str, Any]) -> None:
    ours = {row["Here"]: row for row in rows(parts["sandwich"][1])}
    assert float(ours["block3"]["Gradient norm published layers, XS"]) == pytest.approx(2 * 7.83e-4)
    assert float(ours["linear"]["Gradient norm own layers, XS"]) == pytest.approx(0.182)


def test_formulas_of_the_paper_say_that_lot_does_not_fit() -> None:
    """71.5 GiB for parameters and activations alone, before momentum: the paper says that 80 GB are not enough."""
    assert published_training_memory("lot", "L", 32) > 70 * 2**30
    assert published_training_memory("aol", "L", 32) < 4 * 2**30


def with_recipe(run: TrainedRun, recipe: str) -> TrainedRun:
    return dataclasses.replace(run, spec=dataclasses.replace(run.spec, recipe=recipe))


def test_our_trainings_are_drawn_over_the_published_ones(tmp_path: Path) -> None:
    synthetic_study.add_training(tmp_path, methods=("aol", "standard"), sizes=("XS",),
                                 datasets=("cifar10", "cifar10-mini"), seeds=1)  # fmt: skip
    models = chosen_models(all_settings(read_study(tmp_path).trained))
    (figure,) = published_curve_figures(models)
    assert figure.name == "published-curves-xs"
    losses, certified = figure.figure.axes
    published, ours = losses.get_lines()[:2]
    assert float(published.get_ydata()[0]) == 0.9  # type: ignore[index] - an array
    assert list(ours.get_xdata()) == list(range(20))  # type: ignore[arg-type] - an array
    assert [line.get_marker() for line in certified.get_lines()[:2]] == ["None", "o"]
    elsewhere = [dataclasses.replace(m, network=dataclasses.replace(m.network, size="L")) for m in models]
    assert published_curve_figures(elsewhere) == []
    short = [dataclasses.replace(m, runs=tuple(with_recipe(r, "short") for r in m.runs)) for m in models]
    assert published_curve_figures(short) == [], "another recipe has another loss and another schedule"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["paper", "sandwich", "architecture", "--out", str(tmp_path / "out")]) == 0
    assert "sandwich: no records of ours; onelip reproduce --defects" in capsys.readouterr().out
    assert (tmp_path / "out" / "ours" / "sizes-ours.csv").exists()
    page = (tmp_path / "out" / PAGE).read_text()
    assert "default-src 'none'" in page
    assert page.count('<section class="part"') == 3, "an overview and both items"
    assert "No records: <code>onelip reproduce --defects</code> makes them." in page
    assert run(["paper", "--list"]) == 0
    assert "kernel-1x1" in capsys.readouterr().out
    assert run(["paper", "table-99", "--out", str(tmp_path / "none")]) == 2
    assert not (tmp_path / "none").exists()
