"""What a study compares: plain values, checked, and the presets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from onelip.bench.records.durations import Clock, format_duration, parse_duration
from onelip.bench.records.specs import RecipeName
from onelip.errors import InvalidInputError
from onelip.layers import list_methods

PresetName = Literal["quick", "cpu", "minutes", "paper"]
MeasureEffort = Literal["full", "short", "none"]

MAIN_METHODS = ("aol", "bcop", "cayley", "cpl", "lot", "sll", "soc", "standard")
"""The seven methods of the paper's comparison, and the plain network as their baseline."""
_MOST_JOBS = 10_000
"""Each is a job; a plan of more is a slip of the keyboard, or a file that is meant to exhaust the memory."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Everything that determines which jobs a study has.

    Args:
        models: architectures: convnet and others of `onelip.models`, each with every method and size, and functions of
            the user's own, module:function, each as it is.
        methods: keys of methods.
        sizes: XS, S, M, L; empty if `width` is given.
        width: channels after the first layer, instead of sizes.
        datasets: names of data sets.
        kernel_sizes: the first is used on all data sets, others on the first data set only, as in the paper.
        budgets: training times such as "2h"; empty if `epochs` is given.
        epochs: passes over the training set, instead of budgets.
        search_runs: trials of the search for learning rate and weight decay; 0 takes the methods' defaults.
        search_budget: training time of a trial; None is the shortest budget, as in the paper.
        clock: what budgets count: time on the clock, or processor time, which other programs leave alone.
        seeds: how often each final training is repeated, with the seeds 0, 1, ...
        batch_size: images per step, in training and in measurements.
        recipe: of searches and trainings, see `RunSpec`; one for all, so that what is found can be used.
        measure: full: as `onelip measure`; short: a few seconds per method; none.
        device: cpu or cuda: times on one say nothing about the other.
    """

    models: tuple[str, ...] = ("convnet",)
    methods: tuple[str, ...] = MAIN_METHODS
    sizes: tuple[str, ...] = ("XS",)
    width: int | None = None
    datasets: tuple[str, ...] = ("cifar10",)
    kernel_sizes: tuple[int, ...] = (3,)
    budgets: tuple[str, ...] = ()
    epochs: int | None = None
    search_runs: int = 0
    search_budget: str | None = None
    clock: Clock = "time"
    seeds: int = 1
    batch_size: int = 256
    recipe: RecipeName = "paper"
    measure: MeasureEffort = "full"
    device: Literal["cpu", "cuda"] = "cpu"

    def __post_init__(self) -> None:
        for name in ("models", "methods", "datasets", "kernel_sizes"):
            if not getattr(self, name):
                raise InvalidInputError(f"a study needs at least one of its {name.replace('_', ' ')}")
            self._set(name, getattr(self, name))
        self._set("sizes", [size.upper() for size in self.sizes])
        self._set("budgets", [format_duration(parse_duration(budget, "budget")) for budget in self.budgets])
        if (not self.sizes) == (self.width is None):
            raise InvalidInputError("give either sizes (XS, S, M, L) or a width, and not both")
        if (not self.budgets) == (self.epochs is None):
            raise InvalidInputError("give either budgets (such as 5m) or epochs, and not both")
        if self.epochs is not None and self.search_budget is not None:
            raise InvalidInputError("a study with epochs searches with epochs too: leave the search budget out")
        if self.search_budget is not None:
            parse_duration(self.search_budget, "search budget")
        if any(kernel < 1 or kernel % 2 == 0 for kernel in self.kernel_sizes):
            raise InvalidInputError(f"kernel sizes must be odd, got {', '.join(map(str, self.kernel_sizes))}")
        if not (0 <= self.search_runs <= _MOST_JOBS and 1 <= self.seeds <= _MOST_JOBS and self.batch_size >= 1):
            raise InvalidInputError(
                f"search runs must be 0 to {_MOST_JOBS}, seeds 1 to {_MOST_JOBS} and batch size 1 or more, "
                f"got {self.search_runs}, {self.seeds} and {self.batch_size}"
            )

    def _set(self, name: str, values: Any) -> None:
        """Without repetitions, in the order given."""
        object.__setattr__(self, name, tuple(dict.fromkeys(values)))

    @property
    def trial_budget(self) -> str | None:
        """Training time of a trial of the search, None for epochs."""
        if self.epochs is not None:
            return None
        return self.search_budget or min(self.budgets, key=parse_duration)

    def changed(self, **given: Any) -> StudyOptions:
        """With these options; those that exclude each other replace each other, None and () mean: as before."""
        changes = {name: value for name, value in given.items() if value is not None and value != ()}
        for one, other, nothing in (("sizes", "width", None), ("budgets", "epochs", None)):
            if one in changes and other not in changes:
                changes[other] = nothing
            elif other in changes and one not in changes:
                changes[one] = ()
        if ("budgets" in changes or "epochs" in changes) and "search_budget" not in changes:
            changes["search_budget"] = None  # that of the preset belongs to the budgets of the preset
        return dataclasses.replace(self, **changes)

    def notes(self) -> list[str]:
        """What a reader of the report must know about these options."""
        sentences = []
        if not self.search_runs:
            sentences.append("Learning rate and weight decay are the defaults: no search was made.")
        if self.clock == "cores":
            sentences.append("Budgets are processor time: other programs on the machine take nothing from a training.")
        if self.recipe == "fast":
            sentences.append(
                f"The network {', '.join(self.models)} and its recipe are made for short budgets "
                "(docs/training_fast.md) and show what they can reach; methods are compared on the paper's network."
            )
        if self.recipe == "short":
            sentences.append(
                "Trainings of the paper's network follow a recipe for short budgets (Adam, for AOL SGD, and a high "
                "temperature of the loss, see docs/training.md), not the paper's, which certifies next to nothing "
                "within minutes."
            )
        if any(dataset.endswith("-mini") for dataset in self.datasets):
            sentences.append(
                "The embedded data set is a small part of CIFAR-10 and budgets are short: this shows what each layer "
                "costs and how it starts to learn, not the accuracies that long training reaches."
            )
        return sentences


