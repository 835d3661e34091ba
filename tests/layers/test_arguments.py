"""Arguments and inputs of every layer, over every registered method: what is honoured works, the rest is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from onelip.layers import (
    CPLLinear,
    MethodInfo,
    SLLLinear,
    SOCLinear,
    StandardConv2d,
    StandardLinear,
    get_method,
    list_methods,
)

each_method = pytest.mark.parametrize("method", list_methods(), ids=lambda m: m.key)


@each_method
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"kernel_size": 0}, "positive"),
        ({"kernel_size": (3, 5, 7)}, "one or two"),
        ({"stride": 0}, "positive"),
        ({"padding": 2}, "same"),
        ({"padding": "full"}, "same"),
        ({"dilation": 0}, "positive"),
        ({"groups": 3}, "divide"),
        ({"padding_mode": "reflect"}, "circular"),
        ({"padding_mode": "replicate"}, "circular"),
        ({"init": "magic"}, "auto"),
        ({"in_channels": 0}, "positive"),
        ({"out_channels": -1}, "positive"),
        ({"lipschitz": 0.0}, "lipschitz=0.0"),
        ({"lipschitz": float("inf")}, "lipschitz=inf"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_unsupported_arguments_raise(method: MethodInfo, options: dict[str, object], word: str) -> None:
    arguments = {"in_channels": 4, "out_channels": 4, "kernel_size": 3, **options}
    with pytest.raises(ValueError, match=word) as caught:
        method.conv(**arguments)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(caught.value)


@each_method
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"in_features": 0}, "in_features=0 must be a positive integer"),
        ({"in_features": 2.5}, "in_features=2.5 must be a positive integer"),
        ({"out_features": -1}, "out_features=-1 must be a positive integer"),
        ({"init": "magic"}, "init='magic' is not known, use one of auto"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_unsupported_arguments_of_linear_layers_raise(
    method: MethodInfo, options: dict[str, object], word: str
) -> None:
    with pytest.raises(ValueError, match=word) as caught:
        method.linear_layer(**{"in_features": 4, "out_features": 4, **options})  # pyright: ignore[reportArgumentType]
    assert str(caught.value).startswith(method.linear_layer.__name__)
    assert "\n" not in str(caught.value)


@each_method
def test_inputs_of_the_wrong_shape_raise(method: MethodInfo) -> None:
    with pytest.raises(ValueError, match="expects"):
        method.conv(4, 4, 3)(torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="expects"):
        method.linear_layer(4, 4)(torch.zeros(1, 3))


@each_method
def test_single_images_work_as_in_torch(method: MethodInfo) -> None:
    layer = method.conv(4, 3, 3).eval()
    x = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(layer(x[0]), layer(x)[0], rtol=0, atol=1e-6)


@each_method
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_every_initialisation_works(method: MethodInfo, kernel: int) -> None:
    for init in method.conv.traits.initialisations:
        layer = method.conv(4, 4, kernel, init=init)
        assert all(parameter.isfinite().all() for parameter in layer.parameters())
        assert layer(torch.randn(1, 4, 4, 4)).isfinite().all()
    for init in method.linear_layer.traits.initialisations:
        assert method.linear_layer(4, 4, init=init)(torch.randn(1, 4)).isfinite().all()


RECTANGLES: list[tuple[int, Callable[..., nn.Module]]] = [
    (1024 * 10, lambda method, **options: method.linear_layer(1024, 10, **options)),
    (1024 * 10, lambda method, **options: method.linear_layer(10, 1024, **options)),
    (3 * 256 * 9, lambda method, **options: method.conv(3, 256, 3, **options)),
    (3 * 256 * 9, lambda method, **options: method.conv(256, 3, 3, **options)),
]


@each_method
def test_a_layer_that_pays_for_a_square_says_so(method: MethodInfo) -> None:
    """With the figures and cheaper methods; all others have about as many parameters as torch."""
    for plain, create in RECTANGLES:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            count = sum(parameter.numel() for parameter in create(method, device="meta", bias=False).parameters())
        if count > 1.1 * plain:
            (warning,) = caught
            assert f"has {count:,} parameters in place of {plain:,}" in str(warning.message)
            assert "take aol, bcop or lot" in str(warning.message)
            assert ("or a small rank=" in str(warning.message)) == (method.key == "bro")
            assert warning.filename == __file__
        else:
            assert not caught


def test_a_place_in_a_program_is_warned_of_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            CPLLinear(1024, 10, device="meta")
        CPLLinear(1024, 10, device="meta")
        SLLLinear(1024, 10, device="meta")
    assert [str(warning.message).split()[0] for warning in caught] == ["CPLLinear", "CPLLinear", "SLLLinear"]


def test_methods_that_the_warning_names_need_no_square() -> None:
    for key in ("aol", "bcop", "lot"):
        for plain, create in RECTANGLES:
            layer = create(get_method(key), device="meta", bias=False)
            assert sum(parameter.numel() for parameter in layer.parameters()) <= plain
    assert sum(parameter.numel() for parameter in SOCLinear(1024, 10).parameters()) == 1024 * 10 + 10


def test_the_baseline_guarantees_no_constant() -> None:
    with pytest.raises(ValueError, match=r"lipschitz=2\.0"):
        StandardConv2d(3, 3, 3, lipschitz=2.0)
    with pytest.raises(ValueError, match=r"lipschitz=2\.0"):
        StandardLinear(3, 3, lipschitz=2.0)
