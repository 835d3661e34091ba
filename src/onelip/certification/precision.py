"""IEEE arithmetic in certifying passes, whatever the caller has switched on.

torch has two generations of switches for the precision of float32 products: the old ones (`allow_tf32`,
`set_float32_matmul_precision`) and, from 2.9 on, `torch.backends.*.fp32_precision` for each backend and operation. Each
generation may refuse to be read once the other one was used. Winograd convolutions (NNPACK, cuDNN) sum no products.
All of them are saved, set, read back and restored here, through the functions of torch._C that exist: the attributes of
torch.backends are frozen in some programs, and that of `mkldnn` sets another switch than it reads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from onelip.errors import BrokenCertificateError

_PRECISIONS = [
    ("generic", "all"),
    *(("mkldnn", operation) for operation in ("all", "conv", "matmul", "rnn")),
    *(("cuda", operation) for operation in ("all", "conv", "matmul", "rnn")),
]
"""Parents before children: a child that was never set, "none", is read as its parent."""

_OLD_SWITCHES = {
    "float32_matmul_precision": "highest",
    "cudnn_allow_tf32": False,
    "onednn_allow_tf32": False,
    "nnpack_enabled": False,
    "cudnn_enabled": False,
}
_REDUCTIONS = [
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
]
_DEVICES = ("cpu", "cuda", "xpu", "mps")


class _Switch(NamedTuple):
    name: str
    get: Callable[[], Any]
    set: Callable[[Any], Any]
    value: Any


@contextmanager
def ieee_arithmetic() -> Iterator[dict[str, str]]:
    """IEEE products and sums inside; yields the state of every switch inside, for the certificate to keep.

    Raises `BrokenCertificateError` if a switch does not stay where it is put.
    """
    with ExitStack() as stack:
        for device in _DEVICES:
            if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(_all_switches())
        state = _state()
        wrong = [name for name, value in state.items() if name.endswith("fp32_precision") and value != "ieee"]
        if wrong:
            raise BrokenCertificateError(f"the precision of {', '.join(wrong)} cannot be set to IEEE")
        yield {"autocast": "off", **state}


def check_switches(state: Mapping[str, str]) -> None:
    """Raise where a model has switched something, by which it may compute as it does not here."""
    moved = [name for name, value in _state().items() if value != state.get(name)]
    if moved:
        raise BrokenCertificateError(f"the model itself switched {', '.join(moved)}, which precision depends on")


@contextmanager
def _all_switches() -> Iterator[None]:
    """Old switches first: each of them moves new ones as well."""
    precisions = _stored_precisions()
    ieee = dict.fromkeys(precisions, "ieee")
    saved = [(switch, switch.get()) for switch in _old_switches() if _is_readable(switch)]
    try:
        _put([], ieee)  # without the contradiction more of the old ones can be read
        known = {switch.name for switch, _ in saved}
        others = [switch for switch in _old_switches() if switch.name not in known and _is_readable(switch)]
        saved += [(switch, switch.get()) for switch in others]
        _put([(switch, switch.value) for switch, _ in saved], ieee)
        for switch, _ in saved:
            if _is_readable(switch) and switch.get() != switch.value:
                raise BrokenCertificateError(f"{switch.name} stays {switch.get()} when set to {switch.value}")
        yield
    finally:
        _put(saved, precisions)


def _put(old: list[tuple[_Switch, Any]], new: dict[tuple[str, str], str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a newer switch
        for switch, value in old:
            switch.set(value)
    for (backend, operation), value in new.items():
        torch._C._set_fp32_precision_setter(backend, operation, value)  # pyright: ignore


def _old_switches() -> list[_Switch]:
    switches = []
    for name, value in _OLD_SWITCHES.items():
        get, put = (getattr(torch._C, f"_{verb}_{name}", None) for verb in ("get", "set"))
        if get is not None and put is not None:
            switches.append(_Switch(name, get, put, value))
    matmul = torch.backends.cuda.matmul
    for name in _REDUCTIONS:
        if hasattr(matmul, name):
            put = lambda value, name=name: setattr(matmul, name, value)  # noqa: E731
            switches.append(_Switch(name, lambda name=name: getattr(matmul, name), put, False))
    return switches


def _is_readable(switch: _Switch) -> bool:
    """Old switches raise while a new one contradicts them, which then rules; some are None where they mean nothing."""
    try:
        return switch.get() is not None
    except RuntimeError:
        return False


def _stored_precisions() -> dict[tuple[str, str], str]:
    """The new switches as they are stored: a child is read while all of its parents are "none", then they come back."""
    if not hasattr(torch._C, "_set_fp32_precision_setter"):
        return {}
    stored = {}
    for backend, operation in _PRECISIONS:
        stored[backend, operation] = torch._C._get_fp32_precision_getter(backend, operation)  # pyright: ignore
        if operation == "all":
            torch._C._set_fp32_precision_setter(backend, operation, "none")  # pyright: ignore
    for backend, operation in _PRECISIONS:
        if operation == "all":
            torch._C._set_fp32_precision_setter(backend, operation, stored[backend, operation])  # pyright: ignore
    return stored


def _state() -> dict[str, str]:
    """Every switch by name, as read."""
    old = {switch.name: str(switch.get()) for switch in _old_switches() if _is_readable(switch)}
    new = {
        f"{backend}.{operation}.fp32_precision": torch._C._get_fp32_precision_getter(backend, operation)  # pyright: ignore
        for backend, operation in (_PRECISIONS if hasattr(torch._C, "_get_fp32_precision_getter") else [])
    }
    return old | new