def preset(name: PresetName) -> StudyOptions:
    """The options of a preset."""
    return StudyOptions(**_PRESETS[name])


def beside_preset(name: PresetName) -> StudyOptions | None:
    """What a preset trains beside its comparison, in which the network is always the paper's."""
    return StudyOptions(**_BESIDE[name]) if name in _BESIDE else None


_PRESETS: dict[PresetName, dict[str, Any]] = {
    # Below six minutes on two cores: 9 trainings of 30 s with the one beside it, one on each core, and about as much
    # again for measuring and certifying. Budgets are processor time, so that a busy machine ranks methods alike.
    "quick": {
        "datasets": ("cifar10-mini",),
        "sizes": (),
        "width": 8,
        "budgets": ("30s",),
        "clock": "cores",
        "batch_size": 64,
        "recipe": "short",
        "measure": "short",
    },
    # A night on a few cores: 7 searches of 4 x 5 minutes, 8 trainings of half an hour.
    "cpu": {
        "datasets": ("cifar10",),
        "budgets": ("30m",),
        "search_runs": 4,
        "search_budget": "5m",
        "batch_size": 64,
        "recipe": "short",
    },
    # The paper's budgets divided by 60, on all of CIFAR-10, for all methods: each takes 36 minutes of training.
    "minutes": {
        "methods": tuple(method.key for method in list_methods()),
        "datasets": ("cifar10",),
        "budgets": ("2m", "10m", "24m"),
        "batch_size": 64,
        "recipe": "short",
        "measure": "short",
    },
    # The paper: searches of 16 x 2 hours whose result is used for the longer budgets too, on one GPU per job.
    "paper": {
        "datasets": ("cifar10", "cifar100", "tiny-imagenet"),
        "sizes": ("XS", "S", "M", "L"),
        "budgets": ("2h", "10h", "24h"),
        "kernel_sizes": (3, 1),
        "search_runs": 16,
    },
}

# One network and recipe made for short budgets: the methods of `quick` alone would say that half a minute is too short.
_BESIDE: dict[PresetName, dict[str, Any]] = {
    "quick": {
        "models": ("fastnet",),
        "methods": ("stiefel",),
        "sizes": ("S",),
        "datasets": ("cifar10-mini",),
        "budgets": ("30s",),
        "clock": "cores",
        "recipe": "fast",
        "measure": "none",
    },
}
