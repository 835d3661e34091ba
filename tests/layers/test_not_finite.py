"""Weights that are not finite, as training that diverges leaves them: no method raises."""

from __future__ import annotations

import math

import pytest
import torch
from layer_contract import FEATURES, fresh, samples

from onelip.layers import MethodInfo, list_methods


@pytest.mark.parametrize("case", ["circular", "strided", "frequencies", "square", "linear"])
@pytest.mark.parametrize("method", list_methods(), ids=lambda m: m.key)
def test_nan_comes_out(method: MethodInfo, case: str) -> None:
    for dtype in (torch.float32, torch.float64):
        for value in (math.nan, math.inf):
            for everywhere in (False, True):
                layer, x = fresh(method, case, dtype), samples(case, 2, dtype)
                with torch.no_grad():
                    layer.weight.view(-1)[0 if not everywhere else slice(None)] = value
                y = layer(x)
                assert not y.isfinite().all()
                y.sum().backward()
                assert layer.weight.grad is not None
                assert not layer.eval()(x).isfinite().all()


@pytest.mark.parametrize("method", list_methods(), ids=lambda m: m.key)
def test_one_bad_layer_spoils_no_other_of_its_batch(method: MethodInfo) -> None:
    """Equal layers are transformed together; LAPACK gives up on a batch as a whole."""
    good, bad = (fresh(method, "linear", torch.float32) for _ in range(2))
    with torch.no_grad():
        bad.weight.view(-1)[0] = math.nan
    x = torch.randn(3, *FEATURES)
    assert good(x).isfinite().all()
    assert not bad(x).isfinite().all()
