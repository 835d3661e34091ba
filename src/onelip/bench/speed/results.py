"""All figures of one run of `onelip bench speed`, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from onelip.bench.measurement import peers
from onelip.bench.runs.machine import machine_facts
from onelip.bench.speed.contestants import ONELIP
from onelip.bench.speed.measure import SpeedResult, Suite
from onelip.bench.speed.targets import Goal, goals_of


@dataclass
class SpeedReport:
    """Results as they come in; networks that could not be measured are in `failures` with the reason."""

    suite: Suite
    results: list[SpeedResult] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def setting(self) -> str:
        """What was measured where, for people."""
        work, device = self.suite.workload, self.suite.device
        side = work.data.image_size
        threads = machine_facts()["torch_threads"]
        where = f"{threads} CPU thread{'s' * (threads != 1)}" if device.type == "cpu" else str(device)
        return f"ConvNet {work.size_name}, {work.batch_size} images of {side} x {side}, {where}"

    def goals(self, result: SpeedResult) -> Mapping[str, Goal]:
        """Goals of a network by quantity; empty where there are none."""
        return goals_of(result.contestant.workload, self.suite.device)

    def cheapest_first(self) -> list[SpeedResult]:
        """Results by the time of a training step."""
        return sorted(self.results, key=lambda result: result.ratios["training"])

    def as_tree(self) -> dict[str, Any]:
        """Everything as plain values: settings, machine, versions, figures, goals and whether they are met."""
        suite, work = self.suite, self.suite.workload
        return {
            "network": {"size": work.size, "width": work.width, "dataset": work.dataset, "batch_size": work.batch_size},
            "device": str(suite.device),
            "seed": suite.seed,
            "rounds": asdict(suite.rounds),
            "machine": machine_facts(),
            "peers": peers.peer_versions() if self._has_peers() else {},
            "reference": {"memory": asdict(suite.reference_memory)},
            "results": [self._row(result) for result in self.cheapest_first()],
            "failures": self.failures,
        }

    def as_json(self) -> str:
        """The tree as text."""
        return json.dumps(self.as_tree(), indent=2, allow_nan=False) + "\n"

    def _has_peers(self) -> bool:
        return any(result.contestant.package != ONELIP for result in self.results)

    def _row(self, result: SpeedResult) -> dict[str, Any]:
        contestant, ratios = result.contestant, result.ratios
        goals = self.goals(result)
        return {
            "method": contestant.key,
            "title": contestant.title,
            "package": contestant.package,
            "ratios": ratios,
            "training": asdict(result.training),
            "inference": asdict(result.inference),
            "memory": asdict(result.memory),
            "goals": {
                quantity: {**asdict(goal), "met": goal.is_met_by(ratios[quantity])} for quantity, goal in goals.items()
            },
        }
