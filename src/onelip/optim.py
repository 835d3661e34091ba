"""Optimisation on the manifold of orthonormal matrices, for layers of the method `stiefel`."""

from __future__ import annotations

from torch import nn

from onelip.layers.stiefel import OnManifold


def retract(model: nn.Module) -> None:
    """Bring the weights of all `stiefel` layers back to the manifold; to be called after each step of an optimiser.

        optimiser.step()
        onelip.optim.retract(model)

    The gradient that reaches such a weight is tangent to the manifold, so that any optimiser of torch followed by this
    is one of Riemannian type: momentum is kept in the surrounding space, and the retraction takes what is normal.
    """
    for layer in model.modules():
        if isinstance(layer, OnManifold):
            layer.retract_()
