"""Options to jobs: the paper's protocol as a list, in the order in which the jobs are done.

Measurements come first (they are short and say what the rest will take), then searches, then trainings with the seed
as the outermost loop, so that a study that is stopped early has complete comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onelip.bench.data import get_dataset
from onelip.bench.measurement import PREDICTED, REFERENCE, Measurement, Quantity
from onelip.bench.runs import NetworkSpec, RunSpec
from onelip.bench.search.searcher import SearchConfig
from onelip.bench.study.jobs import Job
from onelip.bench.study.measuring import SHORT_ROUNDS, MeasureJob
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.searching import SearchJob
from onelip.bench.study.training import TrainJob
from onelip.layers import get_method


def plan(options: StudyOptions, device: str = "cpu") -> tuple[Job, ...]:
    """All jobs of a study; `device` is cpu or cuda, because times on one say nothing about the other."""
    checked = _Planner(options, device)
    return (*checked.measurements(), *checked.searches.values(), *checked.trainings())


def union(plans: Iterable[tuple[Job, ...]]) -> tuple[Job, ...]:
    """The jobs of several plans, each once, kind by kind."""
    found = {job.name: job for jobs in plans for job in jobs}
    order = ("measure", "search", "train")
    return tuple(sorted(found.values(), key=lambda job: order.index(job.kind)))


def shard(jobs: tuple[Job, ...], index: int, count: int) -> tuple[Job, ...]:
    """The part `index` (from 1) of `count`: a network stays with all of its measurements, searches and trainings.

    The plain reference, to which the figures of all methods are compared, is in every part.
    """
    groups: dict[tuple[object, ...], int] = {}
    kept = []
    for job in jobs:
        network = job.network
        group = (network.method, network.size_name, network.dataset)
        number = groups.setdefault(group, len([known for known in groups if known[0] != REFERENCE]))
        if network.method == REFERENCE or number % count == index - 1:
            kept.append(job)
    return tuple(kept)


class _Planner:
    """The loops of the protocol over checked names."""

    def __init__(self, options: StudyOptions, device: str) -> None:
        self.options, self.device = options, device
        self.methods = tuple(dict.fromkeys(get_method(name).key for name in options.methods))
        self.datasets = tuple(get_dataset(name).name for name in options.datasets)
        self.searches = {job.name: job for job in self._searches()}

    def measurements(self) -> Iterator[MeasureJob]:
        """Memory, operations and time of every network; the plain reference where its figure is not in the others'.

        The kernel is 3 x 3: costs of other kernels are not part of the paper's protocol.
        """
        if self.options.measure == "none":
            return
        for dataset in self.datasets:
            for size in self.options.sizes or (None,):
                yield from (self._measurement("memory", key, size, dataset) for key in (REFERENCE, *self.methods))
                yield from (self._measurement("macs", key, size, dataset) for key in (REFERENCE, *self.methods))
                yield from (self._measurement("time", key, size, dataset) for key in self.methods)

    def _measurement(self, quantity: Quantity, method: str, size: str | None, dataset: str) -> MeasureJob:
        network = NetworkSpec(method=method, size=size, width=self.options.width, dataset=dataset)
        # On a CPU the prediction is the account of a real run to 1 %, without the time of one.
        device = PREDICTED if quantity == "memory" and self.device == "cpu" else self.device
        rounds = SHORT_ROUNDS if quantity == "time" and self.options.measure == "short" else None
        return MeasureJob(Measurement(quantity, network, self.options.batch_size, device, rounds))

    def _searches(self) -> Iterator[SearchJob]:
        if self.options.search_runs:
            for method, size, dataset, kernel in self._networks():
                # Without a guarantee nothing is certified, so that all points would be equally good.
                if get_method(method).guarantee != "none":
                    yield self._search(method, size, dataset, kernel)

    def _search(self, method: str, size: str | None, dataset: str, kernel: int) -> SearchJob:
        base = self._config(method, size, dataset, kernel, self.options.trial_budget, 0)
        return SearchJob(SearchConfig(base=base, trials=self.options.search_runs))

    def trainings(self) -> Iterator[TrainJob]:
        """Every network with every budget and seed."""
        for seed in range(self.options.seeds):
            for budget in self.options.budgets or (None,):
                for network in self._networks():
                    search = self._search(*network) if self.options.search_runs else None
                    found = None if search is None else self.searches.get(search.name)
                    yield TrainJob(self._config(*network, budget, seed), found)

    def _networks(self) -> Iterator[tuple[str, str | None, str, int]]:
        """Method, size, data set and kernel; other kernels than the first on the first data set only."""
        for number, kernel in enumerate(self.options.kernel_sizes):
            for dataset in self.datasets if number == 0 else self.datasets[:1]:
                for size in self.options.sizes or (None,):
                    for method in self.methods:
                        yield method, size, dataset, kernel

    def _config(
        self, method: str, size: str | None, dataset: str, kernel: int, budget: str | None, seed: int
    ) -> RunSpec:
        return RunSpec(
            network=NetworkSpec(
                method=method, size=size, width=self.options.width, dataset=dataset, kernel_size=kernel
            ),
            budget=budget,
            epochs=self.options.epochs,
            batch_size=self.options.batch_size,
            recipe=self.options.recipe,
            seed=seed,
        )
