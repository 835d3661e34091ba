"""Speed of the package's own networks for every model.

In training, layers that are alike are transformed together (`onelip.fast.stacking`); in evaluation on CPUs, a batch
goes through the model in parts that stay in the processor's cache (`batch_parts`). `ConvNet` does both by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.contract import Request
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operator_sources import HOOKS, serving
from onelip.layers.operators import Operator
from onelip.linalg.fourier import Size
from onelip.linalg.tensor_modes import wants_plain_operations
from onelip.models.batch_parts import apply_in_parts, may_be_split

_Model = TypeVar("_Model", bound=nn.Module)


def accelerate(model: _Model) -> _Model:
    """Make a model faster: it has the same parameters, outputs, gradients, certificates and files.

    The model is changed in place and returned. Its first training pass runs as before and records the layers' input
    sizes; later passes transform equal layers together. Its first evaluation of a large batch also runs in parts; later
    ones run in parts only if that gave the same. Hooks inside of the model, gradients in evaluation, compilers and
    certificates get the plain pass.

    A layer that a training pass leaves out has a gradient of zeros in the first such pass in place of none. Layers
    inside `torch.utils.checkpoint` are transformed again in the backward pass, which it refuses: accelerate models
    without it.

    Examples:
        >>> import onelip
        >>> model = onelip.accelerate(onelip.create_linear("bcop", 8, 8))
    """
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"accelerate takes a torch.nn.Module, not {type(model).__name__}")
    if getattr(model, "is_accelerated", False):
        return model
    if "forward" in vars(model):
        raise InvalidInputError(f"this {type(model).__name__} has a forward of its own beside that of its class")
    model.forward = _AcceleratedForward(model)
    model.is_accelerated = True  # pyright: ignore[reportArgumentType]
    return model


class _AcceleratedForward:
    """In the place of a model's `forward`; copied and pickled with it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.bytes_of_image = 0
        """Of the largest activation, 0 before the first large batch."""
        self.may_split = True
        self.core_sizes: dict[LipschitzLayer, Size | None] = {}
        """Sizes that the last pass in training asked each layer for."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if wants_plain_operations():
            return self._plain(*args, **kwargs)
        if self.model.training:
            with self._layers_together():
                return self._plain(*args, **kwargs)
        if self.may_split and len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            return self._evaluated(args[0])
        return self._plain(*args, **kwargs)

    @contextmanager
    def _layers_together(self) -> Iterator[None]:
        """One transformation for equal layers, at the sizes of the last pass; a layer left out is not tried again."""
        layers = [layer for layer in _layers_of(self.model) if layer.training]
        known = [(layer, self.core_sizes[layer]) for layer in layers if layer in self.core_sizes]
        sizes: dict[LipschitzLayer, Size | None] = {}

        def note(layer: LipschitzLayer, request: Request, make: Callable[[Request], Operator]) -> Operator:
            sizes[layer] = request.size
            return make(request)

        with HOOKS.together(known), serving(layers, note, outermost=True):
            yield
        self.core_sizes = sizes

    def _plain(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.model).forward(self.model, *args, **kwargs)

    def _evaluated(self, x: Tensor) -> Any:
        if not may_be_split(self.model, x, self.bytes_of_image or x[:1].nbytes):
            return self._plain(x)
        if self.bytes_of_image:
            return apply_in_parts(self._plain, x, self.bytes_of_image)
        with _largest_activation(self.model) as largest:
            y = self._plain(x)
        bytes_of_image = max(largest) // len(x) if largest else 0
        if not may_be_split(self.model, x, bytes_of_image or x.nbytes):
            return y
        self.may_split = isinstance(y, Tensor) and _agree(apply_in_parts(self._plain, x, bytes_of_image), y)
        self.bytes_of_image = bytes_of_image
        return y


def _agree(parts: Any, whole: Tensor) -> bool:
    """Equal up to the rounding of sums in another order."""
    if not isinstance(parts, Tensor) or parts.shape != whole.shape or parts.dtype != whole.dtype:
        return False
    error = 1e-4 if whole.dtype == torch.float32 else 1e-9
    return bool(((parts - whole).abs() <= error * (1 + whole.abs().amax())).all())


@contextmanager
def _largest_activation(model: nn.Module) -> Iterator[list[int]]:
    """Bytes of the outputs of all parts of the model inside the block."""
    found: list[int] = []

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        found.extend([output.nbytes] if isinstance(output, Tensor) else [])

    handles = [part.register_forward_hook(note) for part in model.modules() if part is not model]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _layers_of(module: nn.Module) -> Iterator[LipschitzLayer]:
    """All layers but those of modules that are accelerated themselves."""
    if isinstance(module, LipschitzLayer):
        yield module
    for child in module.children():
        if not getattr(child, "is_accelerated", False):
            yield from _layers_of(child)
