"""Who else looks at the operations: compilers, function transforms, dispatch modes, certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from onelip.linalg.devices import is_cpu

_TRACED: ContextVar[bool] = ContextVar("traced_operations", default=False)
_PLAIN: ContextVar[bool] = ContextVar("plain_operations", default=False)


def wants_plain_operations() -> bool:
    """Compilers and torch.func take the plain operations: the former fuse them, the latter differentiate them.

    So do certificates, where they look into a module.
    """
    inside = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return inside or forms_are_off()


def forms_are_off() -> bool:
    """Whether a certificate looks at the operations, or the fast forms are switched off."""
    return _TRACED.get() or _PLAIN.get()


@contextmanager
def plain_operations() -> Iterator[None]:
    """Every layer computes by its definitions inside the block, whoever looks at it: `onelip.fast.off`."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


@contextmanager
def traced_operations(on: bool = True) -> Iterator[None]:
    """Plain operations, each of them seen by whoever traces the model; or, with False, the fast ways again."""
    token = _TRACED.set(on)
    try:
        yield
    finally:
        _TRACED.reset(token)


def may_cache_tensors() -> bool:
    """Whether a tensor made under `ordinary_tensors` is one that may be kept and used anywhere later.

    Compilers, fake tensors and other dispatch modes may hand out tensors that live no longer than they do, and may
    refuse tensors from elsewhere: what is made there is kept by nobody, and what was kept elsewhere is not used there.
    Modes that only watch, such as counters of operations, hand out ordinary tensors.
    """
    if torch.compiler.is_compiling():
        return False
    if torch._C._len_torch_dispatch_stack() and type(torch.empty(0)) is not torch.Tensor:
        return False
    return not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Functionalize)


def fake_mode_alone() -> object | None:
    """The mode whose fake tensors are made here, unless a compiler or a function transform records what is done."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return None
    modes = torch._C._TorchDispatchModeKey
    recorded = torch._C._get_dispatch_mode(modes.PROXY) or torch._C._get_dispatch_mode(modes.FUNCTIONAL)
    return torch._C._get_dispatch_mode(modes.FAKE) if recorded is None else None


def run(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`; where nothing is differentiated its forward pass alone, without what autograd does around it.

    For functions that look at `needs_input_grad` of their first argument only. Around small images autograd takes as
    long as an operation.
    """
    return function.apply(*arguments) if torch.is_grad_enabled() else function.forward(_NoContext(), *arguments)


class _NoContext:
    """Stands for the context of a function whose backward pass will not be: what it is given goes with it."""

    needs_input_grad = (False,)

    def save_for_backward(self, *tensors: torch.Tensor | None) -> None:
        """Nothing is kept."""


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """What is made here from ordinary tensors is ordinary: outside inference mode, autograd and torch.func."""
    with torch.inference_mode(False), torch.no_grad(), temporarily_clear_interpreter_stack():
        yield


def autocast_state(device: str) -> Callable[[], AbstractContextManager[Any]]:
    """Contexts in which a backward pass finds the autocast of its forward pass."""
    if device == "meta" or not torch.is_autocast_enabled(device):
        return nullcontext
    return partial(torch.autocast, device, torch.get_autocast_dtype(device))


def no_autocast(device: str) -> AbstractContextManager[Any]:
    """Operations in the types of their inputs."""
    return nullcontext() if device == "meta" else torch.autocast(device, enabled=False)


def rows_in_use(gradient: torch.Tensor) -> torch.Tensor | None:
    """Indices of the rows of one matrix that are not zero, where they are at most a quarter and one may look.

    A network that uses the first outputs of a square last layer has a gradient with few rows: products with it are
    small ones.
    """
    looks = is_cpu(gradient.device) and not gradient.is_meta
    if gradient.dim() != 2 or wants_plain_operations() or not may_cache_tensors() or not looks:
        return None
    rows = gradient.any(-1).nonzero().squeeze(-1)
    return rows if 4 * len(rows) <= len(gradient) else None
