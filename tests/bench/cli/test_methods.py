from __future__ import annotations

import json

import pytest

from onelip.bench.cli import run
from onelip.layers import list_methods


@pytest.fixture
def columns_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.mark.usefixtures("columns_80")
def test_table_holds_every_method_uncut(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["methods"]) == 0
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert "…" not in output
    keys = [line.split()[0] for line in output.splitlines() if line[1:2].isalpha() and line[1:5] != "key "]
    assert [key for key in keys if key in {m.key for m in list_methods()}] == [m.key for m in list_methods()]
    words = output.split()
    for method in list_methods():
        expected = [str(method.year), method.guarantee, method.conv.__name__, method.linear_layer.__name__]
        assert not set(expected) - set(words)
        assert not set(method.paper.split()) - set(words)


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["key"] for row in rows] == [method.key for method in list_methods()]
    aol = next(row for row in rows if row["key"] == "aol")
    assert (aol["conv"], aol["linear_layer"], aol["guarantee"]) == ("AOLConv2d", "AOLLinear", "bounded")
    assert aol["link"].startswith("https://")
    assert aol["published"]["parameter_macs"]
