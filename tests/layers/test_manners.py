"""What a user gets wrong is told in one line: bytes, lists, arrays, and training in evaluation mode."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from onelip import ConvNet, OffsetCrossEntropy, certified_accuracy, certify, convert, layers, losses
from onelip.errors import InvalidInputError
from onelip.layers import (
    AOLConv2d,
    AOLLinear,
    BatchCentering,
    GroupSort,
    Householder,
    MaxMin,
    ScaledAvgPool2d,
    ScaledMaxPool2d,
    UnitRowsLinear,
    create_conv,
    create_conv1d,
    create_conv3d,
    create_conv_transpose,
    create_linear,
    list_methods,
)
from onelip.losses import HKR
from onelip.models import FastNet

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
    ("labels as floats", lambda _: certify(MODEL, X, torch.zeros(2)), "class numbers of type torch.int64"),
    ("float64 images", lambda _: MODEL(X.double()), r"x.to\(torch.float32\) or model.to\(torch.float64\)"),
    ("float64 features", lambda _: MODEL[2](torch.zeros(2, 16).double()), r"x.to\(torch.float32\)"),
    ("an integer type", lambda _: AOLConv2d(3, 4, 3, dtype=torch.int64), "use one of torch.float32"),
    ("a type as a word", lambda _: AOLLinear(3, 4, dtype="float32"), "use one of torch.float32"),  # pyright: ignore[reportArgumentType]
    ("an unknown device", lambda _: AOLLinear(3, 4, device="gpu"), 'for example "cpu" or "cuda"'),
    ("a constant as a word", lambda _: AOLLinear(3, 4, lipschitz="1"), "use a positive number"),  # pyright: ignore[reportArgumentType]
    ("no method", lambda _: create_conv(None, 3, 4, 3), "there is no method None"),  # pyright: ignore[reportArgumentType]
    ("two sides of a signal", lambda _: create_conv1d("aol", 3, 4, (3, 3)), "one axis"),
    ("pairs of a number", lambda _: MaxMin()(torch.tensor(1.0)), "with a dimension 1"),
    ("pairs of a list", lambda _: MaxMin()([1.0, 2.0]), "got a list"),  # pyright: ignore[reportArgumentType]
    ("a dimension as a word", lambda _: MaxMin("1"), "must be an integer"),  # pyright: ignore[reportArgumentType]
    ("a padding as a word", lambda _: ScaledMaxPool2d(2, padding="x"), "non-negative integers"),  # pyright: ignore[reportArgumentType]
    ("one radius", lambda _: certified_accuracy(MODEL, [], 0.5), "a list of radii"),  # pyright: ignore[reportArgumentType]
    ("converting a word", lambda _: convert("resnet18"), "takes a torch.nn.Module"),  # pyright: ignore[reportArgumentType]
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


LAYERS: list[tuple[Callable[..., nn.Module], tuple[Any, ...], tuple[int, ...]]] = [
    (create_conv, (4, 4, 3), (2, 4, 6, 6)),
    (create_conv_transpose, (4, 4, 2, 2), (2, 4, 3, 3)),
    (create_conv1d, (4, 4, 3), (2, 4, 6)),
    (create_linear, (4, 4), (2, 4)),
]


@pytest.mark.parametrize("method", [method.key for method in list_methods()])
def test_every_layer_tells_what_it_expects(method: str) -> None:
    for create, arguments, shape in LAYERS:
        layer = create(method, *arguments)
        wrong: list[Any] = [
            torch.zeros(shape, dtype=torch.uint8),
            torch.zeros(shape, dtype=torch.complex64),
            torch.zeros(shape[0], 3, *shape[2:]),
            torch.zeros(5),
            torch.zeros(()),
            [[1.0] * 4] * 2,
        ]
        for x in wrong:
            with pytest.raises(InvalidInputError, match=type(layer).__name__) as caught:
                layer(x)
            assert "\n" not in str(caught.value)


PARTS = [getattr(layers, name) for name in layers.__all__ if inspect.isclass(getattr(layers, name))]
LOSSES = [getattr(losses, name) for name in losses.__all__ if inspect.isclass(getattr(losses, name))]


@pytest.mark.parametrize("kind", [*PARTS, *LOSSES], ids=lambda kind: kind.__name__)
def test_constructors_tell_their_arguments(kind: type[Any]) -> None:
    if not issubclass(kind, nn.Module) or inspect.isabstract(kind):
        return
    text = f"{inspect.getdoc(kind)} {inspect.getdoc(kind.__init__)}"
    own = [name for name in inspect.signature(kind).parameters if name not in ("args", "kwargs", "options")]
    assert [name for name in own if name not in text] == []


def test_parts_and_networks_tell_what_they_expect() -> None:
    mistakes: list[Callable[[], Any]] = [
        lambda: MaxMin()(X),
        lambda: GroupSort(4)(X),
        lambda: Householder(4)(X),
        lambda: BatchCentering(3)(BYTES),
        lambda: ScaledAvgPool2d(2)(BYTES),
        lambda: ScaledMaxPool2d(2)([1]),  # pyright: ignore[reportArgumentType]
        lambda: UnitRowsLinear(4, 2)(torch.zeros(2, 3)),
        lambda: FastNet(width=16)(torch.zeros(1, 3, 30, 32)),
        lambda: ConvNet("aol", None, num_classes=2, input_size=8, width=4)(X[0]),
        lambda: certify(MODEL, X[0]),
        lambda: certified_accuracy(MODEL, [(X, [0, 1])]),
    ]
    for mistake in mistakes:
        with pytest.raises(InvalidInputError) as caught:
            mistake()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", [method.key for method in list_methods()])
def test_layers_of_half_types_start_and_run(method: str) -> None:
    """As torch's do; the transformation is computed in float32."""
    layer = create_conv(method, 4, 4, 3, dtype=torch.bfloat16)
    assert layer(torch.randn(2, 4, 6, 6, dtype=torch.bfloat16)).dtype == torch.bfloat16
