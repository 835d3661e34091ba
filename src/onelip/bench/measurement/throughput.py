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

from onelip.bench.measurement.statistics import Summary, summarise
from onelip.bench.measurement.workload import Workload, build_network, leave_start, random_batch, training_step

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
    """Timings of training and cached inference for one workload."""

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
    while len(ours) < rounds.most:
        order = [(action, ours), (reference, theirs)]
        for timed, samples in order if len(ours) % 2 == 0 else order[::-1]:
            samples.append(time_batches(timed, clock, rounds.batches))
        if len(ours) >= rounds.least and _is_enough(ours, theirs, clock.now() - start, rounds):
            break
    return _timing(ours, theirs)


def _is_enough(ours: list[float], theirs: list[float], elapsed: float, rounds: Rounds) -> bool:
    return elapsed >= rounds.seconds or _timing(ours, theirs).ratio.relative_error <= rounds.tolerance


def _timing(ours: list[float], theirs: list[float]) -> Timing:
    ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
    return Timing(summarise(ours), summarise(theirs), summarise(ratios))


def measure_throughput(workload: Workload, device: torch.device, rounds: Rounds | None = None) -> Throughput:
    """Time one network against the reference on the same shapes."""
    networks = build_network(workload, device), build_network(workload.reference, device)
    training, inference = compare_networks(*networks, random_batch(workload, device), rounds or default_rounds(device))
    batch, images = workload.batch_size, workload.data.train_size
    return Throughput(
        training=training,
        inference=inference,
        images_per_second_training=batch / training.seconds.median,
        images_per_second_inference=batch / inference.seconds.median,
        seconds_per_epoch=math.ceil(images / batch) * training.seconds.median,
    )


def compare_networks(
    model: nn.Module,
    reference: nn.Module,
    batch: tuple[Tensor, Tensor],
    rounds: Rounds,
    for_inference: Callable[[nn.Module], nn.Module] = nn.Module.eval,
) -> tuple[Timing, Timing]:
    """Time training steps of two networks, then forward passes of what `for_inference` makes of the first.

    The weights are moved from their start first. The warm-up fills the caches of the parameter transformations.
    """
    leave_start(model)
    leave_start(reference)
    x, labels = batch
    clock = device_clock(x.device)
    steps = training_step(model, x, labels), training_step(reference, x, labels)
    training = compare(*steps, clock, rounds)
    del steps  # with the momentum
    model.zero_grad()
    reference.zero_grad()
    inference = compare(_inference(for_inference(model), x), _inference(reference.eval(), x), clock, rounds)
    gc.collect()  # networks with cycles of references would otherwise stay beside the next ones
    return training, inference


def _inference(model: nn.Module, x: Tensor) -> Action:
    return torch.no_grad()(functools.partial(model, x))
