from __future__ import annotations

import copy
import json
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification import certify
from onelip.errors import InvalidInputError
from onelip.layers import FirstChannels, LipschitzConv2d, LipschitzLinear, MaxMin, list_methods
from onelip.models import ACTIVATIONS, ConvNet, create
from onelip.models.config import ConvNetConfig

METHODS = [method.key for method in list_methods()]


def millions(name: str) -> float:
    with torch.device("meta"):
        model = create(name)
    assert all(parameter.is_meta for parameter in model.parameters())
    return round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 2)


@pytest.mark.parametrize(
    ("data_set", "expected"),
    [
        ("cifar10", [1.57, 6.28, 25.12, 100.46]),
        ("cifar100", [1.57, 6.28, 25.12, 100.46]),
        ("tiny-imagenet", [1.58, 6.29, 25.16, 100.63]),
    ],
)
def test_parameter_counts_are_the_papers(data_set: str, expected: list[float]) -> None:
    assert [millions(f"{data_set}-{size}-aol") for size in ("xs", "s", "m", "l")] == expected


def test_parameter_counts_of_the_exceptions() -> None:
    """The paper's remark: k c^2 per convolution for BCOP, about twice as many for Sandwich."""
    w = 16
    blocks = sum((w << block) ** 2 for block in range(4))
    matrices = w**2 + 5 * 3 * blocks + 5 * (16 * w) ** 2 + (32 * w) ** 2
    biases = w + 5 * sum(w << block for block in range(5)) + 32 * w
    assert millions("cifar10-xs-bcop") == round((matrices + biases) / 1e6, 2)
    assert 1.9 <= millions("cifar10-xs-sandwich") / millions("cifar10-xs-aol") <= 2.1


@pytest.mark.parametrize("method", METHODS)
def test_every_method_in_the_papers_range(method: str) -> None:
    """XS has one to two million parameters, but for the two exceptions of the remark, and half of that for BRO."""
    small = {"aoc": (0.5, 1), "bcop": (0.5, 1), "bro": (0.5, 1), "stiefel": (0.5, 1)}
    lowest, highest = (small | {"sandwich": (3, 4)}).get(method, (1, 2))
    assert lowest < millions(f"cifar10-xs-{method}") < highest


@pytest.mark.parametrize(("size", "sides", "last"), [(32, [16, 8, 4, 2, 1], 512), (64, [32, 16, 8, 4, 2, 1], 512)])
def test_output_sizes_are_those_of_the_table(size: int, sides: list[int], last: int) -> None:
    model = ConvNet("standard", "XS", 10, size)
    width = 16 * 32 // size
    x = torch.randn(1, 3, size, size)
    shapes = {}
    for name, module in model.named_children():
        x = module(x)
        shapes[name] = tuple(x.shape[1:])
    assert shapes["pad"] == shapes["stem"] == shapes["stem_activation"] == (width, size, size)
    blocks = [shape for name, shape in shapes.items() if name.startswith("block")]
    assert blocks == [(width << (i + 1), side, side) for i, side in enumerate(sides)]
    assert (shapes["flatten"], shapes["linear"], shapes["scores"]) == ((last,), (last,), (10,))


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_kernel_sizes(kernel_size: int) -> None:
    model = ConvNet("standard", None, 10, 16, kernel_size, width=4)
    sides = {name: m.kernel_size[0] for name, m in model.named_modules() if isinstance(m, LipschitzConv2d)}
    assert sides.pop("stem") == 1
    assert {side for name, side in sides.items() if name.startswith("block4")} == {1}
    assert {side for name, side in sides.items() if not name.startswith("block4")} == {kernel_size}
    assert len(sides) == 20


GROUPED = ["maxmin", "groupsort4", "abs"]


def grouped_order(channels: int, group_size: int) -> Tensor:
    """Our channel k is the channel order[k] of the paper, where the members of a group are neighbours."""
    return torch.arange(channels).reshape(-1, group_size).T.flatten()


