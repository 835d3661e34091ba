"""How many epochs fit in a time: the time of a training step, measured quickly.

A step costs `a + c b` for a batch of b images: the parameter transformation does not see the batch (a), the input
transformation is proportional to it (c). Large networks take minutes per step on a small machine, so a and c are
measured at two small batches, and the step with the full batch is computed from them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from onelip.bench.runs import RunSpec
from onelip.bench.training.optimisers import make_optimiser
from onelip.losses import OffsetCrossEntropy
from onelip.models import ConvNet

_SMALL_BATCHES = (16, 64)
_REPETITIONS = 3


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step: `fixed` for the parameters and `per_image` for each image of the batch."""

    fixed: float
    per_image: float

    def seconds(self, batch_size: int) -> float:
        """Of one step with a batch of this size."""
        return self.fixed + self.per_image * batch_size

    def epochs(self, budget: float, batch_size: int, images: int) -> float:
        """Passes over that many training images within the budget."""
        return budget / (self.seconds(batch_size) * max(1, images // batch_size))


def measure_step_time(config: RunSpec, device: torch.device) -> StepTime:
    """Time a few training steps of a network on random images."""
    model = ConvNet.from_config(config.network.config, device=device)
    optimiser = make_optimiser(
        config.settings.optimizer,
        model.parameters(),
        lr=1e-4,
        weight_decay=config.weight_decay,
        momentum=config.momentum,
    )
    small, large = (_step_seconds(model, optimiser, config, batch, device) for batch in _SMALL_BATCHES)
    per_image = max(0.0, (large - small) / (_SMALL_BATCHES[1] - _SMALL_BATCHES[0]))
    return StepTime(max(0.0, small - per_image * _SMALL_BATCHES[0]), per_image)


def _step_seconds(
    model: ConvNet, optimiser: torch.optim.Optimizer, config: RunSpec, batch: int, device: torch.device
) -> float:
    loss = OffsetCrossEntropy()
    images = torch.rand(batch, *model.input_shape, device=device) - 0.5
    labels = torch.randint(model.config.num_classes, (batch,), device=device)
    times = []
    for _ in range(1 + _REPETITIONS):  # the first one is the warm-up
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            scores = model(images)
        optimiser.zero_grad()
        loss(scores.float(), labels).backward()
        optimiser.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    # The smallest, not the mean: other processes can only make a step longer.
    return min(times[1:])
