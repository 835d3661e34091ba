"""Points of a search as a function of the study's seed and the trial's number.

Optuna's samplers keep a random state per process: two workers with one seed draw the same points, and a worker
that is started again repeats those it drew before. Here every trial gets a sampler of its own.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial


class NumberedSampler(BaseSampler):
    """Random or TPE sampling with a seed per trial; TPE counts running trials as bad, so that workers spread out."""

    def __init__(self, kind: Literal["random", "tpe"], seed: int) -> None:
        self._kind, self._seed = kind, seed

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Parameters that are drawn together: all for TPE, once there are trials to learn from."""
        return self._joint_sampler(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw those parameters."""
        return self._joint_sampler(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw one parameter at random; its name is part of the seed, or all would be drawn alike."""
        sampler = RandomSampler(self._seed_of(trial, param_name))
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def _joint_sampler(self, trial: FrozenTrial) -> BaseSampler:
        if self._kind == "random":
            return RandomSampler(0)  # draws nothing jointly
        with warnings.catch_warnings():  # both options are marked experimental, and say so each time
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return TPESampler(seed=self._seed_of(trial, "joint"), constant_liar=True, multivariate=True)

    def _seed_of(self, trial: FrozenTrial, purpose: str) -> int:
        digest = hashlib.sha256(f"{self._seed}/{trial.number}/{purpose}".encode()).digest()
        return int.from_bytes(digest[:4], "little")
