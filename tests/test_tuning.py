"""`onelip.tune`: what it times, and what it chooses from given times. No test looks at a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onelip
from onelip import tuning
from onelip.errors import InvalidInputError
from onelip.layers import StandardConv2d
from onelip.layers.transformed import Kernel
from onelip.linalg.thresholds import DEFAULTS, VARIABLE, Thresholds, kept_thresholds, read_thresholds, thresholds

Times = Callable[[float, bool], float]
"""Seconds of a layer by frequency, by its share of operations and whether one matrix suffices; 1 as a kernel."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where thresholds are kept, in a process that has read none."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "folder" / "thresholds.json"))
    kept_thresholds.cache_clear()
    yield tmp_path / "folder" / "thresholds.json"
    kept_thresholds.cache_clear()


def _pretend(monkeypatch: pytest.MonkeyPatch, by_frequency: Times, in_parts: Callable[[int], float]) -> None:
    """Times that are functions of the settings, in place of measured ones."""

    def seconds(action: Any, calls: int) -> float:
        x: Tensor = action.args[1]
        channels, side = x.shape[1:3]
        if channels == 3:
            return in_parts(thresholds().bytes_at_once)
        share = tuning.Timing("", "", channels, side, {}).share
        return by_frequency(share, side <= 8) if thresholds().whole_share > 1 else 1.0

    monkeypatch.setattr(tuning, "_seconds", seconds)
    for action in ("_train", "_evaluate"):
        monkeypatch.setattr(tuning, action, lambda module, x: None)


def test_equal_forms_keep_the_defaults(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, lambda share, whole: 1.0, lambda size: 1.0)
    told: list[str] = []
    found = onelip.tune(told.append)
    assert found.thresholds == DEFAULTS
    assert (found.file, read_thresholds()) == (file, DEFAULTS)
    assert any(f"round {tuning.ROUNDS} of {tuning.ROUNDS}" in words for words in told)
    assert all(len(rounds) == tuning.ROUNDS for timing in found.timings for rounds in timing.seconds.values())


@pytest.mark.parametrize(("whole_cut", "cut"), [(0.4, 0.3), (0.5, 0.4), (0.9, 0.48), (1.2, 0.55)])
def test_the_forms_change_where_their_times_cross(
    file: Path, monkeypatch: pytest.MonkeyPatch, whole_cut: float, cut: float
) -> None:
    """Every candidate is the best one for some machine: layers lie between any two of them."""
    _pretend(
        monkeypatch,
        lambda share, whole: 0.8 if share < (whole_cut if whole else cut) else 1.25,
        lambda size: 1.0 + size / 2**22,
    )
    expected = Thresholds(whole_cut, cut, 2**20)
    assert onelip.tune().thresholds == expected
    assert read_thresholds() == expected
    assert thresholds() == expected, "the file is read at the first decision of a process"


@pytest.mark.parametrize("gain", [1.02, 1.05])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_gain_must_be_clear_of_the_noise(
    file: Path, monkeypatch: pytest.MonkeyPatch, gain: float, noise: float
) -> None:
    """One round of seven in which it is slower, or a gain of 2 %, is not enough."""
    calls = 0

    def in_parts(size: int) -> float:
        nonlocal calls
        calls += size == 2**23
        return (1 / gain + noise * (calls in (9, 10))) if size == 2**23 else 1.0

    _pretend(monkeypatch, lambda share, whole: 1.0, in_parts)
    found = onelip.tune()
    assert found.thresholds.bytes_at_once == (2**23 if gain > 1.03 and not noise else 2**22)
    [candidate] = [one for one in found.candidates if one.value == 2**23]
    assert candidate.gain == pytest.approx(gain), "the median is not moved by one round"


def test_layers_are_timed_in_the_form_that_is_asked_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forms: list[tuple[bool, bool]] = []

    def seconds(action: partial[None], calls: int) -> float:
        action()
        module: nn.Module = action.args[0]
        if isinstance(module, StandardConv2d) and not module.training:
            [kept] = module._cache.values()
            forms.append((isinstance(kept, Kernel), thresholds().whole_share == 0))
        return 1.0

    monkeypatch.setattr(tuning, "_seconds", seconds)
    monkeypatch.setattr(tuning, "ROUNDS", 1)
    monkeypatch.setattr(tuning, "_BATCH", 8)
    monkeypatch.setattr(tuning, "_WHOLE", ((4, 8), (2, 4)))
    monkeypatch.setattr(tuning, "_BY_ROWS", ((4, 10),))
    monkeypatch.setattr(tuning, "_NETWORKS", ())
    before = torch.get_rng_state()
    onelip.tune()
    assert set(forms) == {(True, True), (False, False)}
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("obstacle", ["off", "a file in the way", "another file"])
def test_what_cannot_be_kept_is_refused_before_anything_is_timed(
    file: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    def seconds(action: object, calls: int) -> float:
        raise AssertionError("timed")

    monkeypatch.setattr(tuning, "_seconds", seconds)
    if obstacle == "off":
        monkeypatch.setenv(VARIABLE, "off")
    elif obstacle == "another file":
        file.parent.mkdir()
        file.write_text("my thesis")
    else:
        file.parent.write_text("")
    with pytest.raises(onelip.OnelipError) as error:
        onelip.tune()
    assert isinstance(error.value, InvalidInputError) or "cannot write" in str(error.value)


def test_a_threshold_stops_at_the_first_step_that_gains_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though going on would gain in total: what lies behind is not why one would go there."""
    _pretend(monkeypatch, lambda share, whole: 0.8 if share < 0.4 or share > 0.48 else 1.0, lambda size: 1.0)
    assert onelip.tune().thresholds.frequency_share == 0.4
