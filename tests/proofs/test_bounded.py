"""A bound is believed only for what it speaks of: the class that computes, and one input at a time."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip.errors import UnknownLipschitzConstant
from onelip.layers import AOLConv2d, AOLLinear, FirstChannels, FullSort, GroupSort, Householder, MaxMin, ZeroChannelPad
from onelip.layers.operators import Matrix, Operator
from onelip.proofs.bounded import BoundedModule, proven_bound, replaced_method
from onelip.proofs.layer_bound import LayerBound, exact_bound


class Louder(nn.Module):
    """Doubles what another class computes, from behind it in the order of resolution."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().__call__(*args, **kwargs)


class LoudForward(AOLLinear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class LoudApply(AOLLinear):
    def apply_to(self, x: Tensor, operator: Operator) -> Tensor:
        return 2 * super().apply_to(x, operator)


class LoudCall(AOLLinear):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().__call__(*args, **kwargs)


class LoudCallImplementation(AOLLinear):
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super()._call_impl(*args, **kwargs)


class LoudBehind(AOLLinear, Louder):
    pass


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (LoudForward(3, 3), "forward"),
        (LoudApply(3, 3), "apply_to"),
        (LoudCall(3, 3), "__call__"),
        (LoudCallImplementation(3, 3), "_call_impl"),
        (LoudBehind(3, 3), "__call__"),
    ],
)
def test_who_computes_something_else_needs_a_bound_of_its_own(layer: AOLLinear, name: str) -> None:
    assert replaced_method(layer) == name
    with pytest.raises(UnknownLipschitzConstant, match=name):
        proven_bound(layer, (3,))
    with pytest.raises(UnknownLipschitzConstant, match=type(layer).__name__):
        layer.lipschitz_bound()


def test_a_method_replaced_on_an_instance_is_seen() -> None:
    layer = AOLLinear(3, 3)
    layer.forward = lambda x: 2 * x
    assert replaced_method(layer) == "forward"


def test_a_subclass_with_a_bound_of_its_own_is_believed() -> None:
    class Doubled(LoudForward):
        def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
            inner = super().bound(input_shape)
            return LayerBound(2 * inner.lipschitz, 2 * inner.offset, None)

    assert replaced_method(Doubled(3, 3)) is None
    assert proven_bound(Doubled(3, 3), (3,)).lipschitz > 1.9


def test_a_subclass_that_computes_the_same_inherits_the_bound() -> None:
    class Named(AOLConv2d):
        pass

    assert Named(3, 3, 3).lipschitz_bound((5, 5)) <= 1 + 1e-6


@pytest.mark.parametrize("dim", [0, -2])
@pytest.mark.parametrize(
    "module",
    [FirstChannels(1), ZeroChannelPad(4), MaxMin(), GroupSort(2), FullSort(), Householder(2)],
    ids=lambda m: str(type(m)),
)
def test_the_batch_is_no_channel(module: BoundedModule, dim: int) -> None:
    """Dropping or sorting samples is no function of a single input."""
    module = copy.deepcopy(module)
    assert module.bound((2,)).lipschitz == 1
    vars(module)["dim"] = dim
    with pytest.raises(UnknownLipschitzConstant, match="batch"):
        module.bound((2,))


def test_a_bound_of_a_base_class_does_not_speak_of_another_apply() -> None:
    @dataclass(frozen=True)
    class Loud(Matrix):
        def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
            return 2 * super().apply(x, bias)

    @dataclass(frozen=True)
    class Named(Matrix):
        pass

    with pytest.raises(UnknownLipschitzConstant, match="Loud is not known: it defines `apply`"):
        Loud(torch.eye(3)).bound((3,), None)
    assert Named(torch.eye(3)).bound((3,), None).lipschitz == Matrix(torch.eye(3)).bound((3,), None).lipschitz


def test_a_module_states_its_bound() -> None:
    class Exact(BoundedModule):
        def forward(self, x: Tensor) -> Tensor:
            return x

        def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
            return exact_bound()

    assert torch.equal(Exact()(torch.ones(2)), torch.ones(2))
    assert proven_bound(Exact(), (2,)).lipschitz == 1
