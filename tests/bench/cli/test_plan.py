"""`onelip plan`: what is said about a cluster; the simulation itself is tested with the engines."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from onelip.bench.cli import plan
from onelip.bench.cli.plan import PlanCommand
from onelip.errors import InvalidInputError


def test_the_papers_protocol_on_eight_gpus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(plan, "simulate", lambda jobs, cluster: SimpleNamespace(workers=cluster.nodes * 8, clock=36e5))
    assert PlanCommand(gpus=8, gpu="a100-80gb").run() == 0
    printed = capsys.readouterr()
    assert "simulating 2,600 jobs on 8 GPUs" in printed.err
    lines = printed.out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert rows["all"][1] == "2600"
    trials = next(line for line in lines if "trial 2h" in line)
    assert trials.split()[2:4] == ["1792", "3,584"], "16 trials of 2 hours for 112 searches"
    assert "On 8 x a100-80gb: 41 d 16 h" in "\n".join(lines)
    careful = next(line for line in lines if "7 for 10h, 6 for 24h" in line)
    assert careful.split()[-4:] == ["100", "%", "99", "%"]


def test_a_plan_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "simulate", lambda jobs, cluster: SimpleNamespace(workers=cluster.nodes * 3, clock=5.0))
    assert PlanCommand(preset="quick", gpus=3, gpu="tiny-2gb", quiet=True, json=True).run() == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    facts = json.loads(printed.out)
    assert (facts["gpus"], facts["seconds"], facts["shortlists"]) == (3, 5.0, [])
    assert facts["stages"][-1] == {
        "stage": "all",
        "jobs": 34,
        "gpu_hours": pytest.approx(sum(row["gpu_hours"] for row in facts["stages"][:-1])),
    }
    assert facts["memory"]["card_gib"] == 2
    assert facts["memory"]["too_large_gib"] == {}


def test_cards_without_memory_and_clusters_without_gpus() -> None:
    for bad in (PlanCommand(gpu="a100"), PlanCommand(gpus=0)):
        with pytest.raises(InvalidInputError):
            bad.run()
