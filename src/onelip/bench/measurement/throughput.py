"""Time of a training step and of cached inference, interleaved with the plain reference network.

The machine's speed drifts (other processes, temperature), so each round times the network and the reference one
right after the other, in alternating order, and the reported ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import functools
import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from onelip.bench.measurement.medians import Summary, summarise
from onelip.bench.measurement.networks import for_inference, leave_start, training_step

Action = Callable[[], object]


@dataclass(frozen=True)
class Clock:
    """Seconds, and a call that waits until the device has done all its work."""

    now: Callable[[], float] = time.perf_counter
    synchronise: Callable[[], None] = lambda: None


def device_clock(device: torch.device) -> Clock:
    """The clock of a device: on CUDA, kernels run after their call has returned, so that it has to wait."""
    if device.type == "cuda":
        return Clock(synchronise=lambda: torch.cuda.synchronize(device))
    return Clock()


@dataclass(frozen=True)
class Rounds:
    """How often to measure: at least `least` and at most `most` rounds of `batches` batches each.

    Between the two, measuring ends as soon as the ratio is known to `tolerance` (half the confidence interval) or
    after `seconds`.
    """

    warm_up: int = 2
    least: int = 7
    most: int = 100
    batches: int = 1
    tolerance: float = 0.02
    seconds: float = 60.0


def default_rounds(device: torch.device) -> Rounds:
    """On CUDA 100 batches as in the paper, in ten groups so that waiting does not slow them; else adaptive."""
    if device.type == "cuda":
        return Rounds(warm_up=10, least=10, most=10, batches=10)
    return Rounds()


@dataclass(frozen=True)
class Timing:
    """Seconds per batch of the network and of the reference, and their ratio round by round."""

    seconds: Summary
    reference_seconds: Summary
    ratio: Summary


@dataclass(frozen=True)
class Throughput:
    """Timings of training and cached inference; an epoch includes its last, partial batch."""

    training: Timing
    inference: Timing
    images_per_second_training: float
    images_per_second_inference: float
    seconds_per_epoch: float


def time_batches(action: Action, clock: Clock, batches: int) -> float:
    """Mean seconds of one call over `batches` calls."""
    clock.synchronise()
    start = clock.now()
    for _ in range(batches):
        action()
    clock.synchronise()
    return (clock.now() - start) / batches


def compare(action: Action, reference: Action, clock: Clock, rounds: Rounds) -> Timing:
    """Time two actions in turns until their ratio is known well enough."""
    for _ in range(rounds.warm_up):
        action()
        reference()
    clock.synchronise()
    ours: list[float] = []
    theirs: list[float] = []
    start = clock.now()
    while True:
        order = [(action, ours), (reference, theirs)]
        for timed, samples in order if len(ours) % 2 == 0 else order[::-1]:
            samples.append(time_batches(timed, clock, rounds.batches))
        ratio = summarise([own / other for own, other in zip(ours, theirs, strict=True)])
        is_enough = clock.now() - start >= rounds.seconds or ratio.relative_error <= rounds.tolerance
        if len(ours) >= rounds.most or (len(ours) >= rounds.least and is_enough):
            return Timing(summarise(ours), summarise(theirs), ratio)


def measure_throughput(
    model: nn.Module, reference: nn.Module, x: Tensor, labels: Tensor, rounds: Rounds, images_per_epoch: int
) -> Throughput:
    """Time training steps of two networks, then their forward passes.

    The weights are moved from their start first. The warm-up fills the caches of the parameter transformations.
    """
    clock, batch = device_clock(x.device), len(x)
    leave_start(model)
    leave_start(reference)
    training = compare(training_step(model, x, labels), training_step(reference, x, labels), clock, rounds)
    model.zero_grad()
    reference.zero_grad()
    with torch.no_grad():
        passes = functools.partial(for_inference(model), x), functools.partial(for_inference(reference), x)
        inference = compare(*passes, clock, rounds)
    gc.collect()  # networks with cycles of references would otherwise stay beside the next ones
    return Throughput(
        training=training,
        inference=inference,
        images_per_second_training=batch / training.seconds.median,
        images_per_second_inference=batch / inference.seconds.median,
        seconds_per_epoch=math.ceil(images_per_epoch / batch) * training.seconds.median,
    )
