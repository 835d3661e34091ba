"""Networks of the paper's public code: same weights, same outputs.

The files in `public` hold state dicts, inputs and outputs of small networks, made with that code.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from onelip.bench.paper.public_models import convert_public_state, read_public_model
from onelip.errors import InvalidInputError
from onelip.models.config import ConvNetConfig

TOLERANCE = {"cpl": 0.06, "lot": 0.02, "sll": 1e-3, "soc": 0.03}
"""Relative differences: proven norms for CPL, converged iterations for LOT, epsilons for SLL, the head for SOC."""


@pytest.mark.parametrize("method", ["aol", "bcop", "cayley", "cpl", "lot", "sll", "soc"])
def test_outputs_are_those_of_the_public_code(method: str) -> None:
    stored = np.load(Path(__file__).parent / "public" / f"{method}.npz")
    names = [name for name in stored if name.startswith("state/")]
    state = {name.removeprefix("state/"): torch.from_numpy(stored[name]).float() for name in names}
    config = ConvNetConfig(method=method, size=None, width=4, num_classes=5, input_size=8, setting="published")
    model = convert_public_state(state, config)
    with torch.no_grad():
        ours = model(torch.from_numpy(stored["x"]).float())
    theirs = torch.from_numpy(stored["y"])
    assert float((ours - theirs).norm() / theirs.norm()) < TOLERANCE.get(method, 1e-4)
    with pytest.raises(InvalidInputError, match="no FirstConv"):
        convert_public_state({}, config)


def test_unknown_names() -> None:
    with pytest.raises(InvalidInputError, match="imagenette_lipnetXS_aol"):
        read_public_model("imagenette_lipnetXS_aol", "nowhere.pth")
