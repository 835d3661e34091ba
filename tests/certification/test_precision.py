"""Certifying passes compute in IEEE arithmetic and leave the caller's switches as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from onelip.certification.precision import ieee_arithmetic
from onelip.proofs.proven import gamma

HAS_NEW_SWITCHES = hasattr(torch._C, "_set_fp32_precision_setter")
needs_new_switches = pytest.mark.skipif(not HAS_NEW_SWITCHES, reason="torch has fp32_precision from 2.9 on")
PRECISIONS = [(backend, operation) for backend in ("mkldnn", "cuda") for operation in ("all", "conv", "matmul", "rnn")]


def switches() -> dict[Any, Any]:
    """What a user can read, the old switches only where torch allows it."""
    state: dict[Any, Any] = {}
    old: dict[str, Callable[[], Any]] = {
        "matmul": torch.get_float32_matmul_precision,
        "cudnn": lambda: torch.backends.cudnn.allow_tf32,
        "cudnn enabled": lambda: torch.backends.cudnn.enabled,
        "nnpack": torch._C._get_nnpack_enabled,
        "bf16": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    }
    for name, read in old.items():
        try:
            state[name] = read()
        except RuntimeError:
            state[name] = "refused"
    if HAS_NEW_SWITCHES:
        for key in [("generic", "all"), *PRECISIONS]:
            state[key] = torch._C._get_fp32_precision_getter(*key)
    return state


def set_new(backend: str, operation: str, value: str) -> None:
    """Set as the attributes of torch.backends do, which refuse once anything imported torch.testing's helpers."""
    torch._C._set_fp32_precision_setter(backend, operation, value)


SETTINGS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "old medium": lambda: torch.set_float32_matmul_precision("medium"),
    "old cudnn": lambda: torch._C._set_cudnn_allow_tf32(False),
    "old cublas": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
}
if HAS_NEW_SWITCHES:
    SETTINGS |= {
        "convolutions": lambda: set_new("mkldnn", "conv", "bf16"),
        "products": lambda: set_new("mkldnn", "matmul", "bf16"),
        "cuda": lambda: set_new("cuda", "matmul", "tf32"),
        "all": lambda: set_new("generic", "all", "tf32"),
        "mixed": lambda: (torch.set_float32_matmul_precision("high"), set_new("mkldnn", "matmul", "bf16")),
    }


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with ieee_arithmetic():  # which restores them all
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_switches_are_set_and_restored(setting: str, frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where torch.backends is frozen, as importing torch.testing's helpers leaves it."""
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", not frozen)
    SETTINGS[setting]()
    before = switches()
    with ieee_arithmetic() as assumed:
        inside = switches()
    assert switches() == before
    assert not inside["nnpack"]
    assert not inside["cudnn enabled"]
    assert inside["matmul"] in ("highest", "refused")
    assert all(value == "ieee" for key, value in inside.items() if isinstance(key, tuple))
    assert all(value in ("ieee", "off", "False", "highest") for value in assumed.values())


@needs_new_switches
def test_a_switch_that_inherits_goes_on_to_inherit() -> None:
    for key in PRECISIONS:
        torch._C._set_fp32_precision_setter(*key, "none")
    set_new("generic", "all", "tf32")
    with ieee_arithmetic():
        pass
    set_new("generic", "all", "ieee")
    assert all(torch._C._get_fp32_precision_getter(*key) == "ieee" for key in PRECISIONS)


def test_switches_are_restored_after_an_error() -> None:
    torch.set_float32_matmul_precision("medium")
    before = switches()
    with pytest.raises(ZeroDivisionError), ieee_arithmetic():
        raise ZeroDivisionError
    assert switches() == before


def test_autocast_is_off_inside() -> None:
    x = torch.randn(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        with ieee_arithmetic():
            assert (x @ x).dtype == torch.float32
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("onednn", [True, False])
def test_convolutions_and_products_are_inner_products(setting: str, onednn: bool) -> None:
    """NNPACK takes 3 x 3 kernels on batches of 16 where oneDNN does not, oneDNN takes bfloat16 where it may."""
    x, weight, matrix = torch.randn(16, 16, 12, 12), torch.randn(16, 16, 3, 3), torch.randn(256, 256)
    SETTINGS[setting]()
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(onednn)
    try:
        with ieee_arithmetic():
            results = F.conv2d(x, weight), matrix @ matrix
    finally:
        torch._C._set_mkldnn_enabled(before)
    exact = F.conv2d(x.double(), weight.double()), matrix.double() @ matrix.double()
    sums = F.conv2d(x.double().abs(), weight.double().abs()), matrix.double().abs() @ matrix.double().abs()
    for result, truth, magnitude, terms in zip(results, exact, sums, (144, 256), strict=True):
        assert ((result - truth).abs() <= gamma(terms, 2.0**-24) * magnitude).all()
