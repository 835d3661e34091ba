"""The pages in docs/: their Python blocks run, in order, as one program, in an empty folder and without a network."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from onelip.certification.operations import registered

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
LANGUAGES = {"python", "sh", "bash", "text"}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def no_network(*arguments: object, **options: object) -> NoReturn:
    raise OSError("a page of the documentation asked for the network")


WITH_PYTHON = [p for p in PAGES if p.stem != "tutorial" and any(name == "python" for name, _ in blocks(p))]
"""The tutorial runs in test_tutorial.py, with its commands."""


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setattr(registered, "_OPERATIONS", dict(registered._OPERATIONS))  # a page may register some
    names: dict[str, object] = {"__name__": f"docs.{page.stem}"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page.name, "exec"), names)  # the code that users copy, one block after the other


@each_page
def test_no_python_hides_from_the_test(page: Path) -> None:
    """Every block names its language, and none that is indented instead of fenced imports something."""
    text = page.read_text()
    assert text.count("```") == 2 * len(blocks(page))
    assert {language for language, _ in blocks(page)} <= LANGUAGES
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"^ {4}(from \w[\w.]* )?import \w", outside, re.MULTILINE)


def test_files_that_pages_name_exist() -> None:
    """`tests/a.py` is a path, `a.py` the name of a file somewhere; the examples name files of their own."""
    folders = ("src", "tests", "docs", "benchmarks", "examples", ".github")
    paths = [*ROOT.glob("*.*"), *(path for folder in folders for path in (ROOT / folder).rglob("*.*"))]
    parts = [path.relative_to(ROOT).parts for path in paths]
    known = {"/".join(names[start:]) for names in parts for start in range(len(names))}
    examples = {"my_module.py", "src/onelip/layers/methods/reflection.py"}
    for page in (*PAGES, *ROOT.glob("*.md")):
        named = set(re.findall(r"`([\w./-]+\.(?:py|js|csv|toml|yml|j2|css))(?![\w(])", page.read_text()))
        assert named - examples <= known, page.name


@each_page
def test_pages_say_what_is(page: Path) -> None:
    """No diary: no dates of development, nothing that is still to be done."""
    diary = r"\b20\d\d-\d\d-\d\d\b|not (been )?(run|made|measured|repeated) yet|has not been made|\bTODO\b"
    assert not re.search(diary, page.read_text()), page.name


@each_page
def test_tables_are_whole(page: Path) -> None:
    """No row stands alone, as behind an empty line: it would be shown as text."""
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", outside, re.MULTILINE):
        assert re.match(r"\|.*\n\|[-:| ]+\|\n", table), table


@each_page
def test_columns_of_tables_have_names(page: Path) -> None:
    """A screen reader tells the name of the column with each cell."""
    for heading in re.findall(r"^\|(.*)\|\n\|[-:| ]+\|$", page.read_text(), re.MULTILINE):
        assert all(cell.strip() for cell in heading.split("|")), heading
