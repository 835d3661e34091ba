"""The ratios that every method is meant to reach, and those of the public code that it is measured against.

They hold for one setting only: the paper's ConvNet XS, 256 images of 32 x 32 per batch, on a CPU. Elsewhere there is
nothing to compare with, so `goals_of` gives nothing.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources

import torch

from onelip.bench.measurement import Workload

QUANTITIES = {"training": "training step", "inference": "inference", "memory": "training memory"}
"""What is compared, with the name that people read."""

_SETTING = Workload("standard", "XS", "cifar10", 256)


@dataclass(frozen=True)
class Goal:
    """Ratio to the reference to stay below, and the ratio of public code where it was measured."""

    target: float
    public: float | None

    def is_met_by(self, ratio: float) -> bool:
        """Whether a ratio reaches the target, at the two digits that are shown."""
        return round(ratio, 2) <= self.target


@functools.lru_cache(maxsize=1)
def load_targets() -> Mapping[str, Mapping[str, Goal]]:
    """Goals by the method's key and the quantity, from targets.csv."""
    text = resources.files("onelip.bench.speed").joinpath("targets.csv").read_text(encoding="utf-8")
    return {
        row["method"]: {
            quantity: Goal(float(row[f"{quantity}_target"]), _number(row[f"{quantity}_public"]))
            for quantity in QUANTITIES
        }
        for row in csv.DictReader(text.splitlines())
    }


def goals_of(workload: Workload, device: torch.device) -> Mapping[str, Goal]:
    """Goals for one network by quantity; empty for another setting or a network without goals."""
    if device.type != "cpu" or replace(workload, method=_SETTING.method) != _SETTING:
        return {}
    return load_targets().get(workload.method, {})


def _number(text: str) -> float | None:
    return float(text) if text else None
