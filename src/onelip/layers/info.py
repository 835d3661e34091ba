"""What onelip knows about a method: one frozen record per file in this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from onelip.layers.convolution import PaddingMode
    from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear

Guarantee = Literal["orthogonal", "bounded", "none"]


@dataclass(frozen=True, kw_only=True)
class Complexity:
    """Leading costs of one layer in the notation of the comparison paper.

    Each cost is an expression in b (batch), s (image side), c (channels), k (kernel side) and t (inner
    iterations), in Python syntax; `operations` names what is computed.
    """

    input_operations: str
    input_macs: str
    input_memory: str
    parameter_operations: str
    parameter_macs: str
    parameter_memory: str


@dataclass(frozen=True, kw_only=True)
class PublishedSetting:
    """How the code of the comparison paper uses a method in its network.

    `padding_mode` is that of its convolutions, `ends_init` the start of the first convolution and of the last layer
    where it is not that of the others, `options` are arguments of convolutions larger than 1 x 1. The starts
    themselves are the layers' own init="published". The rest is said in words: `start` of weights and biases, `head`,
    the last layer, `iterations` in training and evaluation, and what is computed `otherwise` here. `conv` and
    `linear_layer` are the published layers where no certificate can be made of them; onelip's own are used elsewhere.
    """

    padding_mode: PaddingMode
    start: str
    head: str
    iterations: str
    otherwise: str
    ends_init: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    conv: type[LipschitzConv2d] | None = None
    linear_layer: type[LipschitzLinear] | None = None


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """One way to build 1-Lipschitz layers: names, classes, properties and costs.

    `guarantee` is "orthogonal" where a square layer with circular padding is an isometry in its linear part,
    "bounded" where only the norm is at most 1, "none" for the unconstrained baseline. `linear` says whether
    the layer is a linear map plus a bias. `train_eval_difference` is empty where training and evaluation
    compute the same function, else it says how they differ. `training_approximation` says what training on CPUs takes
    less exactly in float32 (`onelip.exact_transforms` turns that off), and `training_error` is the largest change that
    this and the rounding of float32 make in the output of a layer, relative to its input, for weights that, as
    matrices of outputs and all else, have condition numbers up to 30. `learning_rate` is that of SGD over hours,
    `short_learning_rate` that of `short_optimizer` over minutes (docs/training.md). `published` are the costs of the
    method as published, `ours` those of this implementation where it computes differently. `setting` is what the
    comparison paper's code does, None for a method that it does not have.
    """

    key: str
    title: str
    paper: str
    year: int
    link: str
    guarantee: Guarantee
    linear: bool
    conv: type[LipschitzConv2d]
    linear_layer: type[LipschitzLinear]
    learning_rate: float
    published: Complexity
    ours: Complexity | None = None
    setting: PublishedSetting | None = None
    train_eval_difference: str = ""
    training_approximation: str = ""
    training_error: float = 1e-5
    short_learning_rate: float = 0.002
    short_optimizer: str = "adam"
