"""The contract of every layer: a parameter transformation, an input transformation, and a cache between them.

The split is that of the comparison paper. `transform` maps parameters to what the input transformation
needs and never sees the input (at most its height and width); `apply_to` maps an input and the transformed
parameters to the output. In evaluation mode, and in training where no gradient reaches them, the transformed parameters
are kept until a parameter changes.
"""

from __future__ import annotations

import contextlib
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.bounded import BoundedModule
from onelip.layers.recomputed_transforms import Transformation, recomputed
from onelip.layers.snapshot import Snapshot
from onelip.layers.transformed import Transformed
from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.fourier import Size
from onelip.linalg.tensor_modes import may_keep_tensors, no_autocast, ordinary_tensors
from onelip.linalg.training_precision import may_approximate

if TYPE_CHECKING:
    from onelip.layers.sharing import SharedOperators

_SIZES_KEPT = 4
"""Input sizes for which a size-dependent layer keeps its transformed parameters at once."""


class LipschitzLayer(BoundedModule):
    """A layer with a parameter transformation, an input transformation and a proven Lipschitz constant.

    The constant is at most `lipschitz`, 1 by default, for every value of the parameters; the unconstrained baseline
    alone guarantees nothing, and its `bound` says what training has made of it. A method implements
    `transform_tensors`, and an operator where none of `onelip.layers.transformed` is its own.
    (`nn.Module.apply` already means something else in torch, hence the name `apply_to`.)
    """

    size_dependent: bool = False
    """Whether the transformed parameters depend on the height and width of the input."""

    evaluates_in_float64: bool = True
    """Whether evaluation transforms in float64. A method may decline on CPUs where float32 is as good and cheaper."""

    transforms_parameters: bool = True
    """Whether there is anything to compute before the parameters are applied; not so in the baseline."""

    zero_channels_stay_zero: bool = False
    """Whether a square layer with channels of zeros appended to its parameters is transformed to the same, with zeros
    (in diagonals anything finite) appended: layers of different widths are then one batch on accelerators."""

    lipschitz: float = 1.0
    """The constant that is guaranteed: with `lipschitz=g` the layer is x -> f(g x) for the 1-Lipschitz f."""

    bias: nn.Parameter | None

    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[Size | None, Transformed] = {}
        self._cached_for: Snapshot | None = None
        self._handed_over: tuple[Size | None, int | None, Callable[[], Transformed | None]] | None = None
        self.shared: SharedOperators | None = None
        """Inside `onelip.shared_transforms`: the operators that all passes of the block use."""
        self.last_core_size: tuple[Size | None] | None = None
        """What the last pass in training was transformed for, None before the first one."""
        self._bias_version: int | None = None

    @abstractmethod
    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """Parameters and buffers by name -> what the input transformation needs.

        A pure and differentiable function of `tensors`, which may all carry one leading dimension: equal
        layers can then be transformed as one batch. `size` is the size that the core of the layer acts on.
        """

    def choose_form(self, transformed: Transformed, size: Size | None) -> Transformed:
        """The transformed parameters in the form that is cheapest to apply to an image of this size."""
        return transformed

    @abstractmethod
    def apply_to(self, x: Tensor, transformed: Transformed) -> Tensor:
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

    def transform(self, input_size: Size | None = None) -> Transformed:
        """The parameter transformation for one input size, differentiable and never cached.

        It runs in float32 or better whatever the autocast state, and in evaluation mode in float64 (see
        `evaluates_in_float64`): what is kept and certified is then off by one rounding only. The result has the
        dtype of the parameters.
        """
        return transform_layers([self], self.core_size(input_size))[0]

    def transform_given(
        self, tensors: Mapping[str, Tensor], size: Size | None, *, cheapest_form: bool = True
    ) -> Transformed:
        """`transform` of the tensors given in place of the layer's own, all of which may have a leading dimension."""
        reference = next(iter(tensors.values()))
        with no_autocast(reference.device.type):
            exact = not may_approximate(self.training)
            double = exact and (self.evaluates_in_float64 or not suits_cpu(reference.device))
            wide = {name: _widened(tensor, double) for name, tensor in tensors.items()}
            transformed = self.transform_tensors(wide, size)
            transformed = self.choose_form(transformed, size) if cheapest_form else transformed
            transformed = transformed if self.lipschitz == 1 else transformed.scaled(self.lipschitz)
        return transformed.map(lambda tensor: tensor.to(reference.dtype))

    def transforms_alone(self, size: Size | None) -> bool:
        """Whether nothing is saved by transforming this layer together with others for this core size."""
        return False

    def keep_states(self, layers: Sequence[LipschitzLayer], transformed: Sequence[Transformed]) -> None:
        """Keep what the transformations of layers like this one leave behind for the next step of training."""

    def restart_states(self) -> None:
        """Bring what `keep_states` keeps in line with weights that were written from outside."""

    def hand_over(
        self, size: Size | None, transformation: Callable[[], Transformed | None], rows: int | None = None
    ) -> None:
        """Use this in place of `transform` in the next forward pass in training (see `onelip.layers.stacking`).

        `rows` says that the result has the first outputs only, and how many.
        """
        self._handed_over = size, rows, transformation

    @property
    def has_unused_transformation(self) -> bool:
        """Whether something was handed over and not used so far."""
        return self._handed_over is not None

    def take_back(self) -> None:
        """Forget what was handed over and not used."""
        self._handed_over = None

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
        return all(p is None or (type(p) is nn.Parameter and not p.is_inference()) for p in self._parameters.values())

    def transformed(self, input_size: Size | None = None) -> Transformed:
        """The transformed parameters: computed anew in training, kept in evaluation while nothing changes.

        Kept ones are filled without gradients: in evaluation mode, gradients reach the input only. So they do in a
        frozen layer in training. Its transformation is that of evaluation too: made once, it may as well be the exact
        one, and no state of training moves on. Compiled training transforms frozen layers as all others.
        """
        key = self.core_size(input_size)
        if not self.training:
            return self._kept_transformation(key, input_size)
        compiling = torch.compiler.is_compiling()
        if not compiling:
            self.last_core_size = (key,)
        size, rows, transformation = self._handed_over or (None, None, None)
        self._handed_over = None
        rows, transformation = (rows, transformation) if size == key else (None, None)

        def anew() -> Transformed:
            if transformation is not None and (operator := transformation()) is not None:
                return operator
            transformed = self.transform(input_size)
            self.keep_states([self], [transformed])
            return transformed

        if not compiling:
            if self.is_frozen and transformation is None:
                with self.in_mode(False):
                    return self._kept_transformation(key, input_size)
            if self.shared is not None:
                return self.shared.operator((key, rows), anew)
        return anew()

    def _kept_transformation(self, key: Size | None, input_size: Size | None) -> Transformed:
        kept, snapshot = self._cache.get(key), self._cached_for
        if torch.compiler.is_compiling():
            # A compiled program fixes what it finds. An exporter runs this code, so that it can look.
            if kept is None or snapshot is None:
                return self.transform(input_size)
            return kept if torch.compiler.is_dynamo_compiling() or snapshot.is_current() else self.transform(input_size)
        if not self._has_own_parameters():
            return self.transform(input_size)
        tensors = tuple(self.tensors_to_transform().values())
        current = snapshot is not None and snapshot.is_current(tensors)
        if current and kept is not None:
            self._warn_of_training(tensors)
            return kept
        if not may_keep_tensors():
            return self.transform(input_size)
        with ordinary_tensors():
            transformed = self.transform(input_size)
            if not current:
                self._cache, self._cached_for = {}, Snapshot(tensors)
        while len(self._cache) >= _SIZES_KEPT:
            self._cache.pop(next(iter(self._cache)))
        self._cache[key] = transformed
        return transformed

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

    def deployed(self, input_size: Size | None = None) -> Transformed:
        """The transformed parameters of evaluation, whatever the mode: training may estimate what evaluation proves."""
        if not self.training:
            return self.transformed(input_size)
        with self.in_mode(False), torch.no_grad():
            return self.transform(input_size)

    @contextlib.contextmanager
    def in_mode(self, training: bool) -> Iterator[None]:
        """Training or evaluation inside the block, whatever the mode."""
        was_training, self.training = self.training, training
        try:
            yield
        finally:
            self.training = was_training

    def _drop_cache(self) -> None:
        self._cache, self._cached_for, self._bias_version = {}, None, None

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
        forgotten = dict.fromkeys(("_cached_for", "_handed_over", "_bias_version", "shared"))
        return {**self.__dict__, "_cache": {}, **forgotten}


