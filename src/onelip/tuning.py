"""Measure on this machine where one of two equal forms of a layer becomes the faster one, and keep the thresholds."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from onelip.layers import create_conv
from onelip.layers.frequency_conv import spectral_operations
from onelip.linalg.fourier import has_one_matrix
from onelip.linalg.thresholds import DEFAULTS, Thresholds, checked_file, forced_thresholds, keep_thresholds
from onelip.models import ConvNet

ROUNDS = 7
LEAST_GAIN = 0.03
CANDIDATES: dict[str, tuple[float, ...]] = {
    "whole_share": (0.4, 0.5, 0.7, 0.9, 1.2),
    "frequency_share": (0.3, 0.35, 0.4, 0.48, 0.55),
    "bytes_at_once": (2**20, 2**21, 2**22, 2**23),
}
_WHOLE = ((64, 8), (16, 4), (32, 8), (24, 6), (24, 8), (12, 6), (16, 8))
_BY_ROWS = ((128, 16), (96, 16), (64, 16), (48, 12), (48, 16), (64, 24), (48, 24), (32, 16))
"""(channels, side) of layers; some lie between any two candidates."""
_LAYERS, _NETWORKS = ("standard", "cpl"), ("aol", "eco")
_AS_KERNEL, _BY_FREQUENCY = Thresholds(0.0, 0.0), Thresholds(10.0, 10.0)
_BATCH, _SHORTEST = 256, 0.005
"""Images for networks and small layers, a quarter of it for large ones: a layer's frequency matrices take time that
does not depend on the images, so that fewer would say little. Least seconds of one timing."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one computation in each round, by the settings that it was computed with."""

    name: str
    mode: str
    channels: int
    side: int
    seconds: dict[Thresholds, list[float]]

    @property
    def share(self) -> float:
        """Operations by frequency, relative to those as a kernel."""
        size, channels = (self.side, self.side), self.channels
        return spectral_operations(size, channels, channels) / (9 * self.side**2 * channels**2)

    @property
    def has_two_forms(self) -> bool:
        """Whether this is a layer, timed as a kernel and by frequency."""
        return _AS_KERNEL in self.seconds

    @property
    def ratio(self) -> float:
        """Time by frequency relative to that as a kernel, in the median of the rounds."""
        return math.exp(statistics.median(self.gains(_BY_FREQUENCY, _AS_KERNEL)))

    def gains(self, before: Thresholds, after: Thresholds) -> list[float]:
        """The logarithm of how many times faster it is, in each round."""
        pairs = zip(self.seconds[before], self.seconds[after], strict=True)
        return [math.log(old / new) for old, new in pairs]


class Candidate(NamedTuple):
    """A value of a threshold, and what the step to it gains: from the value before it on the way from the default.

    `gains` are mean logarithms over the computations that the step changes, round by round. A default changes none.
    """

    threshold: str
    value: float
    changes: int
    gains: list[float]

    @property
    def gain(self) -> float:
        """How many times faster, in the median of the rounds."""
        return math.exp(statistics.median(self.gains)) if self.changes else 1.0

    @property
    def is_clear(self) -> bool:
        """Whether it is faster in every round, and by enough in the median: noise does neither."""
        return self.changes > 0 and min(self.gains) > 0 and self.gain >= 1 + LEAST_GAIN


@dataclass(frozen=True)
class Tuning:
    """What `tune` chose, what it chose from, and where it is kept."""

    thresholds: Thresholds
    candidates: tuple[Candidate, ...]
    timings: tuple[Timing, ...]
    file: Path


def tune(tell: Callable[[str], None] = lambda words: None) -> Tuning:
    """Measure the thresholds of this machine, with torch's present number of threads, and keep them in a file.

    Convolutions on small and large images are timed as kernels and by frequency, in training and in evaluation, and
    networks evaluate in parts of several sizes, about a minute in total. All of it takes turns in seven rounds. A
    threshold leaves its default in steps, as long as the computations that a step changes are, taken together, faster
    in every round and by 3 % in the median, so that a noisy machine keeps the defaults. With one thread processor time
    is compared, which others on the machine hardly change, else time.

    Processes read the file at their first decision. One that has decided before goes on as it is: no layer changes its
    form. Certificates are of the form in use. `tell` is told what is being done. `onelip tune` is the same with tables.
    """
    checked_file()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = _time_rounds([*_layers(_WHOLE)], "small images", tell)
        by_rows = _time_rounds([*_layers(_BY_ROWS)], "large images", tell)
        networks = _time_rounds([*_networks()], "networks in parts", tell)
    candidates = [candidate for name in CANDIDATES for candidate in _candidates(name, whole + by_rows, networks)]
    chosen = DEFAULTS._replace(**{name: _best(name, candidates) for name in CANDIDATES})
    return Tuning(chosen, tuple(candidates), (*whole, *by_rows, *networks), keep_thresholds(chosen))


