"""Timing with an injected clock: nothing here depends on how fast the machine is."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from onelip.bench.measurement import throughput
from onelip.bench.measurement.throughput import (
    Clock,
    Rounds,
    compare,
    default_rounds,
    device_clock,
    measure_throughput,
    time_batches,
)


class Machine:
    """A device with a queue: calls return at once, waiting for the device takes the time of the queued work."""

    def __init__(self) -> None:
        self.time = 0.0
        self.queue = 0.0
        self.log: list[str] = []

    def work(self, name: str, *seconds: float):
        durations = iter(seconds)
        last = seconds[-1]

        def action() -> None:
            self.log.append(name)
            self.queue += next(durations, last)

        return action

    def synchronise(self) -> None:
        self.time += self.queue
        self.queue = 0.0

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.time, synchronise=self.synchronise)


def test_time_waits_for_the_device() -> None:
    machine = Machine()
    machine.queue = 5.0  # earlier work does not count
    assert time_batches(machine.work("step", 2.0, 4.0), machine.clock, batches=2) == 3.0


def test_rounds_alternate_and_stop_when_the_ratio_is_known() -> None:
    machine = Machine()
    rounds = Rounds(warm_up=1, least=6, most=50, tolerance=0.01)
    timing = compare(machine.work("a", 9.0, 3.0), machine.work("b", 9.0, 2.0), machine.clock, rounds)
    assert machine.log[:2] == ["a", "b"], "warm-up, which does not count"
    assert machine.log[2:] == ["a", "b", "b", "a"] * 3
    assert timing.ratio.median == timing.ratio.low == timing.ratio.high == 1.5
    assert (timing.seconds.median, timing.reference_seconds.median, timing.seconds.count) == (3.0, 2.0, 6)


def test_noise_makes_more_rounds_up_to_the_limits() -> None:
    noisy = [1.0, 3.0] * 40
    machine = Machine()
    action, steady = machine.work("a", *noisy), machine.work("b", 1.0)
    assert compare(action, steady, machine.clock, Rounds(warm_up=0, most=30, seconds=1e9)).ratio.count == 30
    machine = Machine()
    action, steady = machine.work("a", *noisy), machine.work("b", 1.0)
    # 3 seconds a round on average: ten rounds reach the limit of 30 seconds
    assert compare(action, steady, machine.clock, Rounds(warm_up=0, seconds=30)).ratio.count == 10


def test_the_ratio_is_paired_so_that_drift_cancels() -> None:
    machine = Machine()
    slower_and_slower = [1.0 + 0.1 * i for i in range(12)]
    twice = [2 * seconds for seconds in slower_and_slower]
    rounds = Rounds(warm_up=0, least=12, most=12)
    timing = compare(machine.work("a", *twice), machine.work("b", *slower_and_slower), machine.clock, rounds)
    assert timing.ratio.low == pytest.approx(timing.ratio.high) == pytest.approx(2.0)
    assert timing.seconds.relative_error > 0.1


def test_cuda_measures_a_hundred_batches_and_synchronises(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = default_rounds(torch.device("cuda"))
    assert rounds.least * rounds.batches == rounds.most * rounds.batches == 100
    devices: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", devices.append)
    time_batches(lambda: None, device_clock(torch.device("cuda:1")), 3)
    assert devices == [torch.device("cuda:1")] * 2


class Spy(nn.Module):
    """Keeps for each pass its mode and whether gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 3)
        self.passes: list[tuple[bool, bool]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.append((self.training, torch.is_grad_enabled()))
        return self.linear(x.flatten(1))


def test_training_steps_update_and_inference_is_an_evaluation_without_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(throughput, "device_clock", lambda device: Clock(now=lambda: float(next(seconds))))
    model, plain = Spy(), Spy()
    start = model.linear.weight.detach().clone()
    x, labels = torch.rand(8, 3, 2, 2), torch.zeros(8, dtype=torch.long)
    result = measure_throughput(model, plain, x, labels, Rounds(warm_up=1, least=2, most=2), images_per_epoch=50_000)
    assert model.passes == plain.passes == [(True, True)] * 3 + [(False, False)] * 3
    assert not torch.equal(model.linear.weight, start)
    assert model.linear.weight.grad is None
    assert result.training.ratio.count == result.inference.ratio.count == 2
    assert result.training.seconds.median == result.inference.seconds.median == 1.0, "a look at the clock takes 1 s"
    assert result.images_per_second_training == result.images_per_second_inference == 8
    assert result.seconds_per_epoch == 6250
