"""Options to jobs: the paper's protocol as a list, in the order in which the jobs are done.

Measurements come first (they are short and say what the rest will take), then searches, then trainings with the seed
as the outermost loop, so that a study that is stopped early has complete comparisons.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from onelip.bench.measurement import PREDICTED, Measurement, Quantity
from onelip.bench.runs import NetworkSpec, RunSpec
from onelip.bench.search.searcher import SearchConfig
from onelip.bench.study.job_base import Job
from onelip.bench.study.measure_job import SHORT_ROUNDS, MeasureJob
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.search_job import SearchJob
from onelip.bench.study.train_job import TrainJob
from onelip.errors import InvalidInputError
from onelip.factories import is_factory_name
from onelip.layers import get_method
from onelip.protocol import REFERENCE

_ORDER = ("measure", "trial", "search", "train")


def plan(*options: StudyOptions) -> tuple[Job, ...]:
    """All jobs of a study with these options, each once, kind by kind."""
    found = {job.name: job for one in options for job in _Planner(one).jobs()}
    return tuple(sorted(found.values(), key=lambda job: _ORDER.index(job.kind)))


def find_job(jobs: Iterable[Job], name: str) -> Job:
    """The job with this name, or with the only name that begins so."""
    jobs = list(jobs)
    found = [job for job in jobs if job.name == name] or [job for job in jobs if name and job.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} jobs begin with {name!r}" if found else f"the study has no job {name!r}"
    raise InvalidInputError(f"{problem}; there are: {', '.join(job.name for job in (found or jobs)[:5])}, ...")


class _Planner:
    """The loops of the protocol over checked names."""

    def __init__(self, options: StudyOptions) -> None:
        self.options = options
        self.methods = tuple(dict.fromkeys(get_method(name).key for name in options.methods))
        self.searches = {search.network: search for search in self._searches()}

    def jobs(self) -> Iterator[Job]:
        """In their order."""
        yield from self._measurements()
        for search in self.searches.values():
            yield from search.needs
        yield from self.searches.values()
        yield from self._trainings()

    def _measurements(self) -> Iterator[MeasureJob]:
        """Memory, operations and time of every network; the plain reference where its figure is not in the others'.

        The kernel is 3 x 3: costs of other kernels are not part of the paper's protocol.
        """
        if self.options.measure == "none":
            return
        for dataset in self.options.datasets:
            for size in self.options.sizes or (None,):
                plain = NetworkSpec(method=REFERENCE, size=size, width=self.options.width, dataset=dataset)
                networks = [
                    dataclasses.replace(plain, method=method, model=model)
                    for model in self.options.models
                    if not is_factory_name(model)
                    for method in self.methods
                ]
                yield from (self._measurement("memory", network) for network in (plain, *networks))
                yield from (self._measurement("macs", network) for network in (plain, *networks))
                yield from (self._measurement("time", network) for network in networks)
            for network in self._own_models(dataset):
                yield from (self._measurement(quantity, network) for quantity in ("memory", "macs", "time"))

    def _measurement(self, quantity: Quantity, network: NetworkSpec) -> MeasureJob:
        # On a CPU the prediction is the account of a real run to 1 %, without the time of one.
        device = PREDICTED if quantity == "memory" and self.options.device == "cpu" else self.options.device
        rounds = SHORT_ROUNDS if quantity == "time" and self.options.measure == "short" else None
        measurement = Measurement(quantity, network, self.options.batch_size, device, rounds)
        return MeasureJob(measurement, "cpu" if measurement.device == PREDICTED else measurement.device)

    def _searches(self) -> Iterator[SearchJob]:
        if self.options.search_runs:
            for network in self._networks():
                # Without a guarantee nothing is certified, so that all points would be equally good.
                if network.is_factory or get_method(network.method).guarantee != "none":
                    base = self._spec(network, self.options.trial_budget, 0)
                    yield SearchJob(SearchConfig(base=base, trials=self.options.search_runs), self.options.device)

    def _trainings(self) -> Iterator[TrainJob]:
        """Every network with every budget and seed."""
        for seed in range(self.options.seeds):
            for budget in self.options.budgets or (None,):
                for network in self._networks():
                    spec = self._spec(network, budget, seed)
                    yield TrainJob(spec, self.searches.get(network), self.options.device)

    def _networks(self) -> Iterator[NetworkSpec]:
        """Other kernels than the first on the first data set only."""
        datasets, width = self.options.datasets, self.options.width
        for number, kernel in enumerate(self.options.kernel_sizes):
            # Networks other than convnet have kernels of their own.
            models = self.options.models if number == 0 else {"convnet"}.intersection(self.options.models)
            shared = {"width": width, "kernel_size": kernel}
            for dataset in datasets if number == 0 else datasets[:1]:
                for model in models:
                    if not is_factory_name(model):
                        for size in self.options.sizes or (None,):
                            for method in self.methods:
                                yield NetworkSpec(method=method, size=size, dataset=dataset, model=model, **shared)
                yield from self._own_models(dataset) if number == 0 else ()

    def _own_models(self, dataset: str) -> Iterator[NetworkSpec]:
        for model in filter(is_factory_name, self.options.models):
            yield NetworkSpec(model=model, dataset=dataset)

    def _spec(self, network: NetworkSpec, budget: str | None, seed: int) -> RunSpec:
        return RunSpec(
            network=network,
            budget=budget,
            clock=self.options.clock,
            epochs=self.options.epochs,
            batch_size=self.options.batch_size,
            recipe=self.options.recipe,
            seed=seed,
        )
