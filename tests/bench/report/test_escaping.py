"""Hostile text in every format: shown, never executed."""

from __future__ import annotations

import csv
import io
import json

import pytest

from onelip.bench.report.table_files import csv_cell, latex, markdown, script_json
from onelip.bench.terminal import visible


def test_terminal_escapes_and_line_breaks_are_written_out() -> None:
    shown = visible("a\x1b[31mred\x07\u202eb\u0000\nnext\ttab")
    assert shown == r"a\x1b[31mred\x07\u202eb\x00 next tab"
    assert shown.isprintable()
    assert visible("x" * 10**6) == "x" * 299 + "…"
    assert visible("Björck 中文 ±") == "Björck 中文 ±"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_formulas_are_quoted_for_spreadsheets(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", [-1.5, 3, None, "soc", "1 - 2", ""])
def test_numbers_and_plain_words_stay(value: object) -> None:
    assert csv_cell(value) == value


def test_latex_prints_specials_as_they_are() -> None:
    assert latex(r"a_b & 5% {x} ~ ^ # $ \ < ±") == (
        r"a\_b \& 5\% \{x\} \textasciitilde{} \textasciicircum{} \# \$ \textbackslash{} $<$ $\pm$"
    )
    assert "\\input" not in latex(r"\input{/etc/passwd}")


def test_markdown_has_no_markup_and_no_new_columns() -> None:
    assert markdown("a|b") == r"a\|b"
    assert "<img" not in markdown("<img src=x>")
    assert markdown("[x](javascript:1) `c` *b* _i_") == r"\[x\](javascript:1) \`c\` \*b\* \_i\_"


def test_json_cannot_end_its_script_element() -> None:
    tree = {"a": "</script><script>alert(1)</script><!--", "b": "\u2028&"}
    text = script_json(tree)
    assert "<" not in text
    assert json.loads(text) == tree


def test_quoted_cells_survive_csv() -> None:
    out = io.StringIO()
    csv.writer(out).writerow([csv_cell('=HYPERLINK("x","y")')])
    assert next(csv.reader(io.StringIO(out.getvalue()))) == ['\'=HYPERLINK("x","y")']
