"""The identity of networks and runs. Training, measurement, jobs, records and reports all speak of these two."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import nn

from onelip.bench.data import get_dataset
from onelip.bench.published import published_rates
from onelip.bench.runs.dataset_option import DatasetOption
from onelip.bench.runs.durations import Clock, format_duration, parse_duration
from onelip.bench.runs.recipes import PAPER_FROM_SECONDS, RECIPES, Precision, RecipeName, recipe_for
from onelip.errors import InvalidInputError
from onelip.factories import is_factory_name
from onelip.layers import MethodInfo, get_method
from onelip.models import NETWORKS, ConvNet
from onelip.models.config import ConvNetConfig
from onelip.protocol import DATA_SETS, REFERENCE, SIZES, AugmentationName, DatasetInfo

USUAL_WEIGHT_DECAY = 3e-5
"""The middle of the range that the paper searches."""

OWN_MODEL = "own"
"""In the place of a method: a model that a user's function builds."""

OWN_MODEL_RATES = {
    "paper": {"lr": 0.05, "weight_decay": USUAL_WEIGHT_DECAY},
    "short": {"lr": 0.002, "weight_decay": USUAL_WEIGHT_DECAY},
    "fast": {"lr": 0.002, "weight_decay": 0.0},
}
"""Learning rates that most methods have."""


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """One network on one data set.

    Reading an old or foreign record must not fail because a method or data set is unknown here; `config` refuses them.
    """

    method: str = ""
    """Key of the method, see `onelip methods`; not for a --model of your own."""
    size: str | None = None
    """XS, S, M or L; by default XS, for fastnet S."""
    width: int | None = None
    """Channels after the first layer, instead of --size."""
    dataset: DatasetOption = "cifar10"
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
        if self.model in NETWORKS:
            for name, usual in (("kernel_size", 3), ("activation", "maxmin"), ("init", "auto")):
                if getattr(self, name) != usual:
                    option = name.replace("_", "-")
                    raise InvalidInputError(f"--{option} belongs to convnet; {self.model} has {usual}")
            object.__setattr__(self, "method", self.method or NETWORKS[self.model].method)
        if not self.method:
            raise InvalidInputError(
                "give a --method, see `onelip methods`, or a --model of your own as module:function"
            )
        if self.size is not None and self.width is not None:
            raise InvalidInputError(f"give either a size or a width, not both (size={self.size}, width={self.width})")
        if self.width is None:
            usual = NETWORKS[self.model].usual_size if self.model in NETWORKS else "XS"
            size = usual if self.size is None else str(self.size).upper()
            if size not in SIZES:
                raise InvalidInputError(f"there is no size {self.size!r}, use one of {', '.join(SIZES)}")
            object.__setattr__(self, "size", size)

    @property
    def is_factory(self) -> bool:
        """Whether the model is a user's own, named as module:function."""
        return is_factory_name(self.model)

    @property
    def factory_arguments(self) -> dict[str, Any]:
        """What a user's function is called with, if it takes it."""
        return {"num_classes": self.data.num_classes, "input_shape": list(self.data.shape)}

    @property
    def network_arguments(self) -> dict[str, Any]:
        """What the class of a network of `onelip.models.NETWORKS` is called with."""
        width = NETWORKS[self.model].widths[self.size] if self.size is not None else self.width
        padding = {} if self.padding_mode == "auto" else {"padding_mode": self.padding_mode}
        return {
            "method": self.method,
            "width": width,
            "num_classes": self.data.num_classes,
            "input_shape": self.data.shape,
            **padding,
        }

    @property
    def short_name(self) -> str:
        """The method; of another network than the paper's its name too: `fastnet`, `fastnet bcop`."""
        if self.model not in NETWORKS:
            return self.method
        return self.model if self.method == NETWORKS[self.model].method else f"{self.model} {self.method}"

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
        return DATA_SETS.get(self.dataset) or get_dataset(self.dataset)  # the cache knows one's own

    @property
    def config(self) -> ConvNetConfig:
        """What the network is built from, in onelip's own setting."""
        return self.configured("own")

    def configured(self, setting: str) -> ConvNetConfig:
        """The same in a setting; the reference has the limits of the network with plain convolutions."""
        if self.model != "convnet":
            known = ", ".join(("convnet", *NETWORKS))
            raise InvalidInputError(f"{self.model!r} is not a ConvNet; known here: {known}")
        data = self.data
        return ConvNetConfig(
            method="standard" if self.method == REFERENCE else self.method,
            size=self.size,
            width=self.width,
            num_classes=data.num_classes,
            input_size=data.image_size,
            input_width=data.image_width,
            in_channels=data.channels,
            kernel_size=self.kernel_size,
            activation=self.activation,
            padding_mode=self.padding_mode,
            init=self.init,
            setting=setting,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in a record."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run. Two runs with equal fields have the same name and are the same run.

    What is not given follows from the recipe, the method and the data set, and is known once the spec is made.
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
    """Keep momentum (or beta1) fixed. Otherwise it moves from 0.95 to 0.85 and back while the learning rate rises and
    falls, torch's default."""  # the help of --no-cycle-momentum, the only way to write this option
    offset: float = 2 * math.sqrt(2) * 36 / 255
    """Margin that the loss asks for."""
    temperature: float | None = None
    """Temperature of the loss; by default that of the recipe (paper: 0.25; short: 2; fast: 0.5, from 12h on 0.25)."""
    augmentation: AugmentationName | None = None
    """none, shift-flip, crop-flip or randaugment; by default the paper's for the data set (fast below 1h:
    shift-flip)."""
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

    def __post_init__(self) -> None:
        method = None if self.network.is_factory else get_method(self.network.method)
        if method is not None:
            self._set("network", dataclasses.replace(self.network, method=method.key))
        if (self.budget is None) == (self.epochs is None):
            raise InvalidInputError("give either --budget (such as 5m) or --epochs, and not both")
        if self.budget is not None:
            self._set("budget", format_duration(parse_duration(self.budget)))  # 300s and 5m are one run
        if self.recipe == "auto":
            is_short = self.budget_seconds is not None and self.budget_seconds < PAPER_FROM_SECONDS
            self._set("recipe", "fast" if self.network.model == "fastnet" else "short" if is_short else "paper")
        if self.recipe not in RECIPES:
            raise InvalidInputError(f"unknown recipe {self.recipe!r}; known: auto, {', '.join(RECIPES)}")
        if self.setting == "auto":
            published = None if method is None else method.setting
            is_certified = published is not None and published.conv is None
            self._set("setting", "published" if self.recipe == "paper" and is_certified else "own")
        if method is None:
            if self.setting == "published":
                raise InvalidInputError(f"{self.network.model} has no published setting, use --setting own")
            rates = OWN_MODEL_RATES[self.recipe]
        else:
            # refuses what no network can be built from
            _ = self.new_network("meta") if self.network.model in NETWORKS else self.network_config
            rates = self._rates(method)
        recipe = recipe_for(self.recipe, self.budget_seconds)
        defaults = asdict(recipe) | rates
        defaults["augmentation"] = recipe.augmentation or self.network.data.augmentation
        defaults["batch_size"] = self._filled_batch(recipe.batch_size)
        for name, value in defaults.items():
            if getattr(self, name) is None:
                self._set(name, value)
        self._set("optimizer", self.settings.optimizer.lower())
        self._check_numbers()

    def _filled_batch(self, batch_size: int) -> int:
        """Halved until the training images fill it; each class may give one image more to validation than its share."""
        data = self.network.data
        images = data.train_size * (1 - self.validation_fraction) - data.num_classes
        while batch_size > max(images, 1):
            batch_size //= 2
        return batch_size

    def _rates(self, method: MethodInfo) -> dict[str, Any]:
        """Learning rate and weight decay, and for short budgets the method's optimiser, where they are not given."""
        if self.recipe != "paper":
            usual = method.short_optimizer if self.recipe == "short" else RECIPES[self.recipe].optimizer
            optimizer = (self.optimizer or usual).lower()
            rates = OWN_MODEL_RATES[self.recipe] | {"optimizer": optimizer}
            # A rate of SGD says nothing about other optimisers; one of Adam is a start for all of them.
            known = method.short_optimizer in ("adam", optimizer)
            return rates | ({"lr": method.short_learning_rate} if known else {})
        network = self.network
        dataset = network.dataset.removesuffix("-mini")
        rates = published_rates(dataset, network.kernel_size, method.key, network.size)
        return {"lr": method.learning_rate, "weight_decay": USUAL_WEIGHT_DECAY} if rates is None else rates

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_numbers(self) -> None:
        rules = {
            "epochs": (self.epochs is None or self.epochs >= 1, "1 or more"),
            "lr": (0 < self.settings.lr < math.inf, "above 0"),
            "weight_decay": (0 <= self.settings.weight_decay < math.inf, "0 or more"),
            "schedule_epochs": (
                self.schedule_epochs is None or self.schedule_epochs >= (self.epochs or math.inf),
                "at least the number of epochs, which must be given",
            ),
            "momentum": (0 <= self.momentum < 1, "in [0, 1)"),
            "ema_decay": (self.ema_decay is None or 0 < self.ema_decay < 1, "in (0, 1)"),
            "batch_size": (self.settings.batch_size >= 1, "1 or more"),
            "validation_fraction": (0 <= self.validation_fraction < 1, "in [0, 1)"),
            "validation_seed": (0 <= self.validation_seed < 2**63, "0 or more"),
            "seed": (0 <= self.seed < 2**63, "0 or more"),
        }
        for name, (good, allowed) in rules.items():
            if not good:
                raise InvalidInputError(f"{name} must be {allowed}, got {getattr(self, name)}")

    @property
    def network_config(self) -> ConvNetConfig:
        """What the network is built from, in the setting of this run."""
        return self.network.configured("published" if self.setting == "published" else "own")

    def new_network(self, device: str | None = None) -> nn.Module:
        """One of onelip's networks in the setting of this run, with fresh parameters."""
        if self.network.model in NETWORKS:
            return NETWORKS[self.network.model](**self.network.network_arguments, device=device)
        return ConvNet.from_config(self.network_config, device=device)

    @property
    def settings(self) -> Settings:
        """What recipe and options come to, all known by now."""
        return Settings(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Settings)})

    @property
    def budget_seconds(self) -> float | None:
        """The time budget, None for a run of epochs."""
        return None if self.budget is None else parse_duration(self.budget)

    @property
    def budget_name(self) -> str:
        """30m, or 4 epochs."""
        return self.budget if self.budget is not None else f"{self.epochs} epoch{'s' * (self.epochs != 1)}"


@dataclass(frozen=True)
class Settings:
    """The options of a `RunSpec` that have no fixed default, as they are used."""

    optimizer: str
    batch_size: int
    temperature: float
    lr: float
    weight_decay: float
    augmentation: AugmentationName
    precision: Precision
