"""Intervals of real-valued outputs, and radii for a tolerance, against points on the way to the worst one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onelip.certification import certify_values
from onelip.errors import InvalidInputError


@pytest.mark.parametrize("outputs", [1, 3])
def test_outputs_stay_in_their_intervals_and_reach_almost_their_ends(outputs: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, outputs)
    x = torch.randn(6, 4)
    found = certify_values(model, x, radius=0.5, tolerance=0.2)
    assert found.low is not None
    assert found.high is not None
    assert found.radii is not None
    norm = float(torch.linalg.matrix_norm(model.weight.detach().double(), 2))
    worst = torch.linalg.svd(model.weight.detach())[2][0]
    for sign in (-0.5, 0.5):
        moved = model(x + sign * worst).double().detach()
        assert bool(((found.low <= moved) & (moved <= found.high)).all())
    assert torch.allclose(found.high - found.low, torch.full((6, outputs), norm).double(), rtol=1e-3)
    assert torch.allclose(found.radii, torch.full((6,), 0.2 / norm).double(), rtol=1e-3)
    shift = (model(x + found.radii[:, None].float() * worst) - model(x)).detach().norm(dim=1)
    assert bool((shift <= 0.2 + 1e-6).all())


def test_what_is_asked_for_is_checked() -> None:
    with pytest.raises(InvalidInputError, match="pass radius"):
        certify_values(nn.Linear(4, 1), torch.randn(2, 4))
    with pytest.raises(InvalidInputError, match="radius=-1"):
        certify_values(nn.Linear(4, 1), torch.randn(2, 4), radius=-1)
