"""The red team in small: no attack beats a certificate, and the same attacks beat a careless one."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip import layers
from onelip.certification import lipschitz_bound
from onelip.certification.operations import registered
from onelip.layers.layer import LipschitzLayer
from onelip.proofs.bounded import BoundedModule

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


class Step(nn.Module):
    """One step of a random program."""

    def __init__(self, step: Callable[[Tensor, Tensor, float], Tensor]) -> None:
        super().__init__()
        self.step, self.dtype = step, nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x, torch.flip(x, (1,)), 0.7)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """The handlers of operations that were called."""
    found, apply = set[Any](), registered.Operation.apply

    def recorded(self: registered.Operation, *arguments: Any) -> Any:
        found.add(self.handler)
        return apply(self, *arguments)

    monkeypatch.setattr(registered.Operation, "apply", recorded)
    return found


def jacobian_norm(model: nn.Module, x: Tensor) -> float:
    function = copy.deepcopy(model).double().requires_grad_(False)
    jacobian = torch.autograd.functional.jacobian(lambda t: function(t).flatten(), x.double())
    return float(torch.linalg.matrix_norm(jacobian.flatten(1), 2))


def test_every_operation_is_drawn_and_no_jacobian_exceeds_its_bound(red_team: ModuleType, used: set[Any]) -> None:
    """A new operation needs a step in benchmarks/red_team_operations.py."""
    torch.manual_seed(0)
    operations = sys.modules["red_team_operations"]
    for step in map(Step, operations.STEPS):
        bound = lipschitz_bound(step, (4, 4, 4))
        lipschitz_bound(copy.deepcopy(step).double(), (4, 4, 4))
        assert jacobian_norm(step, torch.randn(1, 4, 4, 4)) <= bound * (1 + 1e-5)
    missing = [handler for handler in registered.known_handlers() if handler not in used]
    assert not missing, missing


def test_every_module_without_a_method_is_drawn(red_team: ModuleType) -> None:
    drawn = {type(part) for module in sys.modules["red_team_operations"].modules() for part in module.modules()}
    made_by_fusing = {"FusedLayer", "ReluAbs", "ReluMaxMin"}  # drawn with the methods
    public = {cls for cls in vars(layers).values() if isinstance(cls, type) and issubclass(cls, BoundedModule)}
    assert {
        cls.__name__
        for cls in public - drawn
        if not issubclass(cls, LipschitzLayer) and cls is not BoundedModule and cls.__name__ not in made_by_fusing
    } == set()


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


@pytest.mark.filterwarnings("ignore")
def test_programs_that_nobody_had_tried_are_refused_or_hold(red_team: ModuleType) -> None:
    ideas = sys.modules["red_team_ideas"].IDEAS
    tallies = [red_team.run_scenario("ideas", seed) for seed in range(len(ideas))]
    assert not [tally for tally in tallies if tally.successes]
    assert len([tally for tally in tallies if tally.trials]) > len(ideas) / 2
