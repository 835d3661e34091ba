"""The red team in small: no attack beats a certificate, and the same attacks beat a careless one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def red_team() -> ModuleType:
    specification = importlib.util.spec_from_file_location("red_team", BENCHMARKS / "red_team.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["red_team"] = module
    specification.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "seeds"), [("method", 12), ("graph", 8), ("orders", 4), ("rational", 4)])
def test_no_attack_beats_a_certificate(red_team: ModuleType, kind: str, seeds: int) -> None:
    tallies = [red_team.run_scenario(kind, seed) for seed in range(seeds)]
    assert not [tally for tally in tallies if tally.successes]
    assert sum(tally.trials for tally in tallies) > 1000 * seeds / 2
    assert len([tally for tally in tallies if tally.refused]) <= seeds // 4


@pytest.mark.parametrize("kind", ["orders", "rational"])
def test_the_attacks_beat_a_careless_certificate(red_team: ModuleType, kind: str) -> None:
    assert any(red_team.run_scenario(kind, seed, red_team.naive).successes for seed in range(4))
