"""`onelip tune`: thresholds of speed, measured on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from rich.table import Table

from onelip.bench.cli.stages import stages
from onelip.bench.terminal import Terminal, plain_table
from onelip.errors import InvalidInputError
from onelip.linalg.thresholds import DEFAULTS, Thresholds, forget_thresholds, read_thresholds, thresholds_file
from onelip.tuning import Candidate, Tuning, tune

_WHAT = {
    "whole_share": "act on frequencies below this share of operations, up to 8 x 8",
    "frequency_share": "the same on larger images",
    "bytes_at_once": "bytes of images that are evaluated at a time",
}
_SHORT = {"standard": "plain", "cpl": "CPL", "training": "train", "evaluation": "eval"}


@dataclass(frozen=True)
class TuneOptions:
    """Measure on this machine which form of a layer is the faster one, and keep the thresholds for later processes.

    Circular convolutions act as kernels or frequency by frequency, and networks evaluate a batch in parts: which is
    faster depends on the processor. The built-in thresholds are those of two processors. This command times a few
    layers and networks in both ways, in turns, with the number of threads that torch has (OMP_NUM_THREADS), in about a
    minute in which nothing else should run. A threshold moves in steps, each of which must gain clearly more than
    the noise: faster in each of seven rounds, and by 3 % in the median.

    The result is kept in thresholds.json in ~/.cache/onelip (or ONELIP_DATA), by processor, version of torch and
    number of threads. The environment variable ONELIP_THRESHOLDS names another file, or says off. Networks compute the
    same up to rounding, and their certificates hold in either form. Records of runs name thresholds that are not the
    built-in ones, so tune before a study, not in its midst.
    """

    show: bool = False
    """Show the thresholds that are in use, and measure nothing."""
    reset: bool = False
    """Go back to the built-in thresholds: the file is renamed to thresholds.json.old."""
    quiet: bool = False
    """Show no progress."""

    def run(self) -> int:
        """Measure, show or reset."""
        if self.show and self.reset:
            raise InvalidInputError("--show and --reset are two commands: give one of them")
        console = Terminal()
        if self.reset:
            moved = forget_thresholds()
            console.print(
                f"the built-in thresholds are in use; the file is now {moved}" if moved else "nothing to reset"
            )
        elif self.show:
            _print_thresholds(console, read_thresholds())
            source = thresholds_file()
            console.print(
                f"torch threads: {torch.get_num_threads()}; file: {source or 'none, ONELIP_THRESHOLDS is off'}"
            )
        else:
            with stages(self.quiet, at_once=False) as tell:
                tuning = tune(tell)
            for table in _tables(tuning):
                console.print(table)
            _print_thresholds(console, tuning.thresholds)
            console.print(f"kept in {tuning.file} for processes that start now with as many threads")
        return 0


def _print_thresholds(console: Terminal, values: Thresholds) -> None:
    rows = [(name, what, *(f"{getattr(one, name):,}" for one in (DEFAULTS, values))) for name, what in _WHAT.items()]
    console.print(plain_table(("threshold", "what"), ("built-in", "in use"), rows, wrapped=("what",)))


def _tables(tuning: Tuning) -> Iterator[Table]:
    layers = [timing for timing in tuning.timings if timing.has_two_forms]
    shapes = sorted({(timing.share, timing.side, timing.channels) for timing in layers})
    ratios = {(timing.side, timing.channels, timing.name, timing.mode): timing.ratio for timing in layers}
    kinds = {(name, mode): f"{_SHORT[name]} {_SHORT[mode]}" for _, _, name, mode in ratios}
    rows = [
        (f"{side} x {side}", str(channels), f"{share:.2f}", *(f"{ratios[side, channels, *kind]:.2f}" for kind in kinds))
        for share, side, channels in shapes
    ]
    title = "By frequency relative to as a kernel: share of the operations, and time"
    yield plain_table(("image",), ("channels", "share", *kinds.values()), rows, title=title)
    verdicts = [
        (one.threshold, f"{one.value:,}", str(one.changes), *_gains(one), _verdict(one, tuning.thresholds))
        for one in tuning.candidates
    ]
    heads = ("value", "timings", "gain", "least", "most", "verdict")
    title = "Steps from the built-in thresholds: timings they change, and gain by rounds"
    yield plain_table(("threshold",), heads, verdicts, title=title)


def _gains(one: Candidate) -> list[str]:
    rounds = (one.gain, *(math.exp(bound(one.gains)) for bound in (min, max))) if one.changes else ()
    return [f"{gain - 1:+.1%}" for gain in rounds] or [""] * 3


def _verdict(one: Candidate, chosen: Thresholds) -> str:
    is_chosen = one.value == getattr(chosen, one.threshold)
    if not one.changes:
        return "kept" if is_chosen else "built-in"
    clear = "chosen" if is_chosen else "clear"
    return clear if one.is_clear else "not clear" if one.gain > 1 else "slower"


COMMAND = TuneOptions
