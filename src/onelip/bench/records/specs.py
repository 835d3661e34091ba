"""The identity of networks and runs. Training, measurement, jobs, records and reports all speak of these two."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from onelip.bench.records.data_sets import dataset_info
from onelip.bench.records.durations import Clock, parse_duration
from onelip.errors import InvalidInputError
from onelip.factories import is_factory_name
from onelip.protocol import NETWORK_FACTS, SIZES, AugmentationName, DatasetInfo

OWN_MODEL = "own"
"""In the place of a method: a model that a user's function builds."""


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """One network on one data set.

    Reading an old or foreign record must not fail because a method or data set is unknown here; building it does.
    """

    method: str = ""
    """Key of the method, see `onelip methods`; not for a --model of your own."""
    size: str | None = None
    """XS, S, M or L; by default XS, for fastnet S."""
    width: int | None = None
    """Channels after the first layer, instead of --size."""
    dataset: str = "cifar10"
    """Data set, see `onelip data list`; or a folder with one sub-folder of images per class, or an .npz file."""
    kernel_size: int = 3
    """Height and width of the kernels."""
    activation: str = "maxmin"
    """maxmin, groupsort4, householder or abs."""
    padding_mode: str = "auto"
    """circular or zeros; auto is circular, or that of the published setting."""
    init: str = "auto"
    """Starting values of the layers; auto is each method's own choice."""
    model: str = "convnet"
    """Architecture: convnet is the comparison paper's; fastnet, ... are those of `onelip.models`; or module:function,
    your function of num_classes and input_shape that returns a model."""

    def __post_init__(self) -> None:
        if self.is_factory:
            if self.method not in ("", OWN_MODEL) or (self.size, self.width) != (None, None):
                raise InvalidInputError(
                    f"--method, --size and --width belong to convnet; {self.model} decides by itself"
                )
            object.__setattr__(self, "method", OWN_MODEL)
            return
        if self.model in NETWORK_FACTS:
            for name, usual in (("kernel_size", 3), ("activation", "maxmin"), ("init", "auto")):
                if getattr(self, name) != usual:
                    option = name.replace("_", "-")
                    raise InvalidInputError(f"--{option} belongs to convnet; {self.model} has {usual}")
            object.__setattr__(self, "method", self.method or NETWORK_FACTS[self.model].method)
        if not self.method:
            raise InvalidInputError(
                "give a --method, see `onelip methods`, or a --model of your own as module:function"
            )
        if self.size is not None and self.width is not None:
            raise InvalidInputError(f"give either a size or a width, not both (size={self.size}, width={self.width})")
        if self.width is None:
            usual = NETWORK_FACTS[self.model].usual_size if self.model in NETWORK_FACTS else "XS"
            size = usual if self.size is None else str(self.size).upper()
            if size not in SIZES:
                raise InvalidInputError(f"there is no size {self.size!r}, use one of {', '.join(SIZES)}")
            object.__setattr__(self, "size", size)

    @property
    def is_factory(self) -> bool:
        """Whether the model is a user's own, named as module:function."""
        return is_factory_name(self.model)

    @property
    def short_name(self) -> str:
        """The method; of another network than the paper's its name too: `fastnet`, `fastnet bcop`."""
        if self.model not in NETWORK_FACTS:
            return self.method
        return self.model if self.method == NETWORK_FACTS[self.model].method else f"{self.model} {self.method}"

    @property
    def size_name(self) -> str:
        """XS, S, M or L, or w8 for a width of 8; a dash for a user's own model."""
        if self.is_factory:
            return "-"
        return f"w{self.width}" if self.size is None else self.size

    @property
    def label(self) -> str:
        """In words, for people: `bcop XS cifar10`, with what is not as usual: the kernel, the model, ..."""
        kernel = "" if self.kernel_size == 3 else f"{self.kernel_size}x{self.kernel_size}"
        usual = {"activation": "maxmin", "padding_mode": "auto", "init": "auto", "model": "convnet"}
        unusual = (getattr(self, name) for name, value in usual.items() if getattr(self, name) != value)
        return " ".join(filter(None, (self.method, self.size_name, self.dataset, kernel, *unusual)))

    @property
    def data(self) -> DatasetInfo:
        """Facts about the data set."""
        return dataset_info(self.dataset)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in a record."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a person says of a training run: what is not given follows from recipe, method and data set.

    `training.resolve` finds it out.
    """

    network: NetworkSpec
    budget: str | None = None
    """Training time, such as 2h, 5m, 90s. Evaluation does not count. Give this or --epochs."""
    clock: Clock = "time"
    """What --budget counts: time on the clock, or the processor time of this process alone."""
    epochs: int | None = None
    """Passes over the training set, instead of --budget."""
    recipe: Literal["auto", RecipeName] = "auto"
    """Defaults of batch size, learning rate, optimiser, temperature, precision and augmentation: the paper's, short for
    a few hundred steps, or fast for fastnet. auto is short for budgets below 1h, else paper; for fastnet it is fast."""
    setting: Literal["auto", "own", "published"] = "auto"
    """Starts, padding and layer arguments: onelip's own, or those of the comparison paper's code. auto is published
    for the recipe paper, where the paper has the method and it can be certified, else own."""
    batch_size: int | None = None
    """Images per step, over all processes; by default that of the recipe (paper and fast: 256; short: 64), halved until
    a small data set fills a batch."""
    lr: float | None = None
    """Highest learning rate of the schedule; by default the paper's for this network (short: 0.002 for most)."""
    weight_decay: float | None = None
    """Weight decay; by default the paper's for network and data set, else 3e-5, the middle of its range."""
    schedule_epochs: int | None = None
    """Epochs that the schedule spans, moving once per epoch as in the published runs; the run ends after --epochs."""
    optimizer: str | None = None
    """An optimiser of torch by its name: sgd, adamw, nadam, ...; by default that of the recipe (sgd; short: adam)."""
    momentum: float = 0.9
    """Momentum, where the optimiser has one; the schedule cycles it unless --no-cycle-momentum."""
    cycle_momentum: bool = True
    """Move momentum (or beta1) from 0.95 to 0.85 and back while the learning rate rises and falls, as torch does by
    default, or keep it fixed."""
    offset: float = 2 * math.sqrt(2) * 36 / 255
    """Margin that the loss asks for."""
    temperature: float | None = None
    """Temperature of the loss; by default that of the recipe (paper: 0.25; short: 2; fast: 0.5, from 12h on 0.25)."""
    augmentation: AugmentationName | None = None
    """none, flip, shift-flip, crop-flip or randaugment; by default the paper's for the data set (fast below 3m: flip,
    below 1h: shift-flip)."""
    loss: Literal["offset", "emma", "annealing", "regularised"] = "offset"
    """offset: cross-entropy with an offset, the paper's; emma, annealing (LA), regularised (CR): later ones. They take
    --offset as their margin, and the first three --temperature."""
    lookahead: bool = False
    """Let slow weights follow every 6 steps, half of the way."""
    precision: Precision | None = None
    """bfloat16: autocast of the input transformations; parameter transformations stay in float32. By default that of
    the recipe (paper and short: float32; fast: bfloat16)."""
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

    @property
    def budget_seconds(self) -> float | None:
        """The time budget, None for a run of epochs."""
        return None if self.budget is None else parse_duration(self.budget)


