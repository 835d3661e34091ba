"""Optimisation of layers whose weights are stored orthonormal (method `stiefel`), and Lookahead.

optimiser = torch.optim.NAdam(model.parameters())      # any optimiser of torch, and after each step
optimiser.step()
onelip.optim.retract(model)

optimiser = onelip.optim.ManifoldAdam(model)           # or one that moves on the manifold itself
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.methods.stiefel import OnManifold


def retract(model: nn.Module) -> None:
    """Bring the weights of all `stiefel` layers back to the manifold; to be called after each step of an optimiser.

    The gradient that reaches such a weight is tangent to the manifold, so that any optimiser of torch followed by this
    is one of Riemannian type: momentum is kept in the surrounding space, and the retraction takes what is normal.
    """
    for layer in model.modules():
        if isinstance(layer, OnManifold):
            layer.retract_()


def rotation_series(skew: Tensor, degree: int) -> Tensor:
    """The series of exp(S) for S = -S^T up to degree 3 or 4: a contraction, as the truncated series of degree 2 is not.

    At an eigenvalue i t it has modulus^2 1 - t^4/12 + t^6/36 for degree 3, at most 1 for |t| <= 3^(1/2), and
    1 - t^6/72 + t^8/576 for degree 4, at most 1 for |t| <= 8^(1/2). Degree 2 has 1 + t^4/4: every step would expand.
    """
    if degree not in (3, 4):
        raise InvalidInputError(f"degree={degree!r} is not supported, use 3 or 4: that of 2 expands")
    identity = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    series = identity + skew / degree
    for order in range(degree - 1, 0, -1):
        series = identity + skew @ series / order
    return series


class ManifoldAdam(torch.optim.Optimizer):
    """Adam that moves orthonormal matrices along the manifold: W <- W exp(-lr A), A the mean of skew gradients.

    For a square weight W of an `OnManifold` layer with the gradient G, moments are kept of the skew matrix
    (W^T G - G^T W) / 2, and the update is a rotation by `rotation_series`. Every other parameter is updated by Adam;
    rectangular matrices of such layers are to be retracted after the step. Rotations contract by O((lr |A|)^4) a step,
    which `retract`, once in a while, undoes; certificates are those of the weights as they are.

    Args:
        model: the model; its `OnManifold` layers say which weights are on the manifold.
        lr: learning rate.
        betas: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: added to the gradient of what is not on the manifold, times the parameter.
        degree: of the exponential, 3 or 4.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        degree: int = 3,
    ) -> None:
        rotation_series(torch.zeros(1, 1), degree)
        if not (lr > 0 and eps > 0 and weight_decay >= 0 and all(0 <= beta < 1 for beta in betas)):
            raise InvalidInputError("ManifoldAdam: lr and eps must be above 0, weight_decay not below, betas in [0, 1)")
        layers = [layer for layer in model.modules() if isinstance(layer, OnManifold)]
        square = {id(p): p for layer in layers for p in layer.matrices() if p.shape[-1] == p.shape[-2]}
        others = [p for p in model.parameters() if id(p) not in square]
        shared = {"weight_decay": weight_decay, "rotates": False}
        groups = [{"params": others, **shared}, {"params": list(square.values()), **shared, "rotates": True}]
        defaults = {"lr": lr, "betas": betas, "eps": eps, "degree": degree}
        super().__init__([group for group in groups if group["params"]], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient."""
        if closure is not None:
            raise InvalidInputError("ManifoldAdam takes no closure")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return None

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        gradient = cast(Tensor, parameter.grad)
        if group["rotates"]:
            product = parameter.mT @ gradient
            gradient = (product - product.mT) / 2
        elif group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * parameter
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["mean"], state["square"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        state["step"] += 1
        step, (first, second) = int(state["step"]), group["betas"]
        state["mean"].lerp_(gradient, 1 - first)
        state["square"].lerp_(gradient.square(), 1 - second)
        root = (state["square"] / (1 - second**step)).sqrt_().add_(group["eps"])
        direction = state["mean"] / (1 - first**step) / root
        if not group["rotates"]:
            parameter.add_(direction, alpha=-group["lr"])
            return
        # Beyond an angle of 3^(1/2) the series may expand. Angles come in pairs: none exceeds ||S||_F / 2^(1/2).
        angle = direction.square().sum((-2, -1), keepdim=True).mul_(0.5).sqrt_().mul_(group["lr"])
        direction.mul_(math.sqrt(3) / angle.clamp_min(math.sqrt(3)))
        parameter.copy_(parameter @ rotation_series(-group["lr"] * direction, group["degree"]))


class Lookahead:
    """Slow weights that follow an optimiser's: every `every` steps slow <- slow + share (fast - slow), fast <- slow.

    Zhang, Lucas, Hinton, Ba: "Lookahead optimizer: k steps forward, 1 step back" (2019). It wraps no optimiser: call
    `update` after each step, and before a retraction.

    Args:
        parameters: those that the optimiser moves.
        every: steps between two meetings.
        share: how far the slow weights go.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], every: int = 6, share: float = 0.5) -> None:
        if type(every) is not int or every < 1 or not 0 < share <= 1:
            raise InvalidInputError(f"Lookahead: every={every!r} must be 1 or more, share={share} in (0, 1]")
        self.parameters = list(parameters)
        self.every, self.share, self.steps = every, share, 0
        self.slow = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def update(self) -> None:
        """Count a step, and bring fast and slow weights together where it is time to."""
        self.steps += 1
        if self.steps % self.every:
            return
        for slow, fast in zip(self.slow, self.parameters, strict=True):
            slow.lerp_(fast, self.share)
            fast.copy_(slow)

    def state_dict(self) -> dict[str, Any]:
        """Steps and slow weights."""
        return {"steps": self.steps, "slow": list(self.slow)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.steps = int(state["steps"])
        for slow, saved in zip(self.slow, state["slow"], strict=True):
            slow.copy_(saved)
