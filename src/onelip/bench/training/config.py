"""What determines a training run: the command line, the record and the name of its folder, in one place.

The command line reads this file for its help, so torch is imported only where a configuration is made.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from onelip.bench.runs.durations import format_duration, parse_duration
from onelip.errors import InvalidInputError

if TYPE_CHECKING:
    from onelip.layers import MethodInfo
    from onelip.models.config import ConvNetConfig


@dataclass(frozen=True)
class Recipe:
    """Settings that belong together; each one that is given to `TrainConfig` itself wins."""

    optimizer: str
    batch_size: int
    temperature: float


RECIPES = {
    "paper": Recipe(optimizer="sgd", batch_size=256, temperature=0.25),
    "short": Recipe(optimizer="adam", batch_size=64, temperature=2.0),
}
"""paper: for hours. short: for seconds to minutes, a few hundred steps; docs/training.md has reasons and figures."""

PAPER_FROM_SECONDS = 3600.0
"""Budgets below this follow the recipe "short" unless told otherwise: the paper's shortest is two hours."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run. Two runs with equal fields have the same name and are the same run."""

    method: str
    """Key of the method, see `onelip methods`."""
    size: str | None = None
    """XS, S, M or L; by default XS."""
    width: int | None = None
    """Channels after the first layer, instead of --size."""
    dataset: str = "cifar10"
    """Data set, see `onelip data list`."""
    kernel_size: int = 3
    """Odd side of the kernels."""
    activation: str = "maxmin"
    """maxmin, groupsort4, householder or abs."""
    padding_mode: str = "circular"
    """circular or zeros."""
    init: str = "auto"
    """Starting values of the layers; auto is each method's own choice."""
    budget: str | None = None
    """Training time, such as 2h, 5m, 90s. Evaluation does not count. Give this or --epochs."""
    epochs: int | None = None
    """Passes over the training set, instead of --budget."""
    recipe: Literal["auto", "paper", "short"] = "auto"
    """Defaults of batch size, learning rate, optimiser and temperature: the paper's, or short for a few hundred steps.
    auto is short for budgets below 1h, else paper."""
    batch_size: int | None = None
    """Images per step, over all processes; by default that of the recipe (256; short: 64)."""
    lr: float | None = None
    """Highest learning rate of the schedule; by default that of the method for the recipe (short: 0.002 for most)."""
    weight_decay: float = 3e-5
    """Weight decay; the default is the middle of the range that the paper searches."""
    optimizer: str | None = None
    """An optimiser of torch by its name: sgd, adamw, nadam, ...; by default that of the recipe (sgd; short: adam)."""
    momentum: float = 0.9
    """Momentum, where the optimiser has one; the schedule cycles it unless --no-cycle-momentum."""
    cycle_momentum: bool = True
    """Move momentum (or beta1) from 0.95 to 0.85 and back while the learning rate rises and falls: torch's default."""
    offset: float = 2 * math.sqrt(2) * 36 / 255
    """Margin that the loss asks for."""
    temperature: float | None = None
    """Temperature of the loss; by default that of the recipe (0.25; short: 2)."""
    augmentation: Literal["none", "crop-flip", "randaugment"] | None = None
    """none, crop-flip or randaugment; by default what the paper uses for the data set."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: autocast of the input transformations; parameter transformations stay in float32."""
    channels_last: bool = False
    """Store images channels-last."""
    ema_decay: float | None = None
    """Average the weights with this decay per step, such as 0.999, and evaluate the average."""
    validation_fraction: float = 0.1
    """Part of the training set that is set aside for validation; 0 trains on everything."""
    validation_seed: int = 0
    """Chooses the validation images; the same for all seeds, so that their results compare."""
    seed: int = 0
    """Starting values, order of images and augmentation."""

    def __post_init__(self) -> None:
        from onelip.bench.data import get_dataset
        from onelip.bench.training.optimisers import find_optimiser
        from onelip.layers import get_method

        method, info = get_method(self.method), get_dataset(self.dataset)
        self._set("method", method.key)
        self._follow_recipe(method)
        self._set("augmentation", info.augmentation if self.augmentation is None else self.augmentation)
        if self.size is None and self.width is None:
            self._set("size", "XS")
        self._set("size", self.network.size)  # refuses what no network can be built from
        self._set("optimizer", find_optimiser(self.settings.optimizer).__name__.lower())
        self._check_budget()
        self._check_numbers()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _follow_recipe(self, method: MethodInfo) -> None:
        if self.recipe == "auto":
            is_short = self.budget_seconds is not None and self.budget_seconds < PAPER_FROM_SECONDS
            self._set("recipe", "short" if is_short else "paper")
        if self.recipe not in RECIPES:
            raise InvalidInputError(f"unknown recipe {self.recipe!r}; known: auto, {', '.join(RECIPES)}")
        lr = method.learning_rate if self.recipe == "paper" else method.short_learning_rate
        for name, value in {**asdict(RECIPES[self.recipe]), "lr": lr}.items():
            if getattr(self, name) is None:
                self._set(name, value)

    def _check_budget(self) -> None:
        if (self.budget is None) == (self.epochs is None):
            raise InvalidInputError("give either --budget (such as 5m) or --epochs, and not both")
        if self.budget is not None:
            self._set("budget", format_duration(parse_duration(self.budget)))  # 300s and 5m are one run
        elif self.epochs is not None and self.epochs < 1:
            raise InvalidInputError(f"epochs must be 1 or more, got {self.epochs}")

    def _check_numbers(self) -> None:
        rules = {
            "lr": (self.max_lr, 0 < self.max_lr < math.inf, "above 0"),
            "weight_decay": (self.weight_decay, 0 <= self.weight_decay < math.inf, "0 or more"),
            "momentum": (self.momentum, 0 <= self.momentum < 1, "in [0, 1)"),
            "ema_decay": (self.ema_decay, self.ema_decay is None or 0 < self.ema_decay < 1, "in (0, 1)"),
            "batch_size": (self.settings.batch_size, self.settings.batch_size >= 1, "1 or more"),
            "validation_fraction": (self.validation_fraction, 0 <= self.validation_fraction < 1, "in [0, 1)"),
        }
        for name, (value, good, allowed) in rules.items():
            if not good:
                raise InvalidInputError(f"{name} must be {allowed}, got {value}")

    @property
    def settings(self) -> Recipe:
        """What recipe and options come to, all known by now."""
        assert self.optimizer is not None
        assert self.batch_size is not None
        assert self.temperature is not None
        return Recipe(self.optimizer, self.batch_size, self.temperature)

    @property
    def max_lr(self) -> float:
        """The learning rate, known by now."""
        assert self.lr is not None
        return self.lr

    @property
    def budget_seconds(self) -> float | None:
        """The time budget, None for a run of epochs."""
        return None if self.budget is None else parse_duration(self.budget)

    @property
    def network(self) -> ConvNetConfig:
        """The network to train."""
        from onelip.bench.data import get_dataset
        from onelip.models.config import ConvNetConfig

        info = get_dataset(self.dataset)
        return ConvNetConfig(
            method=self.method,
            size=self.size,
            width=self.width,
            num_classes=info.num_classes,
            input_size=info.image_size,
            in_channels=info.channels,
            kernel_size=self.kernel_size,
            activation=self.activation,
            padding_mode=self.padding_mode,
            init=self.init,
        )
