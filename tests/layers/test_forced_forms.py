"""A certificate is that of the form in use, whatever the thresholds: bounds against exact Jacobians in both forms."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from jacobians import norm_at

from onelip.layers import create_conv, frequency_choice, list_methods
from onelip.layers.convolutions import LipschitzConv2d

METHODS = [method.key for method in list_methods() if method.conv.has_frequency_form]
SHARES = {"kernel": 0, "frequencies": 10}


@contextmanager
def forced_form(share: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frequency_choice, "WHOLE_SHARE", share)
        patch.setattr(frequency_choice, "FREQUENCY_SHARE", share)
        yield


@pytest.mark.parametrize("size", [(4, 4), (4, 6)], ids=["one matrix", "two matrices"])
@pytest.mark.parametrize("method", METHODS)
def test_the_bound_of_either_form_holds(method: str, size: tuple[int, int]) -> None:
    layer = create_conv(method, 3, 3, 3).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    points, outputs = torch.randn(3, 3, *size, dtype=torch.float64), []
    for share in SHARES.values():
        own = copy.deepcopy(layer).eval()
        with forced_form(share):
            assert isinstance(own, LipschitzConv2d)
            assert own.acts_on_frequencies(size) == (share == SHARES["frequencies"])
            bound = own.lipschitz_bound(size)
            exact = max(norm_at(own, x) for x in points)
            outputs.append(own(points))
        assert exact <= bound * (1 + 1e-12)
        assert method == "standard" or bound <= 1 + 1e-6
    assert not torch.equal(outputs[0], outputs[1]), "two computations"
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_of_both_forms_agree(method: str) -> None:
    layer = create_conv(method, 3, 3, 3).double()
    x, gradients = torch.randn(2, 3, 4, 4, dtype=torch.float64), []
    for share in SHARES.values():
        own = copy.deepcopy(layer)
        with forced_form(share):
            own(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in own.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-8)
