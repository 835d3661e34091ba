"""The whole report from records: files, self-containment, partial studies."""

from __future__ import annotations

import errno
import itertools
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image
from synthetic_study import add_memory, add_times, add_training, written_report

from onelip.bench.cli import run as run_cli
from onelip.bench.report.figures.labels import spread_positions
from onelip.bench.report.method_style import method_style
from onelip.bench.report.write_report import WrittenReport, write_report
from onelip.errors import InvalidInputError
from onelip.layers import list_methods


@pytest.fixture(scope="module")
def report() -> WrittenReport:
    return written_report()[1]


@pytest.fixture(scope="module")
def page(report: WrittenReport) -> str:
    return report.page.read_text(encoding="utf-8")


def test_every_table_and_figure_is_there_in_all_formats(report: WrittenReport) -> None:
    tables = {path.stem for path in report.tables}
    assert {
        "radar-values",
        "ranking",
        "time",
        "memory",
        "operations",
        "layers",
        "theory",
        "failed-runs",
        "machines",
    } <= tables
    assert {"runs", "kernel-1x1", "accuracy-cifar10-mini", "full-cifar10-mini"} <= tables
    figures = {path.stem for path in report.figures}
    families = ("radar", "bars-certified", "bars-clean", "budgets", "radii", "pareto-training-time", "pareto-latency")
    families += ("pareto-memory", "training-time", "inference-throughput", "training-memory", "inference-memory")
    for family in (*families, "loss", "layers"):
        assert any(name.startswith(family) for name in figures), family
    for path in (*report.tables, *report.figures):
        assert path.stat().st_size > 100, path
    assert {path.suffix for path in report.figures} == {".svg", ".pdf", ".png"}
    assert not report.absent


def test_figure_files_are_what_their_names_say(report: WrittenReport) -> None:
    for path in report.figures:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert min(image.size) > 300
        elif path.suffix == ".pdf":
            assert path.read_bytes().startswith(b"%PDF")
        else:
            assert "</svg>" in path.read_text(encoding="utf-8")


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_loads_nothing_and_forbids_to(page: str) -> None:
    elements = _Elements()
    elements.feed(page)
    for tag, attributes in elements.tags:
        assert tag not in ("img", "iframe", "object", "embed"), tag
        assert "src" not in attributes, tag
        link = attributes.get("href") or attributes.get("xlink:href")
        paper = tag == "a" and link == "https://arxiv.org/abs/2311.16833"  # to be clicked on, not loaded
        assert link is None or paper or link.startswith(("#", "data:,")), link
    assert "default-src 'none'" in page
    assert "unsafe" not in page[: page.index("<title>")]
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    elements = _Elements()
    elements.feed(page)
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert wanted <= set(ids)


def test_every_figure_has_a_size_and_words_for_who_cannot_see_it(page: str, report: WrittenReport) -> None:
    elements = _Elements()
    elements.feed(page)
    pictures = [attributes for tag, attributes in elements.tags if tag == "svg"]
    assert len(pictures) == len(report.figures) // 3 + 1  # and the advisor's
    for attributes in pictures:
        assert int(attributes["width"] or 0) > 300
        assert int(attributes["height"] or 0) > 150
        assert len(attributes["aria-label"] or "") > 40


def test_failures_machines_commands_and_seeds_are_told(page: str) -> None:
    for words in (
        "the loss became nan at step 812",
        "needs 94.0 GiB",
        "not valid JSON",
        "torch 2",
        "± is the standard error",
    ):
        assert words in page, words


def test_one_colour_per_method_in_every_figure(page: str) -> None:
    """No method's own colour is left in the inlined figures: all come from the variables of the theme."""
    body = page[page.index("<main>") : page.index("</main>")]
    for key in ("aol", "lot", "soc", "standard"):
        assert method_style(key).light not in body
        assert f"var(--m-{key})" in page


def test_the_same_records_give_the_same_files(tmp_path: Path) -> None:
    with patch("os.fsync"):
        add_training(tmp_path / "study", methods=("aol", "soc"), sizes=("XS",), seeds=1)
    first = write_report(tmp_path / "study", tmp_path / "a")
    second = write_report(tmp_path / "study", tmp_path / "b")
    for left, right in zip(first.figures + first.tables, second.figures + second.tables, strict=True):
        assert left.read_bytes() == right.read_bytes(), left.name
    assert first.page.read_bytes() == second.page.read_bytes()


def test_training_alone_gives_a_report_that_says_what_is_missing(tmp_path: Path) -> None:
    with patch("os.fsync"):
        add_training(tmp_path, methods=("aol", "soc"), sizes=("XS",), budgets=(("20s", 20.0),), seeds=1)
    built = write_report(tmp_path)
    assert built.page == tmp_path / "report" / "report.html"
    names = {path.stem for path in built.figures}
    assert names == {
        "bars-certified-cifar10-mini",
        "bars-clean-cifar10-mini",
        "radii-cifar10-mini",
        "loss-cifar10-mini",
    }
    page = built.page.read_text()
    assert "What this report does not have" in page
    assert "<code>onelip measure time</code>" in page


