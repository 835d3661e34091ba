"""Modules that know what is proven about them.

A bound belongs to what a class *computes*: `bound` holds for a subclass only while the methods that compute are
inherited from the class that states it, or from one that this class knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import nn

from onelip.errors import UnknownLipschitzConstant
from onelip.proofs.layer_bound import LayerBound, exact_bound

COMPUTING = ("forward", "apply_to")
"""The methods that make up what a module computes from the weights that `bound` reads."""

_CALLING = ("__call__", "_wrapped_call_impl", "_call_impl")
"""What torch puts around `forward`."""


class BoundedModule(nn.Module, ABC):
    """A module with a proven bound, which a certificate can be made of."""

    repr_format: ClassVar[str] = ""
    """What torch prints of the module, `{0}`, between its brackets."""

    @abstractmethod
    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Constant, offset and rounding error in evaluation mode, for inputs of this shape (without the batch).

        It speaks of the module as deployed: of the numbers in memory that `forward` uses, not of the formula.
        """

    def extra_repr(self) -> str:
        """The arguments."""
        return self.repr_format.format(self) or super().extra_repr()


def replaced_method(module: BoundedModule) -> str | None:
    """The method by which a module computes something else than its `bound` speaks of, if there is one.

    A subclass that overrides a method of COMPUTING brings a bound of its own; nobody replaces one on an instance.
    """
    ancestors = type(module).__mro__

    def place(name: str) -> int:
        return next((index for index, cls in enumerate(ancestors) if name in vars(cls)), len(ancestors))

    for name in _CALLING:
        if getattr(type(module), name) is not getattr(nn.Module, name) or name in vars(module):
            return name
    stated = place("bound")
    return next((name for name in COMPUTING if name in vars(module) or place(name) < stated), None)


def proven_bound(module: BoundedModule, input_shape: tuple[int, ...]) -> LayerBound:
    """`module.bound(input_shape)`, once it is certain that it speaks of what the module computes."""
    name = replaced_method(module)
    if name is not None:
        raise UnknownLipschitzConstant(
            f"the Lipschitz constant of {type(module).__name__} is not known: it replaces `{name}`, "
            "of which its inherited `bound` does not speak; give it a `bound` of its own"
        )
    return module.bound(input_shape)


def check_keeps_samples_apart(module: nn.Module, dim: int, input_shape: tuple[int, ...]) -> None:
    """A dimension counted with the batch must not be the batch: a bound is one of a function of a single input."""
    if dim in (0, -1 - len(input_shape)):
        raise UnknownLipschitzConstant(
            f"the Lipschitz constant of {type(module).__name__}(dim={dim}) is not known: "
            "that dimension is the batch, and each input must be mapped alone"
        )


def moves_entries(self: Any, input_shape: tuple[int, ...]) -> LayerBound:
    """The `bound` of modules that move, sort, negate or drop entries, or insert zeros: constant 1, nothing is rounded.

    Along the dimension `dim`, where they have one.
    """
    if hasattr(self, "dim"):
        check_keeps_samples_apart(self, self.dim, input_shape)
    return exact_bound()
