"""`onelip plan`: what is said about a cluster; the simulation itself is tested with the engines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from onelip.bench.cli import plan
from onelip.bench.cli.plan import PlanCommand
from onelip.errors import InvalidInputError


def test_the_papers_protocol_on_eight_gpus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(plan, "simulate", lambda jobs, cluster: SimpleNamespace(workers=cluster.nodes * 8, clock=36e5))
    assert PlanCommand(gpus=8, gpu="a100-80gb").run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert rows["all"][1] == "2600"
    trials = next(line for line in lines if "trial 2h" in line)
    assert trials.split()[2:4] == ["1792", "3,584"], "16 trials of 2 hours for 112 searches"
    assert "On 8 x a100-80gb: 41 d 16 h" in "\n".join(lines)
    careful = next(line for line in lines if "7 for 10h, 6 for 24h" in line)
    assert careful.split()[-4:] == ["100", "%", "99", "%"]


def test_cards_without_memory_and_clusters_without_gpus() -> None:
    for bad in (PlanCommand(gpu="a100"), PlanCommand(gpus=0)):
        with pytest.raises(InvalidInputError):
            bad.run()
