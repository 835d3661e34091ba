"""Transformations of small layers are done by one thread, and leave the number of threads as it was."""

from __future__ import annotations

import pytest
import torch

from onelip.fast import one_thread
from onelip.fast.one_thread import SMALL, wants_one_thread
from onelip.layers import create_conv, create_linear


class Switch:
    """In the place of MKL's function: what it was called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[int] = []
        monkeypatch.setattr(one_thread, "_set_threads", lambda: self.calls.append)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


@pytest.mark.parametrize("method", ["bcop", "cayley", "cpl", "sandwich"])
def test_forward_and_backward_of_a_small_transformation_take_one_thread(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients are those of the plain pass, bit by bit."""
    layer, x = create_conv(method, 4, 4, 3), torch.randn(2, 4, 6, 6)
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    layer(x).square().sum().backward()
    wanted = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    layer.load_state_dict(state)
    switch = Switch(monkeypatch)
    y = layer(x)
    assert switch.calls == [1, 2]
    y.square().sum().backward()
    assert switch.calls == [1, 2, 1, 2]
    for parameter, gradient in zip(layer.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=0, atol=0)
    layer.eval()(x)
    assert switch.calls == [1, 2] * 3
    layer(x)
    assert switch.calls == [1, 2] * 3, "a kept transformation"


def test_wide_layers_and_single_threads_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = Switch(monkeypatch)
    create_linear("bjorck", 192, 192)(torch.randn(2, 192)).sum().backward()
    create_linear("standard", 4, 4)(torch.randn(2, 4)).sum().backward()
    assert not switch.calls
    assert wants_one_thread([torch.zeros(SMALL)])
    assert not wants_one_thread([torch.zeros(SMALL), torch.zeros(1)])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert not wants_one_thread([torch.zeros(1)])


def test_an_error_gives_the_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = Switch(monkeypatch)
    layer = create_linear("bjorck", 4, 4)

    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(type(layer), "transform_tensors", fail)
    with pytest.raises(RuntimeError):
        layer(torch.zeros(1, 4))
    assert switch.calls == [1, 2]


def test_the_library_is_found() -> None:
    """Builds of torch with MKL have the function; others do without."""
    assert (one_thread._set_threads() is not None) == torch.backends.mkl.is_available()
