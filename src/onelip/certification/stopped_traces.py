"""Where a trace cannot go on: whose code runs there, and what is said about it."""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from onelip.certification.call_arguments import Arguments
from onelip.certification.frozen import PLAIN_TENSORS
from onelip.certification.traced import Traced, is_users, mapped, nested
from onelip.errors import InvalidInputError


def users_line(end: CodeType) -> str:
    """The nearest line of code between a call and the frame of the code `end` that is neither torch's nor onelip's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not end:
        name = frame.f_code.co_filename
        if is_users(frame) and "<" not in name:
            return f"{os.path.basename(name)} line {frame.f_lineno}"
        frame = frame.f_back
    return ""


def why_not_here(thread: int) -> str | None:
    """Why nothing can be traced where this is called, if nothing can."""
    if threading.get_ident() != thread:
        return "another thread computes it, in no certain order; stay in that of forward"
    if torch._C._are_functorch_transforms_active():
        return "it is called inside vmap or a derivative of torch.func; call it on the batch"
    if torch._C._len_torch_dispatch_stack():
        return "forward enters a dispatch mode, which may change every operation; leave it out"
    return None


def why_not_these(arguments: Any, device: str) -> str | None:
    """Why a call with these arguments is refused: types that change what it computes in ways no rule looks at."""
    if torch.is_autocast_enabled(device):
        return "it runs under autocast, which rounds to a shorter type; take autocast out of forward"
    for value in nested(arguments):
        if isinstance(value, complex) or (type(value) in PLAIN_TENSORS and value.is_complex()):
            return "complex numbers are not supported; keep real and imaginary parts apart"
        if not isinstance(value, Tensor) or isinstance(value, Traced):
            continue
        if type(value) not in PLAIN_TENSORS:
            kind = type(value).__name__
            return f"a {kind} is a subclass of Tensor and may compute anything; use tensors"
        if value.layout != torch.strided or value.is_quantized:
            return "it computes with sparse or quantised numbers; use .to_dense() first"
    return None


FAILURES = (TypeError, RuntimeError, AttributeError, ValueError, LookupError, ArithmeticError, AssertionError)


def fails(function: Any, arguments: Any, keywords: Any) -> bool:
    """Whether torch itself refuses the call, with true tensors."""

    def true_tensor(part: Any) -> Any:
        value = part.value if isinstance(part, Traced) else part
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    try:
        with torch.no_grad():
            function(*(mapped(part, true_tensor) for part in arguments), **mapped(keywords, true_tensor))
    except FAILURES:
        return True
    return False


def failed(error: Exception, arguments: Arguments) -> InvalidInputError:
    """The error for inputs that the model itself cannot be called with: other features than it has weights for, say."""
    shapes = " and ".join(str(tuple(shape)) for shape in arguments.shapes)
    return InvalidInputError(
        f"the model fails on inputs of the shape {shapes} (without the batch): {first_line(error)}"
    )


def first_line(error: Exception) -> str:
    """What an error says, shortened."""
    return str(error).strip().partition("\n")[0][:120]


def advice(output: Any) -> str:
    """How a part of what the model returns can be certified."""
    names = list(output) if isinstance(output, dict) else [*vars(output)] if hasattr(output, "__dict__") else []
    parts = [0] if isinstance(output, tuple | list) else [name for name in names if isinstance(name, str)]
    return f": pass output={parts[0]!r} or another part of it" if parts and not isinstance(output, Tensor) else ""


def described(output: Any) -> str:
    """What the model returns, in words."""
    return "a value that does not depend on it" if isinstance(output, Tensor) else f"a {type(output).__name__}"