def papers_forward(model: ConvNet, x: Tensor, group_size: int) -> Tensor:
    """The paper's tables with neighbouring groups and the first half of the channels, in plain operations.

    The layers see their channels in our order: a layer between a permutation and its inverse is the same layer with
    permuted weights.
    """

    def layer(name: str, x: Tensor) -> Tensor:
        order = grouped_order(x.shape[1], group_size)
        return model.get_submodule(name)(x[:, order])[:, order.argsort()]

    def activation(x: Tensor) -> Tensor:
        if group_size == 1:
            return x.abs()
        return x.unflatten(1, (-1, group_size)).sort(2, descending=True).values.flatten(1, 2)

    x = torch.cat([x, x.new_zeros(len(x), model.config.channels - x.shape[1], *x.shape[2:])], 1)
    x = activation(layer("stem", x))
    for block in range(1, model.config.num_blocks + 1):
        for conv in range(1, 6):
            x = activation(layer(f"block{block}.conv{conv}", x))
        x = F.pixel_unshuffle(x[:, : x.shape[1] // 2], 2)
    return model.get_submodule("linear")(x.flatten(1))[:, : model.config.num_classes]


@pytest.mark.parametrize("activation", GROUPED)
@pytest.mark.parametrize("method", ["standard", "sll"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_network_is_the_papers_with_permuted_weights(method: str, activation: str, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    model = ConvNet(method, None, 7, 16, width=8, activation=activation, dtype=torch.float64)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(3, 3, 16, 16, dtype=torch.float64).contiguous(memory_format=layout)
    torch.testing.assert_close(model(x), papers_forward(model, x, model.config.group_size))


def test_half_of_the_signal_passes_a_block_of_identities() -> None:
    """Maxima and minima of half of the pairs have half of the energy of white noise; maxima alone would not."""
    torch.manual_seed(0)
    block = ConvNet("aol", None, 10, 8, width=16, init="identity").get_submodule("block1")
    x = torch.randn(64, 16, 8, 8, dtype=torch.float32)
    assert block(x).shape == (64, 32, 4, 4)
    pairs = torch.stack(x.chunk(2, 1)).sort(0, descending=True).values[:, :, :8]
    torch.testing.assert_close(
        block(x).flatten(1).sort(1).values, pairs[:, :, :4].movedim(0, 1).flatten(1).sort(1).values
    )


@pytest.mark.parametrize("method", [method.key for method in list_methods() if method.guarantee != "none"])
@pytest.mark.parametrize("activation", ["maxmin", "householder"])
def test_whole_network_is_1_lipschitz(method: str, activation: str) -> None:
    torch.manual_seed(0)
    model = ConvNet(method, None, 5, 8, width=4, activation=activation, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
    model.eval()
    for scale in (0.1, 10.0):
        x = scale * torch.randn(1, 3, 8, 8, dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(model, x).reshape(5, -1)
        assert torch.linalg.matrix_norm(jacobian, 2) <= 1 + 1e-9


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str) -> None:
    model = ConvNet("aol", None, 5, 8, width=8, activation=activation, dtype=torch.float64)
    assert model(torch.randn(2, 3, 8, 8, dtype=torch.float64)).shape == (2, 5)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


def test_options_reach_the_layers() -> None:
    model = ConvNet("aol", None, 5, 8, 5, in_channels=1, width=4, padding_mode="zeros", init="uniform")
    convs = [module for module in model.modules() if isinstance(module, LipschitzConv2d)]
    assert {conv.padding_mode for conv in convs} == {"zeros"}
    assert {layer.init for layer in model.modules() if isinstance(layer, LipschitzConv2d | LipschitzLinear)} == {
        "uniform"
    }
    assert model.input_shape == (1, 8, 8)
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 5)


def test_a_config_rebuilds_its_network() -> None:
    model = ConvNet("AOL", "xs", 10, activation="abs", device="meta")
    values = json.loads(json.dumps(asdict(model.config)))
    config = ConvNetConfig(**values)
    assert config == model.config
    assert (config.method, config.size) == ("aol", "XS")
    again = ConvNet.from_config(config, device="meta")
    assert [(n, p.shape) for n, p in again.named_parameters()] == [(n, p.shape) for n, p in model.named_parameters()]
    assert repr(again) == repr(model)


def test_copies_and_slices() -> None:
    model = ConvNet("aol", None, 5, 8, width=4)
    x = torch.randn(1, 3, 8, 8)
    clone = copy.deepcopy(model)
    assert clone.config == model.config
    assert torch.equal(clone(x), model(x))
    body = model[:-2]
    assert type(body) is nn.Sequential
    # Outside of the network layers keep to the memory format of their inputs, whose sums round otherwise.
    torch.testing.assert_close(model[-1](model[-2](body(x))), model(x))
    assert isinstance(model[-1], FirstChannels)
    assert isinstance(model.stem_activation, MaxMin)


def test_training_step_reaches_every_parameter() -> None:
    torch.manual_seed(0)
    model = ConvNet("aol", None, 5, 8, width=4, init="orthogonal")
    model(torch.randn(16, 3, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "classes", "size", "kernel_size"),
    [("cifar10-XS-aol", 10, 32, 3), ("cifar100-s-soc", 100, 32, 3), ("tiny-imagenet-m-lot-1x1", 200, 64, 1)],
)
def test_names(name: str, classes: int, size: int, kernel_size: int) -> None:
    with torch.device("meta"):
        config = create(name).config
    assert (config.num_classes, config.input_size, config.kernel_size) == (classes, size, kernel_size)
    assert f"{config.size}-{config.method}".lower() in name.lower()


@pytest.mark.parametrize(
    "name", ["mnist-xs-aol", "cifar10-xl-aol", "cifar10-xs-gan", "cifar10-xs", "", "cifar10-xs-aol-3x3", "cifar10"]
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        create(name)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in [repr(name), "cifar10, cifar100, tiny-imagenet", "xs, s, m, l", "aol, bcop"])


@pytest.mark.parametrize(("height", "width", "padded"), [(6, None, 8), (9, 5, 16)])
def test_images_of_any_size_are_extended_by_zeros(height: int, width: int | None, padded: int) -> None:
    """The network of the padded images, with the same weights: same scores, same certificates."""
    model = ConvNet("aol", None, 3, height, width=4, in_channels=1, input_width=width)
    square = ConvNet("aol", None, 3, padded, width=4, in_channels=1)
    square.load_state_dict(model.state_dict())
    assert model.input_shape == (1, height, width or height)
    x = torch.rand(2, *model.input_shape)
    framed = torch.zeros(2, 1, padded, padded)
    top, left = (padded - height) // 2, (padded - model.input_shape[2]) // 2
    framed[:, :, top : top + height, left : left + model.input_shape[2]] = x
    torch.testing.assert_close(model.eval()(x), square.eval()(framed))
    certificate, framed_certificate = certify(model, x), certify(square, framed)
    torch.testing.assert_close(certificate.radii, framed_certificate.radii, rtol=1e-4, atol=1e-6)
    assert ConvNetConfig(method="aol", size="XS", num_classes=3, input_size=224).channels == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gan"}, "there is no method 'gan', use one of "),
        ({"size": "XXL"}, "size='XXL' is not known, use one of XS, S, M, L"),
        ({"size": 8}, "size=8 is not known, use one of XS, S, M, L"),
        ({"size": None}, "pass either a size or a width"),
        ({"width": 8}, "pass either a size or a width"),
        ({"size": None, "width": 5}, "a width of 5 is not supported with maxmin, use a multiple of 4"),
        ({"size": None, "width": 4, "in_channels": 5}, "not below in_channels=5"),
        ({"size": None, "width": 4, "activation": "groupsort4"}, "use a multiple of 8"),
        ({"input_size": 5000}, "beyond 4096"),
        ({"input_width": 0}, "input_width=0 must be a positive integer"),
        ({"input_size": 32.0}, "input_size=32.0 must be a positive integer"),
        ({"num_classes": 513}, "num_classes=513 is not supported, this network has 1 to 512 outputs"),
        ({"num_classes": 0}, "num_classes=0 must be a positive integer"),
        ({"kernel_size": 0}, "kernel_size=0 must be"),
        ({"activation": "relu"}, "activation='relu' is not known, use one of maxmin, groupsort4, householder, abs"),
        ({"padding_mode": "reflect"}, "padding_mode='reflect' is not known"),
        ({"init": "magic"}, "init='magic' is not known"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ConvNet(**{"method": "aol", "size": "XS", "num_classes": 10, **options})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 1, 16, 16), (2, 3, 8, 8)], ids=["unbatched", "grey", "small"])
def test_what_is_no_batch_of_its_images_is_told_in_one_line(shape: tuple[int, ...]) -> None:
    network = ConvNet("aol", None, 10, 16, width=8).eval()
    with pytest.raises(InvalidInputError, match=r"\(batch, 3, 16, 16\)"):
        network(torch.zeros(shape))


@pytest.mark.parametrize("method", ["aol", "bcop", "bjorck", "cayley", "eco", "lot", "oni", "soc", "stiefel"])
def test_outputs_that_are_no_scores_are_not_computed_in_training(method: str) -> None:
    """A hook on the last layer sees all of its outputs; scores and gradients are the same with it and without."""
    torch.manual_seed(0)
    network = ConvNet(method, None, num_classes=2, input_size=8, width=8).train()
    images = torch.randn(4, 3, 8, 8)
    results, shapes = [], []
    last = network.linear
    assert isinstance(last, LipschitzLinear)
    for watched in (False, True):
        if watched:
            last.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
        network.zero_grad()
        scores = network(images)
        scores.square().sum().backward()
        results.append((scores.detach(), [p.grad.clone() for p in network.parameters() if p.grad is not None]))
    assert shapes == [(4, 64)]
    (scores, gradients), (expected, expected_gradients) = results
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert (gradient - other).norm() <= 1e-4 * other.norm() + 1e-7
    assert not last.sources
