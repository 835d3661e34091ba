"""Which modules a bound is known for: those with a `bound` of their own, and torch's, by functions registered by class.

A bound belongs to what a class *computes*. It is used for a subclass only while the methods that compute are
inherited, and never for a module with forward hooks, which may change anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from onelip.certification.errors import UnknownLipschitzConstant
from onelip.layers.bounded import BoundedModule, replaced_method
from onelip.linalg.layer_bound import LayerBound, relative_bound

Shape = tuple[int, ...]
"""The shape of one input, without the batch."""

BoundFunction = Callable[[Any, Shape], LayerBound]


class _Family(NamedTuple):
    methods: tuple[str, ...]
    bound: BoundFunction


_FAMILIES: dict[type[nn.Module], _Family] = {}


def bound_for(*classes: type[nn.Module], methods: tuple[str, ...] = ("forward",)) -> Callable[[Any], Any]:
    """Register `function(module, input_shape) -> LayerBound` for classes whose `methods` make up what they compute."""

    def register(function: BoundFunction) -> BoundFunction:
        for cls in classes:
            _FAMILIES[cls] = _Family(methods, function)
        return function

    return register


def layer_bound(module: nn.Module, input_shape: Shape, path: str = "") -> LayerBound:
    """What is proven about one module that is not a sequence of others, for inputs of one shape."""
    check_no_hooks(module, path)
    if _declares(module, path):
        return _declared_bound(module, input_shape)
    if isinstance(module, BoundedModule):
        name = replaced_method(module)
        if name is not None:
            raise unknown(module, path, f"it replaces `{name}`, of which its inherited `bound` does not speak")
        return module.bound(input_shape)
    for cls in type(module).__mro__:
        family = _FAMILIES.get(cls)
        if family is not None:
            _check_inherited(module, cls, family.methods, path)
            return family.bound(module, input_shape)
    raise unknown(
        module,
        path,
        "declare a float `lipschitz_constant` or a method `lipschitz_bound(input_shape)` if you have a proof",
    )


def unknown(module: nn.Module, path: str, advice: str) -> UnknownLipschitzConstant:
    """The error for a module without a bound, by its name in the model."""
    name = f"{path!r} " if path else ""
    return UnknownLipschitzConstant(f"the Lipschitz constant of {name}({type(module).__name__}) is not known: {advice}")


def check_no_hooks(module: nn.Module, path: str) -> None:
    """Hooks may replace inputs and outputs."""
    if module._forward_hooks or module._forward_pre_hooks:
        raise unknown(module, path, "it has forward hooks, which may change what it computes; remove them")


def _check_inherited(module: nn.Module, cls: type[nn.Module], methods: tuple[str, ...], path: str) -> None:
    for name in methods:
        if name in vars(module) or getattr(type(module), name) is not getattr(cls, name):
            raise unknown(module, path, f"it computes something else than {cls.__name__}, whose `{name}` it replaces")


def _declares(module: nn.Module, path: str) -> bool:
    """Whether a user's class declares its constant. A subclass that computes something else must declare anew."""
    names = ("lipschitz_constant",) if isinstance(module, BoundedModule) else ("lipschitz_constant", "lipschitz_bound")
    if not any(hasattr(module, name) for name in names):
        return False
    if any(name in vars(module) for name in names):
        return True
    owner = next((cls for cls in type(module).__mro__ if any(name in vars(cls) for name in names)), type(module))
    if owner in _FAMILIES:
        return False
    _check_inherited(module, owner, ("forward",), path)
    return True


def _declared_bound(module: Any, input_shape: Shape) -> LayerBound:
    """A user's declaration: the constant is believed, rounding is known only where `rounding_error` is declared too."""
    if hasattr(module, "lipschitz_constant"):
        constant = float(module.lipschitz_constant)
    else:
        constant = float(module.lipschitz_bound(input_shape))
    if not constant >= 0:
        raise unknown(module, "", f"it declares {constant}, which is no bound")
    at_zero = output_at_zero(module, input_shape)
    ulps = getattr(module, "rounding_error", None)
    # Twice the computed norm: far more than its own rounding.
    offset = 2 * float(torch.linalg.vector_norm(at_zero.double()))
    if ulps is None:
        return LayerBound(constant, offset, None)
    return relative_bound(constant, float(ulps), at_zero.numel(), offset)


@torch.no_grad()
def output_at_zero(module: nn.Module, input_shape: Shape) -> torch.Tensor:
    """The module's output for one input of zeros, with the batch dimension, in the type of its parameters."""
    reference = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    return module(reference.new_zeros((1, *input_shape)))
