"""Functions at all frequencies: what is kept, and that layers are the same in parts; values: `test_table.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from onelip.fast import packed_functions
from onelip.layers.sandwich_factors import SandwichFactors
from onelip.linalg.fourier import packed_values
from onelip.linalg.orthogonal import cayley
from onelip.linalg.polar import training_polar
from onelip.linalg.triangular import ridge_orthogonalise

Function = Callable[[Tensor], Any]
FUNCTIONS: list[tuple[Function, tuple[int, int]]] = [
    (cayley, (5, 3)),
    (SandwichFactors(3), (5, 3)),
    (ridge_orthogonalise, (4, 4)),
    (training_polar, (7, 3)),
    (training_polar, (3, 7)),
]
each_function = pytest.mark.parametrize(("function", "shape"), FUNCTIONS)


def _kernel(shape: tuple[int, int]) -> Tensor:
    return torch.randn(3, *shape, 3, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()


@each_function
def test_layers_one_by_one_give_what_they_give_together(
    function: Function, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for at_once in (1, 2**24):
        monkeypatch.setattr(packed_functions, "_BYTES_AT_ONCE", at_once)
        kernel = _kernel(shape)
        values = packed_values(kernel, (4, 6), function)
        total = sum((value.square().sum() for value in values), torch.zeros(()))
        found.append([*values, *torch.autograd.grad(total, kernel)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@each_function
def test_what_is_kept_does_not_grow_with_the_steps_on_the_way(function: Function, shape: tuple[int, int]) -> None:
    """The kernel, the values, and for polar factors the eigenvectors: not the matrices, nor their powers."""
    kernel = _kernel(shape)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        values = packed_values(kernel, (9, 9), function)
    of_values = sum(value.nbytes for value in values)
    eigenvectors = 8 * 3 * 45 * min(shape) ** 2 if function is training_polar else 0
    small = 8 * 3 * 45 * (max(shape) + 1)
    assert sum(tensor.nbytes for tensor in kept) <= kernel.nbytes + of_values + eigenvectors + small