@dataclass(frozen=True, kw_only=True)
class RunSpec(RunOptions):
    """One training run, of which all is known. Two runs with equal fields have the same name and are the same run."""

    recipe: RecipeName = field()
    setting: Literal["own", "published"] = field()
    batch_size: int = field()
    lr: float = field()
    weight_decay: float = field()
    optimizer: str = field()
    temperature: float = field()
    augmentation: AugmentationName = field()
    precision: Precision = field()

    def __post_init__(self) -> None:
        rules = {
            "epochs": (self.epochs is None or self.epochs >= 1, "1 or more"),
            "lr": (0 < self.lr < math.inf, "above 0"),
            "weight_decay": (0 <= self.weight_decay < math.inf, "0 or more"),
            "schedule_epochs": (
                self.schedule_epochs is None or self.schedule_epochs >= (self.epochs or math.inf),
                "at least the number of epochs, which must be given",
            ),
            "momentum": (0 <= self.momentum < 1, "in [0, 1)"),
            "ema_decay": (self.ema_decay is None or 0 < self.ema_decay < 1, "in (0, 1)"),
            "batch_size": (self.batch_size >= 1, "1 or more"),
            "validation_fraction": (0 <= self.validation_fraction < 1, "in [0, 1)"),
            "validation_seed": (0 <= self.validation_seed < 2**63, "0 or more"),
            "seed": (0 <= self.seed < 2**63, "0 or more"),
        }
        for name, (good, allowed) in rules.items():
            if not good:
                raise InvalidInputError(f"{name} must be {allowed}, got {getattr(self, name)}")


RecipeName = Literal["paper", "short", "fast"]

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Recipe:
    """Defaults of a `RunSpec`; each one that is given there wins. No augmentation means that of the data set.

    docs/training.md and docs/training_fast.md have the reasons.
    """

    optimizer: str
    batch_size: int
    temperature: float
    precision: Precision = "float32"
    augmentation: AugmentationName | None = None


RECIPES: dict[str, Recipe] = {
    "paper": Recipe("sgd", 256, 0.25),
    "short": Recipe("adam", 64, 2.0),
    "fast": Recipe("adam", 256, 0.5, "bfloat16", "shift-flip"),
}
"""paper: for hours. short: for seconds to minutes, a few hundred steps. fast: the most within minutes, with fastnet."""

PAPER_FROM_SECONDS = 3600.0
"""Budgets below this follow the recipe "short" unless told otherwise: the paper's shortest is two hours."""

_FAST_BELOW_SECONDS = (
    # fewer than a dozen epochs: moved by pixels too, images are learned more slowly
    (180.0, Recipe("adam", 256, 0.5, "bfloat16", "flip")),
    (PAPER_FROM_SECONDS, RECIPES["fast"]),
    # many epochs: the augmentation that the paper trains with for hours
    (12 * 3600.0, Recipe("adam", 256, 0.5, "bfloat16")),
    # Hundreds: the paper's temperature too. A network that fits its images needs no large one to learn, and a small one
    # leaves it more accuracy.
    (math.inf, Recipe("adam", 256, 0.25, "bfloat16")),
)


def recipe_for(name: str, seconds: float | None) -> Recipe:
    """The recipe of that name for a budget; None is a run of epochs. fast has presets for orders of budgets."""
    if name != "fast" or seconds is None:
        return RECIPES[name]
    return next((recipe for most, recipe in _FAST_BELOW_SECONDS if seconds < most), _FAST_BELOW_SECONDS[-1][1])
