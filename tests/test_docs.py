"""The pages in docs/: their Python blocks run, in order, as one program, in an empty folder and without a network."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import NoReturn

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
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
