"""The contract of every layer: a parameter transformation, an input transformation, and a cache between them.

The split is that of the comparison paper. `transform` maps parameters to what the input transformation
needs and never sees the input (at most its height and width); `apply_to` maps an input and the transformed
parameters to the output. In evaluation mode, and in training where no gradient reaches them, the transformed parameters
are kept until a parameter changes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.contract import Request, Traits
from onelip.layers.fused import FusedLayer
from onelip.layers.initialisation import identity_or_orthogonal, initialise
from onelip.layers.operator_cache import CachedPass, cached_operator
from onelip.layers.operator_sources import Source, operators_of
from onelip.layers.operators import Operator
from onelip.layers.snapshot import Snapshot
from onelip.linalg.devices import has_float64, is_cpu
from onelip.linalg.fourier import Size
from onelip.linalg.tensor_modes import no_autocast
from onelip.linalg.training_precision import may_approximate
from onelip.proofs.bounded import BoundedModule


class LayerOptions(TypedDict, total=False):
    """Arguments that every layer takes by name only."""

    init: str
    lipschitz: float
    device: torch.device | str | None
    dtype: torch.dtype | None


WIDEST_TOGETHER = 256
"""Channels up to which equal layers are transformed together on CPUs. From 512 on they take 0.79 to 1.0 of the time one
by one (BCOP, ONI, Bjorck, ECO, Stiefel: 0.9; two threads)."""


class LipschitzLayer(BoundedModule):
    """A layer with a parameter transformation, an input transformation and a proven Lipschitz constant.

    The constant is at most `lipschitz`, 1 by default, for every value of the parameters; the unconstrained baseline
    alone guarantees nothing, and its `bound` says what training has made of it. A method implements
    `transform_tensors`, and an operator where none of `onelip.layers.operators` is its own.
    (`nn.Module.apply` already means something else in torch, hence the name `apply_to`.)
    """

    traits: ClassVar[Traits] = Traits()

    lipschitz: float = 1.0
    """The constant that is guaranteed: with `lipschitz=g` the layer is x -> f(g x) for the 1-Lipschitz f."""

    buffer_names: ClassVar[tuple[str, ...]] = ()
    """Which of `tensor_shapes` are buffers, not learnt."""

    groups: int = 1

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, in_core: int, out_core: int, init: str, lipschitz: float) -> None:
        super().__init__()
        self._cache: dict[Size | None, Operator] = {}
        self._cached_for: Snapshot | None = None
        self._cached_pass: CachedPass | None = None
        self.sources: tuple[Source, ...] = ()
        """Who is asked for operators in training, one after the other: `onelip.layers.operator_sources.serving`."""
        self._bias_version: int | None = None
        positive = isinstance(lipschitz, Real) and 0 < lipschitz < math.inf
        if not positive or (lipschitz != 1 and not self.traits.has_guarantee):
            allowed = "a positive number" if self.traits.has_guarantee else "1: it guarantees no constant"
            raise InvalidInputError(f"{type(self).__name__}: lipschitz={lipschitz!r} is not supported, use {allowed}")
        self.lipschitz = float(lipschitz)
        known = self.traits.initialisations
        if init not in known:
            raise InvalidInputError(f"{type(self).__name__}: init={init!r} is not known, use one of {', '.join(known)}")
        self.init = init
        width = max(in_core, out_core)
        self.core_in = width if self.traits.square else in_core
        self.core_out = width if self.traits.square else out_core

    @abstractmethod
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters and buffers of one group by name, in the order of the layer's parameters.

        Of `weight`, the unconstrained matrix or kernel of the core, and `bias`, and of what else the method has.
        """

    def create_tensors(self, bias: bool, factory: dict[str, Any]) -> None:
        """Register every parameter and buffer, uninitialised: those of groups stacked, their biases in a row."""
        for name, shape in self.tensor_shapes().items():
            lead = () if self.groups == 1 else (self.groups,)
            whole = (self.groups * shape[0],) if name == "bias" else (*lead, *shape)
            if name in self.buffer_names:
                self.register_buffer(name, torch.empty(whole, **factory))
            else:
                given = bias or name != "bias"
                self.register_parameter(name, nn.Parameter(torch.empty(whole, **factory)) if given else None)

    def reset_parameters(self) -> None:
        """Draw new values for the parameters of every group."""
        tensors = {name: t.detach() for name, t in (*self._parameters.items(), *self._buffers.items()) if t is not None}
        if self.groups == 1:
            self.initialise(tensors)
            return
        for group in range(self.groups):
            parts = {name: t.chunk(self.groups)[group] if name == "bias" else t[group] for name, t in tensors.items()}
            self.initialise(parts)

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """Draw the tensors of one group as `init` says; the bias starts at zero, unless `init` is "published"."""
        if self.init == "published":
            self.initialise_as_published(tensors)
            return
        self.initialise_weight(tensors["weight"], self.default_init() if self.init == "auto" else self.init)
        if "bias" in tensors:
            nn.init.zeros_(tensors["bias"])

    def initialise_weight(self, weight: Tensor, name: str) -> None:
        """Draw the weight by the name of a start."""
        initialise(weight, name)

    def initialise_as_published(self, tensors: dict[str, Tensor]) -> None:
        """Weights and biases as the comparison paper's code starts them: here those of AOL and LOT."""
        self.initialise_weight(tensors["weight"], identity_or_orthogonal(self.core_out, self.core_in))
        if "bias" in tensors:
            nn.init.zeros_(tensors["bias"])

    def default_init(self) -> str:
        """The start that init="auto" means for this layer: the comparison paper's choice for AOL and LOT.

        Torch's own start contracts by 0.58 per layer; a deep network of such layers learns next to nothing at first.
        """
        return identity_or_orthogonal(self.core_out, self.core_in)

    @property
    def size_dependent(self) -> bool:
        """Whether the transformed parameters depend on the height and width of the input."""
        return False

    @abstractmethod
    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Operator:
        """Parameters and buffers by name -> what the input transformation needs.

        A pure and differentiable function of `tensors`, which may all carry one leading dimension: equal
        layers can then be transformed as one batch.
        """

    def choose_form(self, operator: Operator, request: Request) -> Operator:
        """The transformed parameters in the form that is cheapest to apply."""
        return operator

    @abstractmethod
    def apply_to(self, x: Tensor, operator: Operator) -> Tensor:
        """The input transformation: the output of the layer for x, given the transformed parameters."""

    @abstractmethod
    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """Plain modules with the same outputs and no parameter transformation, detached from this layer."""

    def fuse_core(self, operator: Operator, size: Size | None) -> nn.Module:
        """Module that equals `transformed.apply`, a plain one of torch where there is one.

        `size` is that of the image which the core sees, None where it was not told.
        """
        return FusedLayer(operator, self.bias)

    def _detached(self, input_size: Size | None, *, cheapest_form: bool = True) -> Operator:
        """Detached copies of the transformed parameters, for the size given or the only one evaluated so far."""
        only_size = input_size is None and len(self._cache) == 1
        size = next(iter(self._cache)) if only_size else self.core_size(input_size)
        with torch.no_grad():
            operator = self.build(self.tensors_to_transform(), Request(size), cheapest_form=cheapest_form)
        return operator.map(lambda tensor: tensor.detach().clone())

    def vanilla_export(self, input_size: Size | None = None) -> nn.Module:
        """`fuse` under the name that deel-torchlip gives it."""
        return self.fuse(input_size)

    @abstractmethod
    def lipschitz_bound(self, input_size: Size | None = None) -> float:
        """Proven upper bound of this layer's Lipschitz constant in evaluation mode, rounding included."""

    def tensors_to_transform(self) -> dict[str, Tensor]:
        """All parameters and buffers but the bias, which the input transformation adds as it is."""
        tensors = [*self._parameters.items(), *self._buffers.items()]
        return {name: tensor for name, tensor in tensors if tensor is not None and name != "bias"}

    def core_size(self, input_size: Size | None) -> Size | None:
        """The size that the transformed parameters depend on, or None where they depend on none, as here."""
        return None

    def transform(self, input_size: Size | None = None) -> Operator:
        """The parameter transformation for one input size, differentiable and never cached.

        It runs in float32 or better whatever the autocast state, and in evaluation mode in float64 (see
        `evaluates_in_float64`): what is kept and certified is then off by one rounding only. The result has the
        dtype of the parameters.
        """
        return operators_of([self], self.request(self.core_size(input_size)))[0]

    def request(self, size: Size | None = None) -> Request:
        """The request of the layer in its present mode, for this core size."""
        return Request(size, self.training, may_approximate(self.training))

    def build(self, tensors: Mapping[str, Tensor], request: Request, *, cheapest_form: bool = True) -> Operator:
        """The operator of the tensors given in place of the layer's own, all of which may have a leading dimension."""
        reference, groups = next(iter(tensors.values())), tensors
        tensors = self.core_tensors(tensors)
        with no_autocast(reference.device.type):
            double = not request.approximate and (self.traits.evaluates_in_float64 or not is_cpu(reference.device))
            wide = {name: _widened(tensor, double) for name, tensor in tensors.items()}
            operator = self.transform_tensors(wide, request)
            operator = self.choose_form(operator, request) if cheapest_form else operator
            operator = operator if self.lipschitz == 1 else operator.scaled(self.lipschitz)
        if any(tensor.dtype != reference.dtype for tensor in operator.tensors().values()):
            operator = operator.map(lambda tensor: tensor.to(reference.dtype))
        return self.of_groups(operator, groups)

    def core_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors as `transform_tensors` wants them."""
        return tensors

    def of_groups(self, cores: Operator, tensors: Mapping[str, Tensor]) -> Operator:
        """The operator of the layer, or of equal layers, from those of the cores that `tensors` hold."""
        return cores

    def transforms_separately(self, request: Request) -> bool:
        """Whether nothing is saved by transforming this layer with others: wide ones occupy all threads of a CPU."""
        is_wide = min(self.core_in, self.core_out) > WIDEST_TOGETHER
        return is_wide and self.traits.transforms_parameters and is_cpu(self.weight.device)

    def keep_states(self, layers: Sequence[LipschitzLayer], operators: Sequence[Operator]) -> None:
        """Keep what the transformations of layers like this one leave behind for the next step of training."""

    def restart_states(self) -> None:
        """Bring what `keep_states` keeps in line with weights that were written from outside."""

    @property
    def is_frozen(self) -> bool:
        """Whether no gradient reaches the tensors to transform, all of them the layer's own: they stay as they are."""
        named = {**self._parameters, **self._buffers}.items()
        learns = any(tensor is not None and tensor.requires_grad and name != "bias" for name, tensor in named)
        return not learns and self.has_own_parameters()

    def has_own_parameters(self) -> bool:
        """Whether its parameters are such that what is made of them may be kept.

        functional_call and torch.func put other tensors in the place of parameters: those want gradients.
        Parameters made in inference mode have no version counter to tell when they change.
        """
        for parameter in self._parameters.values():
            if parameter is not None and (type(parameter) is not nn.Parameter or parameter.is_inference()):
                return False
        return True

    def operator(self, input_size: Size | None = None) -> Operator:
        """The transformed parameters: computed anew in training, kept in evaluation while nothing changes.

        Kept ones are filled without gradients: in evaluation mode, gradients reach the input only. So they do in a
        frozen layer in training. Its transformation is that of evaluation too: made once, it may as well be the exact
        one, and no state of training moves on. Compiled training transforms frozen layers as all others.
        """
        key = self.core_size(input_size)
        if not self.training:
            return cached_operator(self, key)
        request = self.request(key)
        if not torch.compiler.is_compiling():
            if self.is_frozen:
                return cached_operator(self, key)
            if self.sources:
                return self._served(self.sources, request)
        return operators_of([self], request, keep_states=True)[0]

    def _served(self, sources: tuple[Source, ...], request: Request) -> Operator:
        if not sources:
            return operators_of([self], request, keep_states=True)[0]
        return sources[0](self, request, partial(self._served, sources[1:]))

    def deployed(self, input_size: Size | None = None) -> Operator:
        """The transformed parameters of evaluation, whatever the mode: training may estimate what evaluation proves."""
        if not self.training:
            return self.operator(input_size)
        with torch.no_grad():
            return operators_of([self], Request(self.core_size(input_size)))[0]

    def _drop_cache(self) -> None:
        self._cache, self._cached_for, self._cached_pass, self._bias_version = {}, None, None, None

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Also what assigning a parameter does; a kept transformation is that of the old one."""
        self._drop_cache()
        super().register_parameter(name, param)

    def train(self, mode: bool = True) -> LipschitzLayer:
        """Switch between training and evaluation; either way the kept transformation is dropped."""
        self._drop_cache()
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._drop_cache()
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._drop_cache()
        super()._load_from_state_dict(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        forgotten = dict.fromkeys(("_cached_for", "_cached_pass", "_bias_version"))
        return {**self.__dict__, "_cache": {}, "sources": (), **forgotten}


def _widened(tensor: Tensor, double: bool) -> Tensor:
    """float32 or better; float64 where it is asked for, but on devices without it."""
    if double and has_float64(tensor.device):
        return tensor.double()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