def transform_layers(layers: Sequence[LipschitzLayer], size: Size | None) -> list[Transformed]:
    """The parameter transformations of equal layers for one core size, as one batch."""

    def transform(places: slice, tensors: Sequence[dict[str, Tensor]]) -> list[Transformed]:
        with layers[0].in_mode(training):
            if len(tensors) == 1:
                return [layers[0].transform_given(tensors[0], size)]
            return layers[0].transform_given(stacked(tensors), size).unstacked()

    training = layers[0].training
    return transform_all(layers, transform)


def transform_all(layers: Sequence[LipschitzLayer], transform: Transformation) -> list[Transformed]:
    """This transformation of all layers, which autograd keeps, or which is done again in the backward pass."""
    tensors = [layer.tensors_to_transform() for layer in layers]
    if layers[0].training and layers[0].transforms_parameters:
        return recomputed(transform, tensors)
    return transform(slice(0, len(layers)), tensors)


def stacked(tensors: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors to transform of equal layers, with these as first dimension."""
    return {name: torch.stack([each[name] for each in tensors]) for name in tensors[0]}


def _widened(tensor: Tensor, double: bool) -> Tensor:
    """float32 or better; float64 where it is asked for, but on devices without it."""
    if double and tensor.device.type != "mps":
        return tensor.double()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
