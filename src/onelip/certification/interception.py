"""What torch and Python answer while a model is traced.

Calls of modules come to the tracer, by an attribute that `nn.Module.__call__` looks at. Code that asks whether
gradients are recorded, or whether it is being compiled or exported, may be another program for another answer: it gets
that of the tracer, which notes that it was asked. This is for the model's own code: torch's and onelip's get the truth,
and so does every other thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from onelip.certification.traced import all_traced, is_users

if TYPE_CHECKING:
    from onelip.certification.tracing import Tracer

_PATCHING = threading.RLock()

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


class _CallsOfModules:
    """Stands in `nn.Module._compiled_call_impl`, where a call looks for another way to run; None in other threads."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def __get__(self, module: nn.Module | None, cls: Any) -> Callable[..., Any] | None:
        return partial(_reported, module) if module is not None and threading.get_ident() == self.thread else None


def _reported(module: nn.Module, *arguments: Any, **keywords: Any) -> Any:
    handle = next(all_traced((arguments, keywords)), None)
    if handle is None:
        return module._call_impl(*arguments, **keywords)
    return handle.tracer.call_module(module, arguments, keywords)


@contextmanager
def intercepting(tracer: Tracer) -> Iterator[None]:
    """Calls of modules, and questions of the model's own code, go to the tracer, in this thread alone."""
    here = threading.get_ident()

    def answer(true: Callable[[], bool], otherwise: bool) -> Callable[[], bool]:
        def told() -> bool:
            if threading.get_ident() != here or not is_users(sys._getframe(1)):
                return true()
            tracer.was_asked = True
            return otherwise == tracer.answers_otherwise

        return told

    with _PATCHING:
        asked = [
            (place, name, getattr(place, name), other) for place, name, other in _QUESTIONS if hasattr(place, name)
        ]
        called = vars(nn.Module)["_compiled_call_impl"]
        try:
            nn.Module._compiled_call_impl = _CallsOfModules()  # pyright: ignore
            for place, name, true, otherwise in asked:
                setattr(place, name, answer(true, otherwise))
            yield
        finally:
            nn.Module._compiled_call_impl = called
            for place, name, true, _ in asked:
                setattr(place, name, true)
