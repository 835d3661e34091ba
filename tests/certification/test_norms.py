"""Norms and normalisations in float32, where squares cancel and powers underflow: the proven error holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_models import Calls
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification import UnknownLipschitzConstant, lipschitz_bound
from onelip.certification.call_arguments import Arguments
from onelip.certification.proven_model import prove
from onelip.certification.rounding import error_at_sample
from onelip.proofs.layer_bound import FLOAT32


def errors(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """What the float32 program is off by at each input, and what is proven."""
    proven = prove(Calls(function), tuple(x.shape[1:]))
    outputs = proven.exact(Arguments.of(x.double()))
    graph, exact = outputs.graph, outputs.value
    off = (function(x.clone()).double() - exact).reshape(len(x), -1).norm(dim=1)
    return off, error_at_sample(graph.used(), FLOAT32, len(x)).errors[graph.output.index]


@pytest.mark.parametrize("mean", [4.0, 13.0, 40.0, 100.0])
@pytest.mark.parametrize("sigma", [1e-3, 3e-3, 1e-2])
def test_a_group_norm_of_channels_last_loses_its_variance(mean: float, sigma: float) -> None:
    """It is E[x^2] - E[x]^2 there, which cancels."""

    def function(x: Tensor) -> Tensor:
        return F.group_norm(x.contiguous(memory_format=torch.channels_last), 1)

    off, bounds = errors(function, mean + sigma * torch.randn(64, 2, 1, 2))
    assert bool((off <= bounds).all())


def test_a_tiny_eps_is_refused() -> None:
    with pytest.raises(UnknownLipschitzConstant, match="eps of at least 1e-30"):
        lipschitz_bound(nn.LayerNorm(4, eps=1e-36), (4,))


POWERS: dict[str, Callable[[Tensor], Tensor]] = {
    "norm of order 5": lambda x: torch.linalg.vector_norm(x, 5, dim=1, keepdim=True),
    "norm of order 3": lambda x: x.norm(3, 1, True),
    "distances of order 4": lambda x: torch.cdist(x, torch.zeros(1, 8, dtype=x.dtype), 4.0),
    "distances by pairs": lambda x: F.pairwise_distance(x, torch.zeros(1, 8, dtype=x.dtype), 6.0, 0.0, True),
}


@pytest.mark.parametrize("name", POWERS)
def test_powers_that_underflow_are_counted(name: str) -> None:
    """A sum of |x|^p is zero in float32 where entries are below 1e-38^(1 / p)."""
    x = torch.randn(8, 8) * 10 ** torch.linspace(-12, 0, 8)[:, None]
    off, bounds = errors(POWERS[name], x)
    assert bool((off <= bounds).all())
    assert float(bounds[-1]) < 1e-4


def squashed(x: Tensor) -> Tensor:
    squares = (x * x).sum(1, keepdim=True)
    return x * squares / (1 + squares) / torch.sqrt(squares + 1e-8)


@pytest.mark.parametrize("size", [1.0, 1e8, 1e12, 1e13, 1e15, 1e20])
def test_a_product_that_overflows_before_it_is_divided(size: float) -> None:
    off, bounds = errors(squashed, size * torch.randn(8, 8))
    assert bool((off.nan_to_num(torch.inf) <= bounds).all())
