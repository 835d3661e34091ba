"""The points of a random search without a journal: by Optuna's ask, from the search's seed and the trial's number."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

import optuna

from onelip.bench.search.samplers import NumberedSampler
from onelip.bench.search.searcher import SPACE, SearchConfig
from onelip.errors import InvalidInputError


def point(config: SearchConfig, number: int) -> Mapping[str, float]:
    """Learning rate and weight decay of one trial. Random points do not depend on the results of other trials.

    TPE and pruning do: they need the journal of `search`, and are refused here.
    """
    if config.sampler != "random" or config.pruner != "none":
        raise InvalidInputError("trials of a study are independent: their sampler is random and their pruner none")
    if not 0 <= number < config.trials:
        raise InvalidInputError(f"the search has the trials 0 to {config.trials - 1}, not {number}")
    return _points(config.search_seed, config.trials)[number]


@functools.cache
def _points(seed: int, trials: int) -> tuple[Mapping[str, float], ...]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=NumberedSampler("random", seed), direction="maximize")
    return tuple(MappingProxyType(study.ask(dict(SPACE)).params) for _ in range(trials))
