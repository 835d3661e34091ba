"""Which of two measurements was made later is written down by who sees both: clocks of machines differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from onelip.bench.measurement import measurements
from onelip.bench.measurement.measurements import Measurement, run_measurement
from onelip.bench.records import GENERATION, NetworkSpec
from onelip.bench.report.read_study import read_study
from onelip.bench.report.trained_models import current

MEASUREMENT = Measurement("macs", NetworkSpec(method="aol", width=4, dataset="cifar10-mini"), 8)


def _measure(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, year: int, macs: int, again: bool) -> object:
    monkeypatch.setattr(measurements, "fingerprint", lambda *_: code)
    monkeypatch.setattr("onelip.bench.records.record._now", lambda: f"{year}-01-01T00:00:00.000+00:00")
    counts = {"fits": True, "parameters": 1, "input": 1, "training_step": 1, "inference": macs}
    monkeypatch.setattr(measurements, "measure", lambda _: dict(counts))
    return run_measurement(MEASUREMENT, folder, again=again).metrics.get(GENERATION)


@pytest.mark.parametrize("years", [(2026, 2027, 2028), (2028, 2027, 2026)], ids=["clocks forward", "clocks backward"])
def test_the_measurement_that_saw_the_others_is_shown(
    years: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> int:
        (row,) = current(read_study(tmp_path).operations)
        return row.inference

    assert _measure(tmp_path, monkeypatch, "old", years[0], 10, again=False) is None
    assert _measure(tmp_path, monkeypatch, "new", years[1], 20, again=False) == 1
    assert shown() == 20
    assert _measure(tmp_path, monkeypatch, "old", years[2], 30, again=True) == 2, "the old code once more"
    assert shown() == 30
