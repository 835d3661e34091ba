"""The schedule against torch's own, and the optimisers by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onelip.bench.training.optimisers import OneCycle, known_optimisers, make_optimiser
from onelip.bench.training.plans import StepPlan
from onelip.errors import InvalidInputError


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 10, 100, 1001])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_equals_torch_one_cycle(steps: int, name: str) -> None:
    ours, theirs = (
        make_optimiser(name, nn.ParameterList([torch.zeros(2)]), lr=0.3, weight_decay=0.0, momentum=0.9)
        for _ in range(2)
    )
    scheduler = torch.optim.lr_scheduler.OneCycleLR(theirs, max_lr=0.3, total_steps=steps)
    plan, schedule = StepPlan(steps), OneCycle(0.3)
    while not plan.finished:
        schedule.apply(ours, plan.fraction, plan.planned_steps, cycle_momentum=True)
        group, reference = ours.param_groups[0], theirs.param_groups[0]
        assert group["lr"] == pytest.approx(reference["lr"], rel=1e-9)
        if name == "sgd":
            assert group["momentum"] == pytest.approx(reference["momentum"], rel=1e-9)
        else:
            assert group["betas"] == pytest.approx(reference["betas"], rel=1e-9)
        theirs.step()
        plan.step_done()
        if not plan.finished:
            scheduler.step()


def test_momentum_stays_if_wished() -> None:
    optimiser = make_optimiser("sgd", nn.ParameterList([torch.zeros(2)]), lr=0.3, weight_decay=0.0, momentum=0.9)
    OneCycle(0.3).apply(optimiser, 0.4, 100, cycle_momentum=False)
    assert optimiser.param_groups[0]["momentum"] == 0.9


def test_optimisers_by_name() -> None:
    names = set(known_optimisers())
    assert {"sgd", "adam", "adamw", "nadam", "rmsprop"} <= names
    assert not {"lbfgs", "sparseadam", "optimizer"} & names
    parameters = nn.ParameterList([torch.zeros(3, 3)])
    for name in names - {"muon"}:  # which is trained with Adam beside it
        assert type(make_optimiser(name, parameters, lr=0.1, weight_decay=1e-4, momentum=0.9)).__name__.lower() == name


def test_unknown_or_unfit_optimisers() -> None:
    with pytest.raises(InvalidInputError, match=r"unknown optimizer 'sdg'; known: .*sgd"):
        make_optimiser("sdg", nn.ParameterList(), lr=0.1, weight_decay=0.0, momentum=0.9)
    with pytest.raises(InvalidInputError, match="cannot train this network"):
        make_optimiser("muon", nn.ParameterList([torch.zeros(2, 2, 3, 3)]), lr=0.1, weight_decay=0.0, momentum=0.9)
