"""Workloads with a width of their own: what is built, what is refused, and `onelip measure --width`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onelip.bench.cli import run
from onelip.bench.measurement import REFERENCE, Workload, predict_memory
from onelip.bench.measurement.workload import build_network
from onelip.errors import InvalidInputError
from onelip.models import ConvNet


def test_a_width_replaces_the_size() -> None:
    work = Workload("aol", width=8, batch_size=2)
    assert (work.size, work.size_name, work.reference) == (None, "w8", Workload(REFERENCE, None, "cifar10", 2, 8))
    model = build_network(work)
    assert isinstance(model, ConvNet)
    assert model.config.channels == 8
    assert sum(p.numel() for p in build_network(work.reference).parameters()) == sum(
        p.numel() for p in build_network(Workload("standard", width=8)).parameters()
    )


def test_without_a_width_the_size_is_xs() -> None:
    work = Workload("aol")
    assert (work.size, work.width, work.size_name) == ("XS", None, "XS")
    assert work == Workload("aol", "XS")


@pytest.mark.parametrize("method", ["standard", REFERENCE])
def test_the_width_of_a_size_costs_what_the_size_costs(method: str) -> None:
    named, given = Workload(method, "XS", batch_size=2), Workload(method, width=16, batch_size=2)
    assert predict_memory(named) == predict_memory(given)


@pytest.mark.parametrize("arguments", [{"size": "XS", "width": 8}, {"width": 7}, {"width": 2}, {"width": 0}])
def test_widths_that_no_network_has_are_refused(arguments: dict[str, Any]) -> None:
    for method in ("aol", REFERENCE):
        with pytest.raises(InvalidInputError):
            Workload(method, **arguments)


def test_measure_command_takes_a_width(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--methods", "standard", "--datasets", "cifar10", "--batch-size", "2", "--runs-dir", str(tmp_path)]
    assert run(["measure", "macs", "--width", "4", *common]) == 0
    assert "ConvNet w4, cifar10" in capsys.readouterr().out
    records = [json.loads(path.read_text()) for path in tmp_path.glob("*/record.json")]
    assert [(r["config"]["network"]["size"], r["config"]["network"]["width"]) for r in records] == [(None, 4)] * 2
    assert run(["measure", "macs", "--width", "4", "--sizes", "XS", *common]) == 2
    assert capsys.readouterr().err == "onelip: pass either --sizes or --width, not both\n"
