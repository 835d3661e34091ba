"""Linear operations with constants: the bound is the norm of the matrix, which is computed here from the Jacobian."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_models import Calls
from torch import Tensor, nn
from torch.nn import functional as F

from onelip import certify, lipschitz_bound
from onelip.errors import UnknownLipschitzConstant

torch.manual_seed(0)
W = torch.randn(4, 4)
BLOCKS = torch.randn(3, 4, 4)
MASK = torch.ones(4, 4).tril().bool()
GRID = torch.rand(1, 5, 6, 2) * 2 - 1


def jacobian_norm(function: Callable[[Tensor], Tensor], x: Tensor) -> float:
    jacobian: Any = torch.autograd.functional.jacobian(function, x)
    return float(torch.linalg.matrix_norm(jacobian.reshape(-1, x.numel()), 2))


def to(weight: Tensor, x: Tensor) -> Tensor:
    """As the program has it."""
    return weight if weight.dtype == x.dtype else weight.to(x.dtype)


EXACT: dict[str, Callable[[Tensor], Any]] = {
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, size=(7, 3), mode="bicubic", align_corners=True),
    "area": lambda x: F.interpolate(x, size=3, mode="area"),
    "antialias": lambda x: F.interpolate(x, size=(2, 3), mode="bilinear", antialias=True),
    "grid_sample": lambda x: F.grid_sample(x, to(GRID, x).expand(len(x), -1, -1, -1), align_corners=False),
    "fold": lambda x: F.fold(F.unfold(x, 3, padding=1), 4, 3, padding=1) / 9,
    "einsum": lambda x: torch.einsum("n...w,wv->n...v", x, to(W, x)),
    "einsum of two": lambda x: torch.einsum("nchw,hk,wl->nckl", x, to(W, x), to(W, x)),
    "einsum of blocks": lambda x: torch.einsum("nchw,chk->nckw", x, to(BLOCKS, x)),
    "tensordot": lambda x: torch.tensordot(x, to(W, x)[:3], ([1], [0])),  # pyright: ignore[reportArgumentType]
    "x @ vector": lambda x: x @ to(W, x)[0],
    "x @ matrices": lambda x: x @ to(BLOCKS, x),
    "matrices @ x": lambda x: to(BLOCKS, x) @ x,
    "index_add": lambda x: torch.index_add(torch.zeros_like(x), 2, torch.tensor([0, 0, 3, 2]), x, alpha=0.5),
    "diff": lambda x: x.diff(n=2, dim=3),
    "diagonal": lambda x: x.diagonal(0, 2, 3),
    "masked": lambda x: x.masked_fill(MASK, 0.5),
    "where": lambda x: torch.where(MASK, x, x.flip(3)),
    "gather": lambda x: x.gather(3, (torch.arange(48) * 5 % 4).reshape(1, 3, 4, 4).expand(len(x), 3, 4, 4)),
    "pairs": lambda x: x[:, :, [0, 1, 1], [2, 3, 3]],
    "all inputs by number": lambda x: x[torch.arange(len(x)), 1],
}


@pytest.mark.parametrize("name", EXACT)
def test_the_bound_is_the_norm_of_the_matrix(name: str) -> None:
    function = EXACT[name]
    model = nn.Sequential(Calls(function), nn.Flatten())
    norm = jacobian_norm(function, torch.randn(1, 3, 4, 4, dtype=torch.float64))
    bound = lipschitz_bound(model, (3, 4, 4))
    assert norm <= bound <= norm * 1.01 + 1e-9
    assert bool((certify(model, torch.randn(3, 3, 4, 4), arithmetic="float32").radii >= 0).all())


def test_large_images_are_bounded_without_their_matrix() -> None:
    grid = torch.rand(1, 60, 60, 2) * 2 - 1
    model = Calls(lambda x: F.grid_sample(x, to(grid, x).expand(len(x), -1, -1, -1), align_corners=False))
    bound = lipschitz_bound(model, (1, 60, 60))
    x = torch.rand(1, 1, 60, 60, dtype=torch.float64).requires_grad_()
    for _ in range(10):  # the power method
        y = model(x)
        (x,) = torch.autograd.grad(y, x, y)
        x = (x / x.norm()).detach().requires_grad_()
    norm = float(model(x).detach().norm())
    assert norm <= bound <= norm * 1.2


def test_values_written_into_slices_are_followed() -> None:
    def swapped(x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 0] = x[:, 1]
        y[:, 1] = x[:, 0]
        return y

    assert lipschitz_bound(Calls(swapped), (3, 4, 4)) == pytest.approx(1.0, rel=1e-9)
    assert math.isfinite(float(certify(nn.Sequential(Calls(swapped), nn.Flatten()), torch.randn(2, 3, 4, 4)).radii[0]))


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda x: x.gather(0, torch.zeros(len(x), 3, 4, 4, dtype=torch.int64)), "batch"),
        (lambda x: x.masked_fill(torch.arange(len(x))[:, None, None, None] < 1, 0.0), "differs"),
        (lambda x: torch.einsum("nchw,ndhw->ncd", x, x), "product"),
        (lambda x: torch.einsum("nchw,nm->mchw", x, torch.ones(len(x), 2)), "batch"),
        (lambda x: torch.index_add(x, 0, torch.zeros(len(x), dtype=torch.int64), x.detach() * 0 + 1), "two values"),
        (lambda x: torch.where(x > 0, x, x - 1), "jumps"),
    ],
)
def test_what_mixes_the_batch_or_jumps_is_refused(function: Callable[[Tensor], Any], word: str) -> None:
    with pytest.raises(UnknownLipschitzConstant, match=word):
        lipschitz_bound(Calls(function), (3, 4, 4))
