"""Facts about the methods, one frozen record per file in `methods/`, and how these files are found."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onelip.layers import methods

if TYPE_CHECKING:
    from onelip.layers.convolutions import LipschitzConv2d
    from onelip.layers.linear import LipschitzLinear
    from onelip.linalg.convolution import PaddingMode

Guarantee = Literal["orthogonal", "bounded", "none"]


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """One way to build 1-Lipschitz layers: names, classes and properties.

    `methods.toml` has title, paper, year, link and learning rates of the methods that come with onelip; the file of
    another method states them here.

    `guarantee` is "orthogonal" where a square layer with circular padding is an isometry in its linear part,
    "bounded" where only the norm is at most 1, "none" for the unconstrained baseline. `linear` says whether
    the layer is a linear map plus a bias. `train_eval_difference` is empty where training and evaluation
    compute the same function, else it says how they differ. `training_approximation` says what training on CPUs takes
    less exactly in float32 (`onelip.exact_transforms` turns that off), and `training_error` is the largest change that
    this and the rounding of float32 make in the output of a layer, relative to its input, for weights that, as
    matrices of outputs and all else, have condition numbers up to 30. `learning_rate` is that of SGD over hours,
    `short_learning_rate` that of `short_optimizer` over minutes (docs/training.md).
    """

    key: str
    title: str = ""
    paper: str = ""
    year: int = 0
    link: str = ""
    guarantee: Guarantee
    linear: bool = True
    conv: type[LipschitzConv2d]
    linear_layer: type[LipschitzLinear]
    learning_rate: float = 0.05
    train_eval_difference: str = ""
    training_approximation: str = ""
    training_error: float = 1e-5
    short_learning_rate: float = 0.002
    short_optimizer: str = "adam"


@dataclass(frozen=True, kw_only=True)
class PublishedSetting:
    """The paper's choices for one method.

    Attributes:
        padding_mode: of its convolutions.
        ends_init: start of the first convolution and of the last layer, where it is not the start of the others.
        options: arguments of convolutions larger than 1 x 1.
        conv: the published convolution, where no certificate can be made of it; onelip's own elsewhere.
        linear_layer: the same of the linear layer.
    """

    padding_mode: PaddingMode
    ends_init: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    conv: type[LipschitzConv2d] | None = None
    linear_layer: type[LipschitzLinear] | None = None


@functools.cache
def published_settings() -> Mapping[str, PublishedSetting]:
    """The comparison paper's choices by the key of the method: data of the benchmark, read when they are asked for."""
    settings: Mapping[str, PublishedSetting] = importlib.import_module("onelip.bench.paper.settings").PUBLISHED_SETTINGS
    return settings


def find_methods() -> dict[str, MethodInfo]:
    """`METHOD` of every file in `methods/` by its key; a file that cannot be imported is named and left out."""
    found: dict[str, MethodInfo] = {}
    stated = tomllib.loads(Path(__file__).with_name("methods.toml").read_text(encoding="utf-8"))
    for file in pkgutil.iter_modules(methods.__path__):
        name = f"{methods.__name__}.{file.name}"
        try:
            method: MethodInfo = importlib.import_module(name).METHOD
        except Exception as error:
            warnings.warn(f"{name} is no method: {type(error).__name__}: {error}", stacklevel=2)
        else:
            found[method.key] = replace(method, **stated.get(method.key, {}))
    return {key: found[key] for key in sorted(found)}


def install_forms() -> None:
    """Fill the definitions with the forms of `onelip.fast`, found by its folder: nothing imports it or misses it."""
    if importlib.util.find_spec("onelip.fast") is not None:
        importlib.import_module("onelip.fast")
