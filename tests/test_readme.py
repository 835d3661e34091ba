"""What the README says is true: its example runs, its figures are recorded ones, its files exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from shipped_methods import SHIPPED

from onelip import pretrained
from onelip.layers import get_method

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert "onelip.bench" not in example  # `pip install .` is enough for it
    exec(example, names := {})  # the code that users copy
    assert (names["certificate"].radii > 0).any()
    assert "tensor" in capsys.readouterr().out


def test_the_tables_have_the_recorded_figures() -> None:
    """`python docs/readme_tables.py` writes them."""
    with_tables = runpy.run_path(str(ROOT / "docs" / "readme_tables.py"))["with_tables"]
    assert with_tables(README) == README
    assert README.count("onelip.load_model(") == len(pretrained.names())


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_table_lists_the_shipped_methods() -> None:
    page = (ROOT / "docs" / "layers.md").read_text()
    for method in map(get_method, SHIPPED):
        linear = "yes" if method.linear else "no"
        row = f"| `{method.key}` | [{method.title}]({method.link}) | {method.year} | {method.guarantee} | {linear} |"
        assert row in page


def test_links_to_files_exist() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([\w./-]+\.\w+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_every_target_of_the_readme_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_terminal_shows_its_log() -> None:
    images = ROOT / "docs" / "images"
    draw = runpy.run_path(str(images / "make_terminal.py"))["terminal"]
    assert draw((images / "compare.log").read_text()) == (images / "compare.svg").read_text()


def test_the_badges_say_what_the_package_states() -> None:
    images = ROOT / "docs" / "images"
    drawn = runpy.run_path(str(images / "make_badges.py"))["badges"]()
    for name, picture in drawn.items():
        assert (images / f"badge-{name}.svg").read_text() == picture, name
        assert f"(docs/images/badge-{name}.svg)" in README
        (title,) = re.findall("<title>(.*)</title>", picture)
        assert re.search(rf"!\[{title.replace(': ', ':? ')}\]", README), title