def _best(name: str, candidates: Sequence[Candidate]) -> float:
    """The end of the way up or down from the default on which every step is clear: the way that gains more."""
    own = [one for one in candidates if one.threshold == name]
    place = CANDIDATES[name].index(getattr(DEFAULTS, name))
    ways = [list(takewhile(lambda one: one.is_clear, way)) for way in (own[place + 1 :], own[:place][::-1])]
    best = max(ways, key=lambda way: sum(one.changes * math.log(one.gain) for one in way))
    return best[-1].value if best else getattr(DEFAULTS, name)


def _candidates(name: str, layers: Sequence[Timing], networks: Sequence[Timing]) -> list[Candidate]:
    values, place = CANDIDATES[name], CANDIDATES[name].index(getattr(DEFAULTS, name))
    found: list[Candidate] = []
    for index, value in enumerate(values):
        before = values[index - (index > place) + (index < place)]
        if name == "bytes_at_once":
            settings = [DEFAULTS._replace(bytes_at_once=int(one)) for one in (before, value)]
            changed = [timing.gains(*settings) for timing in networks if before != value]
        else:
            own = [one for one in layers if has_one_matrix((one.side, one.side)) == (name == "whole_share")]
            between = [one for one in own if min(before, value) <= one.share < max(before, value)]
            forms = (_AS_KERNEL, _BY_FREQUENCY) if value > before else (_BY_FREQUENCY, _AS_KERNEL)
            changed = [timing.gains(*forms) for timing in between]
        means = [statistics.fmean(gains) for gains in zip(*changed, strict=True)]
        found.append(Candidate(name, value, len(changed), means))
    return found


class _Case(NamedTuple):
    """A computation and, for each setting, a module that has never computed with another one."""

    timing: Timing
    actions: Mapping[Thresholds, Callable[[], object]]


def _layers(shapes: Sequence[tuple[int, int]]) -> list[_Case]:
    cases: list[_Case] = []
    for channels, side in shapes:
        batch = _BATCH if has_one_matrix((side, side)) else _BATCH // 4
        x = torch.randn(batch, channels, side, side).contiguous(memory_format=torch.channels_last)
        for method in _LAYERS:
            for mode, action in (("training", _train), ("evaluation", _evaluate)):
                layers = {form: create_conv(method, channels, channels, 3) for form in (_AS_KERNEL, _BY_FREQUENCY)}
                actions = {form: partial(action, layer, x) for form, layer in layers.items()}
                cases.append(_Case(Timing(method, mode, channels, side, {form: [] for form in actions}), actions))
    return cases


def _networks() -> list[_Case]:
    cases: list[_Case] = []
    settings = [DEFAULTS._replace(bytes_at_once=int(value)) for value in CANDIDATES["bytes_at_once"]]
    x = torch.randn(_BATCH, 3, 32, 32)
    for method in _NETWORKS:
        action = partial(_evaluate, ConvNet(method, None, 10, width=16), x)
        timing = Timing(method, "evaluation", 16, 32, {setting: [] for setting in settings})
        cases.append(_Case(timing, dict.fromkeys(settings, action)))
    return cases


def _train(layer: nn.Module, x: Tensor) -> None:
    y = layer(x.requires_grad_())
    y.backward(y.detach())


def _evaluate(module: nn.Module, x: Tensor) -> None:
    if module.training:
        module.eval()
    with torch.no_grad():
        module(x)


def _time_rounds(cases: Sequence[_Case], what: str, tell: Callable[[str], None]) -> list[Timing]:
    """All computations in all settings in turns, after a round to warm up that tells how often to repeat each."""
    calls: dict[int, int] = {}
    for number in range(ROUNDS + 1):
        tell(f"{what}, " + (f"round {number} of {ROUNDS}" if number else "warming up"))
        for index, (timing, actions) in enumerate(cases):
            for setting, action in actions.items():
                with forced_thresholds(setting), torch.enable_grad():
                    if number:
                        timing.seconds[setting].append(_seconds(action, calls[index]))
                    else:
                        action()
                        calls[index] = max(1, math.ceil(_SHORTEST / max(_seconds(action, 1), 1e-6)))
    return [case.timing for case in cases]


def _seconds(action: Callable[[], object], calls: int) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(calls):
        action()
    return (clock() - start) / calls
