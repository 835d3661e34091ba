"""A function as mathematics, in whose place faster forms of the same may be put.

The body of a definition is plain, differentiable mathematics, and all that a reader has to know. `onelip.fast` fills
`forms`; without it every definition computes what its body says. Compilers, torch.func and certificates, which look
into a module, get the body too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from onelip.linalg.tensor_modes import wants_plain_operations

P = ParamSpec("P")
T = TypeVar("T")


class Form(Protocol):
    """Another way to compute a definition."""

    @property
    def compute(self) -> Callable[..., Any]:
        """The function, of the definition's arguments."""
        ...

    def accepts(self, *arguments: Any) -> bool:
        """Whether it is the way to take for these arguments."""
        ...


class Definition(Generic[P, T]):
    """A function of tensors, by its body or by the first of its forms that accepts the arguments."""

    def __init__(self, body: Callable[P, T]) -> None:
        functools.update_wrapper(self, body)
        self.body = body
        self.forms: tuple[Form, ...] = ()

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> T:
        """The value; forms take their arguments by position."""
        if self.forms and not options and not wants_plain_operations():
            for form in self.forms:
                if form.accepts(*arguments):
                    return form.compute(*arguments)
        return self.body(*arguments, **options)