def test_measurements_alone_give_a_report(tmp_path: Path) -> None:
    with patch("os.fsync"):
        add_times(tmp_path, sizes=("XS",))
        add_memory(tmp_path, sizes=("XS",))
    built = write_report(tmp_path)
    names = {path.stem for path in built.figures}
    assert names == {
        "radar",
        "radar-published",
        "training-time-cifar10-mini",
        "inference-throughput-cifar10-mini",
        "training-memory-cifar10-mini",
        "inference-memory-cifar10-mini",
    }
    page = built.page.read_text()
    assert "onelip train" in page


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no records"):
        write_report(tmp_path)


def test_nothing_changes_if_not_everything_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that is full at the tenth file: one line, exit code 2, the report of yesterday as it was."""
    with patch("os.fsync"):
        add_memory(tmp_path / "study", sizes=("XS",))
    command = ["report", str(tmp_path / "study"), "--out", str(tmp_path / "out"), "--no-theory"]
    assert run_cli(command) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with patch("os.fsync"):
        add_times(tmp_path / "study", sizes=("XS",))
    written = 0
    real = os.write

    def write(descriptor: int, content: bytes) -> int:
        nonlocal written
        written += 1
        if written == 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, content)

    capsys.readouterr()
    monkeypatch.setattr("onelip.atomic_files.os.write", write)
    assert run_cli(command) == 2
    monkeypatch.undo()
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "No space left on device" in error
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    (tmp_path / "file").write_text("")
    assert run_cli([*command[:3], str(tmp_path / "file" / "out"), "--no-theory"]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_the_command_says_where_the_report_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with patch("os.fsync"):
        add_memory(tmp_path / "study", sizes=("XS",))
    assert run_cli(["report", str(tmp_path / "study"), "--out", str(tmp_path / "out"), "--no-theory"]) == 0
    out = capsys.readouterr().out
    assert str(tmp_path / "out" / "report.html") in out
    assert "missing: No finished training" in out
    assert run_cli(["report", str(tmp_path / "absent")]) == 2
    assert "no such folder" in capsys.readouterr().err


VISION = {  # Machado, Oliveira and Fernandes (2009), full severity, on linear RGB
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear_rgb(colour: str) -> np.ndarray:
    share = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def cielab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(linear, 0, 1) / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#11151b")])
def test_colours_can_be_told_apart_by_everybody(theme: str, ground: str) -> None:
    """Distances of 15 are seen at a glance (2 can just be seen); WCAG asks for a contrast of 3 in graphics."""
    methods = ("aol", "bcop", "cayley", "cpl", "lot", "sll", "soc", "standard")
    colours = {key: linear_rgb(getattr(method_style(key), theme)) for key in methods}
    for vision, matrix in VISION.items():
        for a, b in itertools.combinations(methods, 2):
            distance = np.linalg.norm(cielab(np.array(matrix) @ colours[a]) - cielab(np.array(matrix) @ colours[b]))
            assert distance > 15, (vision, a, b, distance)
    weights = np.array([0.2126, 0.7152, 0.0722])
    behind = float(weights @ linear_rgb(ground)) + 0.05
    for key, colour in colours.items():
        before = float(weights @ colour) + 0.05
        assert max(before, behind) / min(before, behind) >= 4, key


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_method_has_a_colour_and_a_look_of_its_own(theme: str) -> None:
    styles = [method_style(method.key) for method in list_methods()]
    assert len({(style.marker, style.dashes) for style in styles}) == len(styles)
    for a, b in itertools.combinations(styles, 2):
        colours = [cielab(linear_rgb(getattr(style, theme))) for style in (a, b)]
        assert np.linalg.norm(colours[0] - colours[1]) > 10, (a.key, b.key)


def test_labels_keep_their_distance_and_order() -> None:
    placed = spread_positions([0.5, 0.5, 0.52, 0.1, 0.99, 1.0], 0.08, 0.0, 1.0)
    ordered = sorted(placed)
    assert all(b - a >= 0.08 - 1e-9 for a, b in itertools.pairwise(ordered))
    assert 0 <= ordered[0] <= ordered[-1] <= 1
    assert placed[3] == 0.1, "a label with room stays where it is"
    assert spread_positions([0.5] * 3, 0.1, 0.0, 1.0) == pytest.approx([0.4, 0.5, 0.6]), "to both sides"
    assert spread_positions([], 0.1, 0.0, 1.0) == []
    crowded = spread_positions([0.5] * 20, 0.1, 0.0, 1.0)
    assert sorted(crowded)[0] >= -1e-9
    assert sorted(crowded)[-1] <= 1 + 1e-9
