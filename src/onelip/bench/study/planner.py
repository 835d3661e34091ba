"""Options to jobs: the paper's protocol as a list, in the order in which the jobs are done.

Measurements come first (they are short and say what the rest will take), then searches, then trainings with the seed
as the outermost loop, so that a study that is stopped early has complete comparisons.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from onelip.bench.measurement import PREDICTED, Measurement, Quantity
from onelip.bench.records import NetworkSpec, RunOptions, RunSpec
from onelip.bench.study.job_base import Job
from onelip.bench.study.jobs import SHORT_ROUNDS, MeasureJob, TrainJob
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.search import SearchConfig, SearchJob
from onelip.bench.training.resolve import resolve
from onelip.factories import is_factory_name
from onelip.layers import get_method
from onelip.protocol import REFERENCE

_ORDER = ("measure", "trial", "search", "train")


def plan(*options: StudyOptions) -> tuple[Job, ...]:
    """All jobs of a study with these options, each once, kind by kind."""
    found = {job.name: job for one in options for job in _Planner(one).jobs()}
    return tuple(sorted(found.values(), key=lambda job: _ORDER.index(job.kind)))


class _Planner:
    """The loops of the protocol over checked names."""

    def __init__(self, options: StudyOptions) -> None:
        self.options = options
        self.methods = tuple(dict.fromkeys(get_method(name).key for name in options.methods))
        self.own = tuple(filter(is_factory_name, options.models))
        self.models = tuple(model for model in options.models if model not in self.own)

    def jobs(self) -> Iterator[Job]:
        """In their order."""
        yield from self._measurements()
        searches: dict[NetworkSpec, SearchJob] = {}
        for network in self._networks() if self.options.search_runs else ():
            # Without a guarantee nothing is certified, so that all points would be equally good.
            if network.is_factory or get_method(network.method).guarantee != "none":
                base = self._spec(network, self.options.trial_budget, 0)
                config = SearchConfig(base=base, trials=self.options.search_runs)
                searches[network] = search = SearchJob(config, self.options.device)
                yield from (*search.needs, search)
        for seed in range(self.options.seeds):
            for budget in self.options.budgets or (None,):
                for network in self._networks():
                    yield TrainJob(self._spec(network, budget, seed), searches.get(network), self.options.device)

    def _measurements(self) -> Iterator[MeasureJob]:
        """Memory, operations and time of every network; the plain reference where its figure is not in the others'.

        The kernel is 3 x 3: costs of other kernels are not part of the paper's protocol.
        """
        if self.options.measure == "none":
            return
        for dataset in self.options.datasets:
            for size in self.options.sizes or (None,):
                plain = NetworkSpec(method=REFERENCE, size=size, width=self.options.width, dataset=dataset)
                pairs = itertools.product(self.models, self.methods)
                networks = [dataclasses.replace(plain, method=method, model=model) for model, method in pairs]
                yield from (self._measurement("memory", network) for network in (plain, *networks))
                yield from (self._measurement("macs", network) for network in (plain, *networks))
                yield from (self._measurement("time", network) for network in networks)
            for model, quantity in itertools.product(self.own, ("memory", "macs", "time")):
                yield self._measurement(quantity, NetworkSpec(model=model, dataset=dataset))

    def _measurement(self, quantity: Quantity, network: NetworkSpec) -> MeasureJob:
        # On a CPU the prediction is the account of a real run to 1 %, without the time of one.
        device = PREDICTED if quantity == "memory" and self.options.device == "cpu" else self.options.device
        rounds = SHORT_ROUNDS if quantity == "time" and self.options.measure == "short" else None
        measurement = Measurement(quantity, network, self.options.batch_size, device, rounds)
        return MeasureJob(measurement, "cpu" if measurement.device == PREDICTED else measurement.device)

    def _networks(self) -> Iterator[NetworkSpec]:
        """All of them with the first kernel; with others only convnet, whose kernels alone vary, on the first data."""
        first, *others = self.options.kernel_sizes
        for dataset in self.options.datasets:
            for model in self.models:
                yield from self._with_kernel(model, dataset, first)
            yield from (NetworkSpec(model=model, dataset=dataset) for model in self.own)
        if "convnet" in self.models:
            for kernel in others:
                yield from self._with_kernel("convnet", self.options.datasets[0], kernel)

    def _with_kernel(self, model: str, dataset: str, kernel: int) -> Iterator[NetworkSpec]:
        shared: dict[str, Any] = {
            "width": self.options.width,
            "kernel_size": kernel,
            "dataset": dataset,
            "model": model,
        }
        for size, method in itertools.product(self.options.sizes or (None,), self.methods):
            yield NetworkSpec(method=method, size=size, **shared)

    def _spec(self, network: NetworkSpec, budget: str | None, seed: int) -> RunSpec:
        shared = {name: getattr(self.options, name) for name in ("clock", "epochs", "batch_size", "recipe")}
        return resolve(RunOptions(network=network, budget=budget, seed=seed, **shared))
