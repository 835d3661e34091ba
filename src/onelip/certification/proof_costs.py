"""What an expensive proof will cost, said before it starts."""

from __future__ import annotations

import warnings

from torch import Tensor

from onelip.certification.graph import Place
from onelip.linalg.proof_cost import norm_proof_cost

_SIDE = 8192
"""Square matrices from here on take minutes."""

_OPERATIONS_PER_SECOND = 2e10
"""Of one core in float64, roughly."""


def announce(place: Place, matrix: Tensor) -> None:
    """Warn of a proof that takes minutes and gigabytes."""
    side = min(matrix.shape)
    if side < _SIDE:
        return
    cost = norm_proof_cost(matrix.shape)
    gigabytes, minutes = cost.memory / 1e9, cost.operations / _OPERATIONS_PER_SECOND / 60
    warnings.warn(
        f"proving the norm of {place.words()}, {matrix.shape[0]} x {matrix.shape[1]}, takes about "
        f"{gigabytes:.0f} GB and {minutes:.0f} minutes on one core, once for each model",
        stacklevel=2,
    )
