"""What torch and Python answer while a model is traced.

Calls of modules come to the tracer. A traced value stands for a tensor, so `isinstance(x, torch.Tensor)` and
`torch.is_tensor(x)` are true of it; a model that treats tensors and other things apart is traced as it runs. Code that
asks whether gradients are recorded, or whether it is being compiled or exported, may be another program for another
answer: it gets that of the tracer, which notes that it was asked. All of this is for the model's own code: torch's and
onelip's get the truth.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from onelip.certification.frames import is_users
from onelip.certification.traced import Traced, all_traced
from onelip.linalg.tensor_modes import observed

if TYPE_CHECKING:
    from onelip.certification.tracing import Tracer

_PATCHING = threading.RLock()
_A_TENSOR = torch.empty(0)

_CALL = nn.Module.__call__
_ISINSTANCE = builtins.isinstance
_IS_TENSOR = torch.is_tensor

_QUESTIONS: list[tuple[Any, str, bool]] = [
    # where the question is asked, its name, and the answer of a program that records gradients or is being compiled
    (torch, "is_grad_enabled", True),
    (torch, "is_inference_mode_enabled", False),
    (torch.compiler, "is_compiling", True),
    (torch.compiler, "is_dynamo_compiling", True),
    (torch.jit, "is_tracing", True),
    (torch.jit, "is_scripting", True),
    (torch.onnx, "is_in_onnx_export", True),
]


def call_module(module: nn.Module, *arguments: Any, **keywords: Any) -> Any:
    """A module called as it is called where nothing is traced."""
    return _CALL(module, *arguments, **keywords)


@contextmanager
def intercepting(tracer: Tracer) -> Iterator[None]:
    """The model's own code meets the tracer."""
    here = threading.get_ident()

    def call(module: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        if any(handle.tracer is tracer for handle in all_traced((arguments, keywords))):
            return tracer.call_module(module, arguments, keywords)
        return _CALL(module, *arguments, **keywords)

    def is_instance(value: Any, kinds: Any, /) -> bool:
        stands_for_one = type(value) is Traced and is_users(sys._getframe(1))
        return _ISINSTANCE(_A_TENSOR if stands_for_one else value, kinds)

    def is_tensor(obj: Any) -> bool:
        return _IS_TENSOR(obj) or (type(obj) is Traced and is_users(sys._getframe(1)))

    def answer(true: Callable[[], bool], otherwise: bool) -> Callable[[], bool]:
        def asked() -> bool:
            if threading.get_ident() != here or not is_users(sys._getframe(1)):
                return true()
            tracer.was_asked = True
            return otherwise == tracer.answers_otherwise

        return asked

    replaced: list[tuple[Any, str, Any]] = [
        (nn.Module, "__call__", call),
        (builtins, "isinstance", is_instance),
        (torch, "is_tensor", is_tensor),
        *(
            (place, name, answer(getattr(place, name), other))
            for place, name, other in _QUESTIONS
            if hasattr(place, name)
        ),
    ]
    with _PATCHING:
        true = [(place, name, getattr(place, name)) for place, name, _ in replaced]
        try:
            for place, name, function in replaced:
                setattr(place, name, function)
            yield
        finally:
            for place, name, function in true:
                setattr(place, name, function)


@contextmanager
def quiet() -> Iterator[None]:
    """While a proof or a leaf runs, modules are called as usual, and onelip's layers take their fast ways."""
    intercepted = nn.Module.__call__
    nn.Module.__call__ = _CALL
    try:
        with observed(False):
            yield
    finally:
        nn.Module.__call__ = intercepted
