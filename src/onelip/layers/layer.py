"""The contract of every layer: a parameter transformation, an input transformation, and a cache between them.

The split is that of the comparison paper. `transform` maps parameters to what the input transformation
needs and never sees the input (at most its height and width); `apply_to` maps an input and the transformed
parameters to the output. In evaluation mode, and in training where no gradient reaches them, the transformed parameters
are kept until a parameter changes.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.cached_pass import CachedPass, watched_by_nobody
from onelip.layers.contract import Request, Traits
from onelip.layers.operator_sources import HOOKS, Build, Source
from onelip.layers.operators import Operator
from onelip.layers.snapshot import Snapshot
from onelip.linalg.devices import has_float64, is_cpu
from onelip.linalg.fourier import Size
from onelip.linalg.tensor_modes import may_cache_tensors, no_autocast, ordinary_tensors
from onelip.linalg.training_precision import may_approximate
from onelip.proofs.bounded import BoundedModule

_SIZES_KEPT = 4
"""Input sizes for which a size-dependent layer keeps its transformed parameters at once."""


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

    bias: nn.Parameter | None

    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[Size | None, Operator] = {}
        self._cached_for: Snapshot | None = None
        self._cached_pass: CachedPass | None = None
        self.sources: tuple[Source, ...] = ()
        """Who is asked for operators in training, one after the other: `onelip.layers.operator_sources.serving`."""
        self._bias_version: int | None = None

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

    def choose_form(self, transformed: Operator, request: Request) -> Operator:
        """The transformed parameters in the form that is cheapest to apply."""
        return transformed

    @abstractmethod
    def apply_to(self, x: Tensor, transformed: Operator) -> Tensor:
        """The input transformation: the output of the layer for x, given the transformed parameters."""

    @abstractmethod
    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """Plain modules with the same outputs and no parameter transformation, detached from this layer."""

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
        """The size that the transformed parameters depend on, or None where they depend on none."""
        if not self.size_dependent:
            return None
        if input_size is None:
            raise InvalidInputError(
                f"the parameters of {type(self).__name__} are transformed for one image size: "
                "pass input_size=(height, width), or evaluate the layer on one size first"
            )
        return int(input_size[0]), int(input_size[1])

    def transform(self, input_size: Size | None = None) -> Operator:
        """The parameter transformation for one input size, differentiable and never cached.

        It runs in float32 or better whatever the autocast state, and in evaluation mode in float64 (see
        `evaluates_in_float64`): what is kept and certified is then off by one rounding only. The result has the
        dtype of the parameters.
        """
        return operators_of([self], self.request(self.core_size(input_size)))[0]

    def request(self, size: Size | None = None) -> Request:
        """What the layer asks for in its present mode, for this core size."""
        return Request(size, self.training, may_approximate(self.training))

    def build(self, tensors: Mapping[str, Tensor], request: Request, *, cheapest_form: bool = True) -> Operator:
        """The operator of the tensors given in place of the layer's own, all of which may have a leading dimension."""
        reference, groups = next(iter(tensors.values())), tensors
        tensors = self.core_tensors(tensors)
        with no_autocast(reference.device.type):
            double = not request.approximate and (self.traits.evaluates_in_float64 or not is_cpu(reference.device))
            wide = {name: _widened(tensor, double) for name, tensor in tensors.items()}
            transformed = self.transform_tensors(wide, request)
            transformed = self.choose_form(transformed, request) if cheapest_form else transformed
            transformed = transformed if self.lipschitz == 1 else transformed.scaled(self.lipschitz)
        if any(tensor.dtype != reference.dtype for tensor in transformed.tensors().values()):
            transformed = transformed.map(lambda tensor: tensor.to(reference.dtype))
        return self.of_groups(transformed, groups)

    def core_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors as `transform_tensors` wants them."""
        return tensors

    def of_groups(self, cores: Operator, tensors: Mapping[str, Tensor]) -> Operator:
        """The operator of the layer, or of equal layers, from those of the cores that `tensors` hold."""
        return cores

    def transforms_separately(self, request: Request) -> bool:
        """Whether nothing is saved by transforming this layer together with others."""
        return False

    def keep_states(self, layers: Sequence[LipschitzLayer], transformed: Sequence[Operator]) -> None:
        """Keep what the transformations of layers like this one leave behind for the next step of training."""

    def restart_states(self) -> None:
        """Bring what `keep_states` keeps in line with weights that were written from outside."""

    @property
    def is_frozen(self) -> bool:
        """Whether no gradient reaches the tensors to transform, all of them the layer's own: they stay as they are."""
        named = {**self._parameters, **self._buffers}.items()
        learns = any(tensor is not None and tensor.requires_grad and name != "bias" for name, tensor in named)
        return not learns and self._has_own_parameters()

    def _has_own_parameters(self) -> bool:
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
            return self._cached_operator(key)
        request = self.request(key)
        if not torch.compiler.is_compiling():
            if self.is_frozen:
                return self._cached_operator(key)
            if self.sources:
                return self._served(self.sources, request)
        return operators_of([self], request, keep_states=True)[0]

    def _served(self, sources: tuple[Source, ...], request: Request) -> Operator:
        if not sources:
            return operators_of([self], request, keep_states=True)[0]
        return sources[0](self, request, partial(self._served, sources[1:]))

    def _cached_operator(self, key: Size | None) -> Operator:
        cached, snapshot = self._cache.get(key), self._cached_for
        if torch.compiler.is_compiling():
            # A compiled program fixes what it finds. An exporter runs this code, so that it can look.
            compiled = torch.compiler.is_dynamo_compiling()
            if cached is not None and snapshot is not None and (compiled or snapshot.is_current()):
                return cached
            return operators_of([self], Request(key))[0]
        if not self._has_own_parameters():
            return operators_of([self], Request(key))[0]
        tensors = tuple(self.tensors_to_transform().values())
        current = snapshot is not None and snapshot.is_current(tensors)
        if current and cached is not None:
            self._warn_of_training(tensors)
            return cached
        if not may_cache_tensors():
            return operators_of([self], Request(key))[0]
        with ordinary_tensors():
            if not current:  # looked at first: what another thread writes meanwhile makes the snapshot an old one
                self._cache, self._cached_for = {}, Snapshot(tensors)
            cache = self._cache
            transformed = operators_of([self], Request(key))[0]
        while len(cache) >= _SIZES_KEPT:
            cache.pop(next(iter(cache)))
        cache[key] = transformed
        return transformed

    def repeated_pass(self, x: Tensor) -> CachedPass | None:
        """The last pass in evaluation, if one on x would be like it."""
        if torch.compiler.is_compiling() or (last := self._cached_pass) is None or not last.serves(self, x):
            return None
        return last

    def _remember_pass(self, x: Tensor, operator: Operator, *, kernel_alone: bool = False) -> None:
        """Keep what x, which the layer allows, is mapped by; or only by, if the operator is a kernel alone."""
        if self.training or not watched_by_nobody(x) or x.dim() < 2 or not x.numel():
            return
        snapshot = self._cached_for
        if snapshot is not None and any(operator is cached for cached in self._cache.values()):
            self._cached_pass = CachedPass(self, x, operator, snapshot, kernel_alone)

    def _warn_of_training(self, tensors: Sequence[Tensor]) -> None:
        """Say so where an optimiser changes the bias while the weights, which ask for a gradient, get none here."""
        if self.bias is None or not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
            return
        before, self._bias_version = self._bias_version, self.bias._version
        if before is not None and before != self._bias_version:
            warnings.warn(
                "a layer is trained in evaluation mode, where its weights get no gradients; call model.train() first",
                stacklevel=2,
            )

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


def operators_of(
    layers: Sequence[LipschitzLayer], request: Request, build: Build | None = None, *, keep_states: bool = False
) -> list[Operator]:
    """The operators of equal layers, made as one batch or by `build`; states move on where they are to be kept."""
    tensors, first = [layer.tensors_to_transform() for layer in layers], layers[0]

    def as_one(places: slice, tensors: Sequence[Mapping[str, Tensor]]) -> list[Operator]:
        if len(tensors) == 1:
            return [first.build(tensors[0], request)]
        return first.build(stacked(tensors), request).unstacked()

    build = build or as_one
    for around in HOOKS.around if first.traits.transforms_parameters else ():
        build = around(build, request, tensors)
    operators = build(slice(0, len(layers)), tensors)
    if keep_states:
        first.keep_states(layers, operators)
    return operators


def stacked(tensors: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors to transform of equal layers, with these as first dimension."""
    return {name: torch.stack([each[name] for each in tensors]) for name in tensors[0]}


def _widened(tensor: Tensor, double: bool) -> Tensor:
    """float32 or better; float64 where it is asked for, but on devices without it."""
    if double and has_float64(tensor.device):
        return tensor.double()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
