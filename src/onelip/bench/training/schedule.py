"""The one-cycle schedule as a function of the fraction that is done, so that time can drive it as well as steps.

    learning rate:  max / 25  ->  max  ->  max / (25 * 10^4),   momentum:  0.95 -> 0.85 -> 0.95

along half cosines, the first over 30 % of the run. These are the defaults of `torch.optim.lr_scheduler.OneCycleLR`,
which needs the number of steps in advance; for a fixed number of steps the values here are the same (tested).
Smith, Topin: "Super-convergence: very fast training of neural networks using large learning rates" (2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.optim import Optimizer


@dataclass(frozen=True)
class OneCycle:
    """The schedule for one highest learning rate."""

    max_lr: float
    warm_up: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    base_momentum: float = 0.85
    max_momentum: float = 0.95

    def lr(self, fraction: float, steps: int) -> float:
        """Learning rate at this fraction of a run that has about `steps` steps."""
        rising, share = self._phase(fraction, steps)
        start = self.max_lr / self.div_factor
        if rising:
            return _cosine(start, self.max_lr, share)
        return _cosine(self.max_lr, start / self.final_div_factor, share)

    def momentum(self, fraction: float, steps: int) -> float:
        """Momentum there: low where the learning rate is high."""
        rising, share = self._phase(fraction, steps)
        if rising:
            return _cosine(self.max_momentum, self.base_momentum, share)
        return _cosine(self.base_momentum, self.max_momentum, share)

    def _phase(self, fraction: float, steps: int) -> tuple[bool, float]:
        """Whether the learning rate rises, and how much of that phase is done.

        torch lets the first phase end one step early (at 0.3 N - 1 of N - 1), which matters in short runs.
        """
        position, top = fraction * (steps - 1), self.warm_up * steps - 1
        if position <= top and top > 0:
            return True, position / top
        return False, (position - top) / (steps - 1 - top)

    def apply(self, optimizer: Optimizer, fraction: float, steps: int, *, cycle_momentum: bool) -> float:
        """Set learning rate and momentum (or beta1) of all groups; returns the learning rate."""
        lr, momentum = self.lr(fraction, steps), self.momentum(fraction, steps)
        for group in optimizer.param_groups:
            group["lr"] = lr
            if cycle_momentum and "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            elif cycle_momentum and "momentum" in group:
                group["momentum"] = momentum
        return lr


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
