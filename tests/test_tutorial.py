"""docs/tutorial.md is one program: its Python and its commands run in order, and print what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
import torch
from test_docs import blocks

from onelip.bench.cli import run as run_command

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"


def shape_of(text: str) -> list[str]:
    """Lines without their numbers, names of files that hold a hash, and widths of columns."""
    lines = (re.sub(r"[-\w./:]*\d[-\w./%:]*|-(?= |$)", "#", line) for line in text.strip().splitlines())
    return [re.sub(r"[─#\s]+", " ", line).strip() for line in lines]


def outputs(page: Path) -> list[tuple[str, str]]:
    """What each block of the page that shows its output prints, and what the page shows."""
    found, printed = [], ""
    names: dict[str, object] = {"__name__": "docs.tutorial"}
    for language, text in blocks(page):
        if language == "text":
            found.append((printed, text))
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            if language == "sh":
                assert run_command(shlex.split(text)[1:]) == 0
            else:
                exec(compile(text, page.name, "exec"), names)
        printed = out.getvalue()
    return found


def test_the_tutorial_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "cache"))
    torch.manual_seed(0)
    found = outputs(PAGE)
    assert len(found) == 11
    for printed, shown in found:
        assert shape_of(printed) == shape_of(shown)
