"""What a user gets wrong is told in one line: bytes, lists, arrays, and training in evaluation mode."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from onelip import OffsetCrossEntropy, certify
from onelip.errors import InvalidInputError
from onelip.layers import AOLConv2d, AOLLinear, LOTConv2d, create_conv3d, list_methods
from onelip.losses import HKR

X = torch.rand(2, 3, 8, 8)
BYTES = (255 * X).to(torch.uint8)
MODEL = nn.Sequential(AOLConv2d(3, 4, 3, stride=4), nn.Flatten(), AOLLinear(16, 2)).eval()
SCORES = torch.zeros(2, 2)

MISTAKES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("bytes in a convolution", lambda _: MODEL(BYTES), "x / 255"),
    ("bytes in a linear layer", lambda _: MODEL[2](torch.zeros(2, 16, dtype=torch.uint8)), "torch.uint8"),
    ("bytes in a volume", lambda _: create_conv3d("aol", 2, 3, 3)(BYTES), "torch.uint8"),
    ("an array", lambda _: MODEL(X.numpy()), "expects a tensor, got a ndarray"),
    ("bytes to certify", lambda _: certify(MODEL, BYTES), "such as float32"),
    ("a list to certify", lambda _: certify(MODEL, [X, X]), "expects a tensor, got a list"),
    ("a list of labels", lambda _: certify(MODEL, X, [0, 1]), "got a list"),  # pyright: ignore[reportArgumentType]
    ("a list in a loss", lambda _: OffsetCrossEntropy()(SCORES, [0, 1]), "torch.as_tensor"),
    ("a list in HKR", lambda _: HKR()(SCORES[:, 0], [0, 1]), "torch.as_tensor"),
]


@pytest.mark.parametrize(
    ("call", "message"), [(call, text) for _, call, text in MISTAKES], ids=[n for n, *_ in MISTAKES]
)
def test_mistakes_are_told_in_one_line(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        call(None)
    assert "\n" not in str(caught.value)


def test_training_in_evaluation_mode_warns_once() -> None:
    layer = AOLLinear(4, 4).eval()
    optimiser = torch.optim.SGD(layer.parameters(), 0.1)

    def steps(count: int) -> None:
        for _ in range(count):
            optimiser.zero_grad()
            layer(torch.rand(2, 4)).sum().backward()
            optimiser.step()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        steps(4)
    assert [str(warning.message) for warning in caught if "call model.train() first" in str(warning.message)] == [
        str(caught[0].message)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.train()
        steps(2)
        layer.eval()
        for _ in range(2):  # gradients of the input, as attacks take them, and evaluation without any
            layer(torch.rand(2, 4, requires_grad=True)).sum().backward()
            with torch.no_grad():
                layer(torch.rand(2, 4))


def test_constructors_tell_their_arguments() -> None:
    for method in list_methods():
        for kind in (method.conv, method.linear_layer):
            names = [name for name in inspect.signature(kind).parameters if name != "options"]
            text = inspect.getdoc(kind.__init__) or ""
            assert names[0] in text, kind
            assert "lipschitz: the constant" in text, kind
    assert "padding_mode" in inspect.signature(LOTConv2d).parameters
