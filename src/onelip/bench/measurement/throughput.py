"""Time of a training step and of cached inference, interleaved with the plain reference network.

The machine's speed drifts (other processes, temperature), so each round times the network and the reference one
right after the other, in alternating order, and the reported ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import functools
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from onelip.bench.measurement.networks import for_inference, leave_start, training_step
from onelip.errors import InvalidInputError
from onelip.fusing import fuse
from onelip.layers.layer import LipschitzLayer

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """Median, its confidence interval (at least 95 %, any distribution), and the quartiles as the spread."""

    median: float
    low: float
    high: float
    lower_quartile: float
    upper_quartile: float
    count: int

    @property
    def relative_error(self) -> float:
        """Half the width of the confidence interval, relative to the median."""
        return (self.high - self.low) / 2 / self.median if self.median > 0 else math.inf


def summarise(samples: Sequence[float]) -> Summary:
    """Summary of independent samples; with fewer than six the interval is infinite, because none exists."""
    ordered = sorted(samples)
    rank = interval_rank(len(ordered))
    low, high = (-math.inf, math.inf) if rank is None else (ordered[rank], ordered[-1 - rank])
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    return Summary(statistics.median(ordered), low, high, quartiles[0], quartiles[2], len(ordered))


def interval_rank(count: int) -> int | None:
    """Largest r for which the r-th smallest and r-th largest sample (from 0) enclose the median with 95 %.

    The number of samples below the median is binomial with p = 1/2, so the interval misses it with probability
    2 P(Bin(n, 1/2) <= r). None where even the extremes do not suffice.
    """
    allowed = (1 - _CONFIDENCE) / 2 * 2**count
    below, rank = 0, None
    for r in range((count + 1) // 2):
        below += math.comb(count, r)
        if below > allowed:
            break
        rank = r
    return rank


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
    after `seconds`. `inference_batch` are the images of an inference batch, where they are not those of a training
    step: of a small network on few images the interpreter is timed, and not the layers.
    """

    warm_up: int = 2
    least: int = 7
    most: int = 100
    batches: int = 1
    tolerance: float = 0.02
    seconds: float = 60.0
    inference_batch: int | None = None


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
    """Timings of training, of cached inference and of the fused network; an epoch includes its last, partial batch.

    `thread_seconds` are those of `wall_seconds` in which the measuring thread had a processor; None beside a GPU.
    """

    training: Timing
    inference: Timing
    fused: Timing | None
    inference_batch_size: int
    wall_seconds: float
    thread_seconds: float | None
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
    clock, batch, images = device_clock(x.device), len(x), rounds.inference_batch or len(x)
    wall, thread = time.perf_counter(), time.thread_time()
    leave_start(model)
    leave_start(reference)
    training = compare(training_step(model, x, labels), training_step(reference, x, labels), clock, rounds)
    model.zero_grad()
    reference.zero_grad()
    with torch.no_grad():
        many = x.repeat(-(-images // batch), 1, 1, 1)[:images]
        own, plain = for_inference(model), functools.partial(for_inference(reference), many)
        inference = compare(functools.partial(own, many), plain, clock, rounds)
        fused = _fused(own, many)
        fused_timing = None if fused is None else compare(functools.partial(fused, many), plain, clock, rounds)
    gc.collect()  # networks with cycles of references would otherwise stay beside the next ones
    return Throughput(
        training=training,
        inference=inference,
        fused=fused_timing,
        inference_batch_size=images,
        wall_seconds=time.perf_counter() - wall,
        thread_seconds=time.thread_time() - thread if x.device.type == "cpu" else None,
        images_per_second_training=batch / training.seconds.median,
        images_per_second_inference=images / inference.seconds.median,
        seconds_per_epoch=math.ceil(images_per_epoch / batch) * training.seconds.median,
    )


def _fused(model: nn.Module, x: Tensor) -> nn.Module | None:
    """The network as plain torch modules; None without layers of onelip, or where they cannot be fused."""
    if not any(isinstance(module, LipschitzLayer) for module in model.modules()):
        return None
    try:
        return fuse(model, tuple(x.shape[1:]))
    except InvalidInputError:
        return None
