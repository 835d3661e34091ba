"""What a person says of a training, completed to the run that is trained."""

from __future__ import annotations

import dataclasses
from dataclasses import fields, replace
from typing import Any

from onelip.bench.paper.published import published_rates
from onelip.bench.paper.settings import PUBLISHED_SETTINGS
from onelip.bench.records import RunOptions, RunSpec
from onelip.bench.records.durations import format_duration, parse_duration
from onelip.bench.records.new_networks import network_config, new_network
from onelip.bench.records.specs import PAPER_FROM_SECONDS, RECIPES, recipe_for
from onelip.errors import InvalidInputError
from onelip.layers import MethodInfo, get_method
from onelip.models import NETWORKS

USUAL_WEIGHT_DECAY = 3e-5
"""The middle of the range that the paper searches."""

OWN_MODEL_RATES = {
    "paper": {"lr": 0.05, "weight_decay": USUAL_WEIGHT_DECAY},
    "short": {"lr": 0.002, "weight_decay": USUAL_WEIGHT_DECAY},
    "fast": {"lr": 0.002, "weight_decay": 0.0},
}
"""Learning rates that most methods have."""


def resolve(options: RunOptions, **changes: Any) -> RunSpec:
    """The run that is meant, with these changes; what no network can be built from is refused.

    A run that is known already comes out as it is.
    """
    given = {field.name: getattr(options, field.name) for field in fields(RunOptions)} | changes
    options = RunOptions(**given)
    method = None if options.network.is_factory else get_method(options.network.method)
    network = options.network if method is None else replace(options.network, method=method.key)
    if (options.budget is None) == (options.epochs is None):
        raise InvalidInputError("give either --budget (such as 5m) or --epochs, and not both")
    budget = None if options.budget is None else format_duration(parse_duration(options.budget, "budget"))  # 300s is 5m
    seconds, name, setting = options.budget_seconds, options.recipe, options.setting
    if name == "auto":
        is_short = seconds is not None and seconds < PAPER_FROM_SECONDS
        name = "fast" if network.model == "fastnet" else "short" if is_short else "paper"
    if name not in RECIPES:
        raise InvalidInputError(f"unknown recipe {name!r}; known: auto, {', '.join(RECIPES)}")
    if setting == "auto":
        published = None if method is None else PUBLISHED_SETTINGS.get(method.key)
        is_certified = published is not None and published.conv is None
        setting = "published" if name == "paper" and is_certified else "own"
    options = replace(options, network=network, budget=budget, recipe=name, setting=setting)
    if method is None:
        if setting == "published":
            raise InvalidInputError(f"{network.model} has no published setting, use --setting own")
        rates = OWN_MODEL_RATES[name]
    else:
        # refuses what no network can be built from
        _ = new_network(network, device="meta") if network.model in NETWORKS else network_config(network, setting)
        rates = _rates(options, method)
    recipe = recipe_for(name, seconds)
    defaults = dataclasses.asdict(recipe) | rates
    defaults["augmentation"] = recipe.augmentation or network.data.augmentation
    defaults["batch_size"] = _filled_batch(options, recipe.batch_size)
    known = {field.name: getattr(options, field.name) for field in fields(RunOptions)}
    known |= {name: value for name, value in defaults.items() if known[name] is None}
    return RunSpec(**known | {"optimizer": known["optimizer"].lower()})


def _filled_batch(options: RunOptions, batch_size: int) -> int:
    """Halved until the training images fill it; each class may give one image more to validation than its share."""
    data = options.network.data
    images = data.train_size * (1 - options.validation_fraction) - data.num_classes
    while batch_size > max(images, 1):
        batch_size //= 2
    return batch_size


def _rates(options: RunOptions, method: MethodInfo) -> dict[str, Any]:
    """Learning rate and weight decay, and for short budgets the method's optimiser, where they are not given."""
    if options.recipe != "paper":
        usual = method.short_optimizer if options.recipe == "short" else RECIPES[options.recipe].optimizer
        optimizer = (options.optimizer or usual).lower()
        rates = OWN_MODEL_RATES[options.recipe] | {"optimizer": optimizer}
        # A rate of SGD says nothing about other optimisers; one of Adam is a start for all of them.
        known = method.short_optimizer in ("adam", optimizer)
        return rates | ({"lr": method.short_learning_rate} if known else {})
    network = options.network
    dataset = network.dataset.removesuffix("-mini")
    rates = published_rates(dataset, network.kernel_size, method.key, network.size)
    return {"lr": method.learning_rate, "weight_decay": USUAL_WEIGHT_DECAY} if rates is None else rates
