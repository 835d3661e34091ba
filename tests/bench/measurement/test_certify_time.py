"""Certificates and the plain pass in turns, with a clock of our own."""

from __future__ import annotations

import itertools

import pytest
import torch

from onelip.bench.measurement import Rounds, certify_time
from onelip.bench.measurement.certify_time import measure_certify
from onelip.bench.measurement.throughput import Clock
from onelip.certification import lipschitz_bound
from onelip.models import ConvNet


@pytest.mark.parametrize("arithmetic", ["float64", "float32"])
def test_certificates_are_timed_in_turns_with_the_pass(
    arithmetic: certify_time.Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock is a second later than the one before, so that everything takes one second."""
    seconds = itertools.count()
    monkeypatch.setattr(certify_time, "device_clock", lambda device: Clock(now=lambda: float(next(seconds))))
    model = ConvNet("aol", None, 4, input_size=8, width=4)
    cost = measure_certify(model, torch.rand(2, 3, 8, 8), Rounds(warm_up=1, least=2, most=2), arithmetic)
    assert cost.bounds_seconds == cost.certificates.seconds.median == cost.certificates.ratio.median == 1.0
    assert cost.certificates.ratio.count == 2
    assert cost.lipschitz == pytest.approx(lipschitz_bound(model), rel=1e-6)
