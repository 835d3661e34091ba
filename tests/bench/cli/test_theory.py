"""`onelip theory`."""

from __future__ import annotations

import json

import pytest

from onelip.bench.cli import run
from onelip.layers import list_methods


def test_command_prints_tables_and_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["theory"]) == 0
    output = capsys.readouterr().out
    assert "4 s² c³ t" in output
    assert max(map(len, output.splitlines())) <= 80
    assert "…" not in output, "cut off"
    assert run(["theory", "--counted", "--b", "2", "--s", "4", "--c", "64"]) == 0
    assert "* counted by frequency" in capsys.readouterr().out
    assert run(["theory", "--counted", "--json", "--b", "2", "--s", "8", "--c", "8"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    standard = next(row for row in rows if row["method"] == "standard")
    assert standard["values"]["input_macs"] == standard["counted"]["input_macs"] == 2 * 64 * 64 * 9
    assert sorted(row["method"] for row in rows if "counted" in row) == [m.key for m in list_methods()], (
        "one row of each method"
    )
    assert run(["theory", "--c", "-1"]) == 2
    assert run(["theory", "--k", "2", "--counted"]) == 2
