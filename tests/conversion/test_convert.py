"""Ordinary models made 1-Lipschitz: the exact Jacobian, the list of changes, trained weights, refusals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from jacobians import norm_at
from plain_models import VGG, ResNet
from torch import Tensor, fx, nn
from torch.nn import functional as F

from onelip import OffsetCrossEntropy, certify, lipschitz_bound
from onelip.bench.data import load
from onelip.conversion import convert
from onelip.conversion.folding import fold_batch_norms
from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.layers import AOLConv2d, BatchCentering, ConvexSum, LipschitzConv2d, LOTConv2d, MaxMin


def moved(model: nn.Module, deviation: float = 0.5) -> nn.Module:
    """Some way from its start, as after training, with running statistics."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=deviation)
    with torch.no_grad():
        model.train()(torch.randn(8, 3, 32, 32))
    return model.eval().double()


@pytest.mark.parametrize(("network", "method"), [(ResNet, "bcop"), (ResNet, "aol"), (VGG, "lot"), (VGG, "soc")])
def test_a_converted_network_is_1_lipschitz(network: type[nn.Module], method: str) -> None:
    plain = network(width=4) if network is VGG else ResNet(4, blocks=(1, 1))
    converted = convert(plain, method)
    assert not converted.conversion.failures
    x = torch.rand(3, 32, 32, dtype=torch.float64)
    assert norm_at(moved(plain, 4.0), x) > 1
    assert norm_at(moved(converted), x) <= 1 + 1e-6


class TutorialNet(nn.Module):
    """The first convolutional network of torch's tutorials."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.pool, self.conv2 = nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 400)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


@pytest.mark.parametrize("method", ["bcop", "aol", "lot"])
def test_the_tutorials_network_runs_trains_and_stays_certified(method: str) -> None:
    """Its `view` needs the outputs of convolutions to be stored as those of torch."""
    torch.manual_seed(0)
    model, x = convert(TutorialNet(), method), torch.rand(4, 3, 32, 32)
    assert not model.conversion.failures
    F.cross_entropy(model.train()(x), torch.arange(4)).backward()
    torch.optim.SGD(model.parameters(), 1.0).step()
    assert lipschitz_bound(model.eval(), (3, 32, 32)) <= 1 + 1e-4
    assert norm_at(copy.deepcopy(model).double(), x[0].double()) <= 1 + 1e-6
    assert torch.equal(certify(model, x).predictions, model(x).argmax(1))


def test_a_converted_network_trains_and_certifies() -> None:
    """Two classes of noise that a few steps tell apart: every radius is that of the graph with its residual sums."""
    model = convert(ResNet(4, num_classes=2, blocks=(1, 1)), "aol")
    labels = torch.arange(16) % 2
    x = torch.randn(16, 3, 32, 32) + 2.0 * labels[:, None, None, None]
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(8):
        optimiser.zero_grad()
        F.cross_entropy(4 * model(x), labels).backward()
        optimiser.step()
    certificate = certify(model, x, labels)
    assert lipschitz_bound(model, (3, 32, 32)) <= 1 + 1e-4
    assert float(certificate.correct.double().mean()) > 0.9
    assert float(certificate.radii.min()) > 0
    # The attack: straight along the gradient of the margin, just within the radius.
    model.eval()
    points = x.clone().requires_grad_()
    scores = model(points)
    margin = (scores.amax(1) - scores.amin(1)).sum()
    (slope,) = torch.autograd.grad(margin, points)
    step = slope / slope.flatten(1).norm(dim=1)[:, None, None, None]
    moved_points = x - 0.999 * certificate.radii[:, None, None, None].float() * step
    assert torch.equal(model(moved_points).argmax(1), certificate.predictions)


@pytest.mark.parametrize(("network", "method"), [(ResNet, "aol"), (VGG, "bcop")])
def test_resnet_18_and_vgg_train_on_images_and_certify(network: type[nn.Module], method: str) -> None:
    torch.manual_seed(0)
    data = load("cifar10-mini")
    x, labels = data.train_images[:512] / 255 - 0.5, data.train_labels[:512]
    model = convert(network(8), method)
    assert not model.conversion.failures
    optimiser, loss = torch.optim.Adam(model.parameters(), 0.01), OffsetCrossEntropy(temperature=0.25)
    losses = []
    for step in range(16):
        part = slice(64 * step % 512, 64 * step % 512 + 64)
        optimiser.zero_grad()
        value = loss(model(x[part]), labels[part])
        value.backward()
        optimiser.step()
        losses.append(value.item())
    assert sum(losses[-4:]) < sum(losses[:4])
    certificate = certify(model, x[:32], labels[:32], arithmetic="float32")
    assert lipschitz_bound(model, (3, 32, 32)) <= 1 + 1e-4
    assert float(certificate.correct.double().mean()) > 0.15
    assert int(certificate.certified(0.01).sum()) > 0


def trained_norms(model: nn.Module) -> nn.Module:
    """Running statistics and scales as training leaves them."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias)
    with torch.no_grad():
        for _ in range(3):
            model.train()(torch.randn(8, 3, 32, 32))
    return model.eval()


@torch.no_grad()
def test_folded_batch_norms_are_gone_and_the_layers_start_from_what_they_computed() -> None:
    torch.manual_seed(0)
    plain = trained_norms(ResNet(4, blocks=(1, 1)))
    model = convert(plain, "lot", batch_norm="fold").eval()
    assert not any(isinstance(module, nn.BatchNorm2d | BatchCentering) for module in model.modules())
    assert "folded" in str(model.conversion)
    assert lipschitz_bound(model, (3, 32, 32)) <= 1 + 1e-4
    layer, conv, norm = (
        network.get_submodule(name) for network, name in ((model, "conv1"), (plain, "conv1"), (plain, "bn1"))
    )
    assert isinstance(layer, LOTConv2d)
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_var is not None
    assert norm.running_mean is not None
    assert layer.bias is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    expected = conv.weight * scale[:, None, None, None]
    kept = torch.cosine_similarity(layer.weight.flatten(), expected.flatten(), 0)
    assert float(kept) > 1 - 1e-6
    assert float(torch.cosine_similarity(layer.weight.flatten(), conv.weight.flatten(), 0)) < 0.999
    assert torch.allclose(layer.bias, norm.bias - norm.running_mean * scale, atol=1e-5)


def test_a_layer_whose_projection_leaves_no_signal_starts_anew() -> None:
    """AOL divides by sums of magnitudes, which leave little of a wide layer's trained weights."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1))
    x = torch.randn(4, 32, 8, 8)
    for method, anew in (("aol", True), ("lot", False)):
        model = convert(plain, method, input_shape=(32, 8, 8)).eval()
        assert ("of the signal would be left" in str(model.conversion)) == anew
        assert float((model(x) - model(0 * x)).detach().norm()) > 0.2 * float(x.norm())


def test_a_folded_network_is_the_trained_one() -> None:
    torch.manual_seed(0)
    plain = trained_norms(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()))
    folded = fx.symbolic_trace(copy.deepcopy(plain))
    assert list(fold_batch_norms(folded)) == ["0"]
    folded.recompile()
    x = torch.randn(2, 3, 32, 32)
    assert torch.allclose(folded(x), plain(x), atol=1e-4)


def test_a_batch_norm_without_a_layer_of_its_own_becomes_centering() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.conv, self.norm = nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(self.first(x))
            return self.norm(y) + y

    model = convert(trained_norms(Shared()), "aol", batch_norm="fold")
    assert isinstance(model.get_submodule("first"), BatchCentering)
    assert isinstance(model.get_submodule("norm"), BatchCentering)  # the sum reads what is not normalised
    with pytest.raises(InvalidInputError, match="center or fold"):
        convert(nn.Linear(2, 2), batch_norm="drop")  # pyright: ignore[reportArgumentType]


def test_the_original_is_untouched_and_names_stay() -> None:
    plain = ResNet(4, blocks=(1, 1))
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    converted = convert(plain, "aol")
    assert all(torch.equal(tensor, before[name]) for name, tensor in plain.state_dict().items())
    assert isinstance(converted.get_submodule("layers.1.0.conv1"), AOLConv2d)
    assert isinstance(converted.get_submodule("layers.1.0.relu"), MaxMin)


def test_every_change_is_listed_once_and_printed() -> None:
    conversion = convert(ResNet(4, blocks=(1, 1)), "bcop").conversion
    assert [change.path for change in conversion.changes].count("layers.0.0.relu") == 1  # used twice, converted once
    kinds = {change.before.split("(")[0]: change.after.split("(")[0] for change in conversion.changes}
    assert kinds["MaxPool2d"] == "ScaledMaxPool2d"
    assert kinds["BatchNorm2d"] == "BatchCentering"
    assert kinds["add"] == ConvexSum.__name__
    assert len(str(conversion).splitlines()) == len(conversion.changes) + 1


def test_the_shortcut_of_a_resnet_reads_all_pixels_where_its_method_is_orthogonal() -> None:
    plain = nn.Sequential(nn.Conv2d(2, 4, 1, stride=2, bias=False))
    for method, kernel in (("bcop", (2, 2)), ("aol", (1, 1))):
        converted = convert(plain, method)
        layer = converted.get_submodule("0")
        assert isinstance(layer, LipschitzConv2d)
        assert layer.kernel_size == kernel
        for size in ((6, 6), (7, 5)):
            assert converted(torch.randn(1, 2, *size)).shape == plain(torch.randn(1, 2, *size)).shape
    assert "reads all pixels" in convert(plain, "bcop").conversion.changes[0].note


@pytest.mark.parametrize("method", ["aol", "bcop", "cpl"])
def test_every_geometry_of_torch_converts(method: str) -> None:
    plain = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=2),
        nn.Conv2d(8, 8, (1, 3), padding="same", groups=8),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2),
        nn.Conv2d(8, 8, 4, stride=2, padding=1),
        nn.Conv2d(8, 4, 2, stride=2),
        nn.Conv2d(4, 4, 3),
    )
    x = torch.randn(2, 4, 16, 16)
    converted = convert(plain, method).eval()
    assert not converted.conversion.failures
    assert converted(x).shape == plain(x).shape
    assert lipschitz_bound(converted, (4, 16, 16)) <= 1 + 1e-4


def test_transposed_convolutions_and_those_of_signals_convert() -> None:
    image = nn.Sequential(nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1))
    signal = nn.Sequential(nn.Conv1d(2, 4, 5, stride=2, padding=2), nn.ReLU(), nn.Conv1d(4, 4, 3, padding="same"))
    for plain, shape in ((image, (4, 5, 6)), (signal, (2, 11))):
        converted = convert(plain, "lot").eval()
        assert not converted.conversion.failures
        assert converted(torch.randn(2, *shape)).shape == plain(torch.randn(2, *shape)).shape
        assert lipschitz_bound(converted, shape) <= 1 + 1e-4


@pytest.mark.parametrize("stride", [1, 2])
def test_trained_weights_of_groups_keep_their_directions(stride: int) -> None:
    """AOL multiplies each input channel of a kernel by a number, which is the same where all have one tap alike."""
    plain = nn.Conv2d(4, 4, 2, stride=stride, groups=2, bias=False)
    with torch.no_grad():
        plain.weight.zero_()[:, :, 0, 0] = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 2)
    x = torch.randn(2, 4, 6, 6)
    converted = convert(nn.Sequential(plain), "aol").eval()
    assert torch.allclose(converted(x), plain(x), atol=1e-5)


def test_orthogonal_trained_weights_are_kept_as_they_are() -> None:
    first, second = nn.Linear(8, 8), nn.Linear(8, 4)
    for linear in (first, second):
        nn.init.orthogonal_(linear.weight)
    plain = nn.Sequential(first, nn.ReLU(), second)
    x = torch.randn(5, 8)
    converted = convert(plain, "bcop", activation="keep").eval()
    assert torch.allclose(converted(x), plain(x), atol=1e-5)
    assert not torch.allclose(convert(plain, "bcop", "keep", keep_weights=False).eval()(x), plain(x), atol=0.1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.values, self.norm = nn.Linear(4, 4), nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.norm(x), -1) * self.values(x)


def test_what_cannot_be_converted_is_named() -> None:
    failures = convert(Attention(), "aol").conversion.failures
    assert {change.path for change in failures} == {"softmax", "mul"}
    unsupported = convert(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")), "aol").conversion
    assert "in place of reflect" in unsupported.changes[0].note


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_refusals_are_one_line() -> None:
    with pytest.raises(InvalidInputError, match="depends on values") as caught:
        convert(Branching())
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="maxmin"):
        convert(VGG(), activation="tanh")
    with pytest.raises(InvalidInputError, match="bcop"):
        convert(VGG(), "nothing")


class Gated(nn.Module):
    """What people write in a forward: pools, dropout, shapes, tokens, skips, gates."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.odd, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(11, 3, 1), nn.Linear(3, 4)
        self.token = nn.Parameter(torch.zeros(1, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(F.max_pool2d(F.silu(self.conv(x)), 3, 2, 1), 0.5, self.training)
        y = torch.cat([y, F.avg_pool2d(x, 2)], 1)
        y = F.relu(self.odd(y))
        y = F.adaptive_avg_pool2d(y, 1).flatten(1) * (y.shape[-1] // 2) ** -0.5
        y = y + self.token.expand(y.shape[0], -1)
        return self.fc(y + x.shape[1])


def test_functions_are_converted_as_the_modules_that_they_are() -> None:
    torch.manual_seed(0)
    plain = Gated()
    model = convert(plain, "bcop")
    assert not model.conversion.failures
    kinds = {change.before: change.after.split("(")[0] for change in model.conversion.changes}
    assert kinds["max_pool2d"] == "ScaledMaxPool2d"
    assert kinds["avg_pool2d"] == "ScaledAvgPool2d"
    assert kinds["adaptive_avg_pool2d"] == "ScaledAdaptiveAvgPool2d"
    assert kinds["cat"] == "ScaledConcat"
    assert kinds["silu"] == "MaxMin"
    assert kinds["relu"] == "Abs"  # three channels make no pairs
    assert "add" not in kinds  # a token and a number are no branches: nothing is halved
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    assert lipschitz_bound(model.double().eval(), (3, 8, 8)) <= 2**-0.5 * (1 + 1e-6)  # the number that it multiplies by
    assert torch.equal(model(x), model(x))  # dropout is off in evaluation
    assert not torch.equal(model.train()(x), model(x))


class OwnWeights(nn.Module):
    """Weights that no module of torch's holds, a buffer, and a layer of a class of its own."""

    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.matrix = nn.Parameter(torch.randn(4, 3, 3, 3)), nn.Parameter(torch.randn(4, 4))
        self.gain = nn.Parameter(torch.ones(4))
        self.register_buffer("deviation", torch.full((3, 1, 1), 2.0))
        self.inherited = Inherited(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x / self.deviation, self.kernel).flatten(2).amax(2)
        return F.linear(self.inherited(x), self.matrix) @ self.matrix.t() * (0.5 * self.gain)


class Inherited(nn.Linear):
    """Computes what torch's does."""


class Overridden(nn.Linear):
    """Computes something else."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + F.linear(input, self.weight)


def test_functions_with_weights_of_their_own_are_named() -> None:
    """Their constant is whatever training makes of it, so that they must not pass in silence; buffers are fixed."""
    changes = {change.before.split("(")[0]: change for change in convert(OwnWeights(), "aol").conversion.changes}
    assert {name for name, change in changes.items() if change.outcome == "not converted"} == {
        *("conv2d", "linear", "matmul")
    }
    assert "nn.Conv2d" in changes["conv2d"].note
    assert changes["mul"].after == "BoundedProduct()"
    assert changes["Inherited"].after.startswith("AOLLinear")


class _Weighted(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], *shape: int) -> None:
        super().__init__()
        self.function, self.weight, self.head = function, nn.Parameter(torch.rand(shape) / 8 + 0.1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.function(x, self.weight))


@pytest.mark.parametrize(
    ("function", "shape", "free"),
    [
        (torch.mm, (4, 4), False),
        (lambda x, weight: torch.addmm(weight[0], x, weight), (4, 4), False),
        (lambda x, weight: torch.tensordot(x, weight, 1), (4, 4), False),
        (torch.div, (4,), False),
        (F.prelu, (4,), False),
        (lambda x, weight: torch.lerp(x, x.flip(1), weight), (4,), False),
        (lambda x, weight: torch.addcmul(x, x, weight), (4,), False),
        (torch.sub, (4,), True),
        (torch.maximum, (4,), True),
        (lambda x, weight: x * torch.sigmoid(weight * x), (4,), True),
        (lambda x, weight: torch.cat([x, weight.expand(len(x), -1)], 1), (0,), True),
    ],
)
def test_what_training_would_stretch_is_a_failure(function: Any, shape: tuple[int, ...], free: bool) -> None:
    """A constant of 1 at the start does not last where it follows weights that are trained."""
    plain = _Weighted(function, *shape)
    start = plain.weight.detach().clone()
    model = convert(plain, "aol", input_shape=(4,))
    assert [change.note.partition(";")[0] for change in model.conversion.failures] == (
        [] if free else ["its weights are trained and not constrained"]
    )
    kept = [p for name, p in model.named_parameters() if name == "weight"]
    assert free or torch.equal(kept[0], start)


def test_subclasses_count_as_what_they_compute() -> None:
    changes = convert(nn.Sequential(Overridden(4, 4)), "aol").conversion.changes
    assert [change.before for change in changes if change.outcome == "not converted"] == ["linear", "linear"]
    normed = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    model = convert(nn.Sequential(normed), "aol")
    assert not model.conversion.failures
    assert type(model.get_submodule("0")).__name__ == "AOLLinear"


@pytest.mark.parametrize("layer", [nn.Linear(4, 4), nn.Conv2d(4, 4, 3, padding=1), Inherited(4, 4)])
def test_a_single_layer_converts(layer: nn.Module) -> None:
    model = convert(layer, "aol")
    assert [change.outcome for change in model.conversion.changes] == ["converted"]
    shape = (4,) if isinstance(layer, nn.Linear) else (4, 6, 6)
    assert lipschitz_bound(model, shape) <= 1 + 1e-6
    assert model(torch.randn(2, *shape)).shape == (2, *shape)


class Mixer(nn.Module):
    """Patches, then a perceptron over positions and one over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 6, 4, 4), nn.LayerNorm(6)
        self.positions = nn.Sequential(nn.Linear(9, 9), nn.GELU(), nn.Linear(9, 9))
        self.channels = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.positions(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return (x + self.channels(self.norm(x))).flatten(1)


def test_activations_sort_the_features_of_linear_layers() -> None:
    """The last dimension, (batch, positions, channels), and not the positions, of which there are nine."""
    model = convert(Mixer(), "bcop")
    assert not model.conversion.failures
    activation = model.get_submodule("channels.1")
    assert isinstance(activation, MaxMin)
    assert activation.dim == -1
    assert type(model.get_submodule("positions.1")).__name__ == "Abs"  # nine of them make no pairs
    x = torch.randn(3, 12, 12, dtype=torch.float64)
    assert norm_at(model.double().eval(), x) <= 1 + 1e-9


class Applied(nn.Module):
    """A layer and a function of what it returns."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


class Head(nn.Module):
    def __init__(self, attention: nn.Module | None = None) -> None:
        super().__init__()
        self.project, self.attention = nn.Linear(4, 12), attention

    def forward(self, x: Tensor) -> Tensor:
        if self.attention is not None:
            return self.attention(x, x, x)[0]
        q, k, v = self.project(x).chunk(3, -1)
        return ((q @ k.transpose(1, 2)) * k.shape[-1] ** -0.5).softmax(-1) @ v


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        (Head(), "mix positions by nn.Linear"),
        (Head(nn.MultiheadAttention(4, 2)), "mix positions by nn.Linear"),
        (nn.Sequential(nn.LSTM(4, 4)), "nn.Conv1d is converted"),
        (nn.Sequential(nn.Linear(4, 4), nn.RMSNorm(4)), "LayerCentering"),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)), "return the scores"),
        (Applied(lambda x: x.square().neg()), "its slope has no limit"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_converted_comes_with_advice(module: nn.Module, advice: str) -> None:
    failures = convert(module, "aol").conversion.failures
    assert failures
    assert any(advice in change.note for change in failures)
    assert not any("NoneType" in change.note for change in failures)


def test_slopes_of_prelu_are_taken_over_within_limits() -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.PReLU(4))
    with torch.no_grad():
        plain[1].get_parameter("weight").copy_(torch.tensor([2.0, 0.5, -3.0, 0.0]))
    kept = convert(plain, "aol", "keep").get_submodule("1")
    assert kept.get_parameter("weight").tolist() == [1.0, 0.5, -1.0, 0.0]
    assert isinstance(convert(plain, "aol").get_submodule("1"), MaxMin)


CERTIFIABLE: list[Callable[[Tensor], Tensor]] = [
    *(torch.relu, torch.neg, F.softplus, lambda x: x.flatten(1), lambda x: x.view(x.size(0), -1), lambda x: x + 1),
    *(lambda x: x.unsqueeze(1).mT, lambda x: x.to(x.dtype), lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)),
    *(lambda x: x.logsumexp(1, keepdim=True), lambda x: x.cumsum(1), lambda x: x.tanh()),
    *(lambda x: x - x.mean(1, keepdim=True), lambda x: x.sort(1)[0], lambda x: x.clone().add_(1), lambda x: x[:, :2]),
    *(lambda x: torch.einsum("bi->bi", x), lambda x: x.diff(), lambda x: x.masked_fill(torch.arange(4) > 2, 0.0)),
    *(lambda x: x * torch.sigmoid(x), lambda x: x / (1 + x.abs()), lambda x: torch.tanh(x) * torch.sigmoid(x)),
    *(lambda x: torch.sqrt(x**2 + 1), lambda x: torch.exp(-3 * x**2), lambda x: F.local_response_norm(x[:, None], 2)),
    lambda x: x.masked_fill(x > 0, 0.0),
]
NOT_CERTIFIABLE: list[Callable[[Tensor], Tensor]] = [
    *(torch.exp, torch.square, torch.sqrt, torch.round, torch.sign, torch.reciprocal, F.hardshrink, lambda x: x**2),
    *(lambda x: torch.where(x > 0, x, x - 1), lambda x: torch.einsum("bi,bj->bij", x, x)),
    lambda x: F.glu(x, 1),
]


@pytest.mark.parametrize(("functions", "free"), [(CERTIFIABLE, True), (NOT_CERTIFIABLE, False)])
def test_what_certificates_refuse_is_a_failure_and_nothing_else_is(functions: list[Any], free: bool) -> None:
    for function in functions:
        converted = convert(Applied(function).eval(), "aol")
        assert bool(converted.conversion.failures) != free, converted.conversion
        with nullcontext() if free else pytest.raises(UnknownLipschitzConstant):
            assert lipschitz_bound(converted, (4,)) <= 1 + 1e-6


class Shaped(nn.Module):
    """Shapes that decide, layers that `forward` puts together, an optional mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()])
        self.token, self.head = nn.Parameter(torch.randn(1, 4)), nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if x.shape[-1] % 2:
            raise ValueError("even sizes only")
        if mask is not None:
            x = x * mask
        count, channels, *_ = x.shape
        y = nn.Sequential(*self.layers)(x)
        y = {3: lambda z: z.mean(1), 4: lambda z: z.flatten(2).transpose(1, 2)[:, : z.size(1)]}[y.ndim](y)
        assert isinstance(y, Tensor)
        y = torch.cat([self.token.expand(count, 1, -1), y, torch.zeros(count, 1, channels + 1)], 1)
        return self.head(y[:, 0] + y[:, 1])


def test_what_depends_on_shapes_is_recorded_as_it_runs() -> None:
    """The graph runs for other batches and sizes, and in other types; a mask that is not given is not asked for."""
    plain = Shaped().eval()
    model = convert(plain, "aol", input_shape=(3, 8, 8)).eval()
    assert not model.conversion.failures
    assert model.conversion.shapes == "3x8x8"
    assert model(torch.randn(5, 3, 6, 6)).shape == (5, 4)
    assert lipschitz_bound(model.double(), (3, 8, 8)) <= 1 + 1e-6
    with pytest.raises(InvalidInputError, match="fails on inputs of 3x7x7: ValueError: even sizes only"):
        convert(plain, input_shape=(3, 7, 7))
    two = convert(plain, "aol", input_shape={"x": torch.randn(2, 3, 8, 8), "mask": torch.ones(2, 1, 8, 8)})
    assert "product of two" in two.conversion.failures[0].note


class ByLength(nn.Module):
    """Python makes a plain integer of `len(x)`."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.first, self.head = nn.Parameter(torch.randn(1, 4)), nn.Linear(12, 4), nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x.view(len(x), -1))
        return self.head(torch.cat([self.token.expand(len(y), -1), y, torch.zeros((len(x), 1))], 1))


def test_the_length_of_the_batch_is_a_size() -> None:
    model = convert(ByLength().eval(), input_shape=(3, 4)).eval()
    assert not model.conversion.failures
    assert model(torch.randn(5, 3, 4)).shape == (5, 3)
    certify(model, torch.randn(2, 3, 4))


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_weights_that_a_hook_computes_are_converted() -> None:
    layer = torch.nn.utils.weight_norm(nn.Linear(4, 4))
    layer(torch.zeros(1, 4))
    model = convert(nn.Sequential(layer), "aol")
    assert [change.outcome for change in model.conversion.changes] == ["converted"]
    assert not list(model.get_submodule("0")._forward_pre_hooks)


class Outside(nn.Module):
    """Computes with numbers that torch does not see."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tensor(x.untyped_storage().tolist()[0] + len(x))


def test_a_graph_that_is_another_function_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="numbers outside of torch"):
        convert(nn.Sequential(nn.Linear(4, 4), Outside()), "aol")


NORMS: list[Callable[[Tensor], Tensor]] = [
    lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
    lambda x: F.batch_norm(x, None, None, training=True),
    lambda x: F.layer_norm(x, x.shape[1:]),
    lambda x: F.group_norm(x, 2),
    F.instance_norm,
    *(nn.GroupNorm(2, 4), nn.GroupNorm(1, 4), nn.InstanceNorm2d(4), nn.InstanceNorm2d(4, affine=True)),
]
STRETCHING: list[Callable[[Tensor], Tensor]] = [
    lambda x: x - x.flip(1),
    lambda x: torch.stack([x, x], 1).flatten(1, 2),
    *(lambda x: x * 3, lambda x: x / torch.tensor(0.25), lambda x: x.repeat(1, 2, 1, 1), lambda x: x.sum((2, 3))),
    nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    *(nn.AvgPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(5, 1), nn.MaxPool2d(3, 2, 1, ceil_mode=True)),
    *(nn.MaxPool2d(3, 1, 1), nn.AdaptiveAvgPool2d((3, 4)), nn.Upsample(scale_factor=2), lambda x: x.mean((2, 3))),
    *(nn.MaxPool1d(3, 2), lambda x: F.avg_pool1d(x.flatten(2), 4)),
]


@pytest.mark.parametrize("functions", [NORMS, STRETCHING], ids=["norms", "stretching"])
def test_what_stretches_is_divided_by_its_constant(functions: list[Any]) -> None:
    """The exact Jacobian norm of every one is at most 1, and certificates know no more than that."""
    for function in functions:
        shape = (4, 6) if isinstance(function, nn.MaxPool1d) else (4, 6, 6)
        model = convert(_Function(function), "aol", input_shape=shape).eval().double()
        assert not model.conversion.failures, model.conversion
        assert norm_at(model, torch.randn(shape, dtype=torch.float64)) <= 1 + 1e-9
        assert 0.9 <= lipschitz_bound(model, shape) <= 1 + 1e-6


class _Function(nn.Module):
    """A function or a module as a model."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def test_layers_of_zeros_start_anew() -> None:
    head = nn.Linear(4, 4)
    nn.init.zeros_(head.weight)
    for method in ("aol", "lot", "bjorck", "cholesky", "oni", "spectral"):
        model = convert(nn.Sequential(head), method, input_shape=(4,))
        assert "weights are zero" in model.conversion.changes[0].note
        assert lipschitz_bound(model, (4,)) > 0.5


class _Cached(nn.Module):
    """Shapes from a cache, as einops has them, and a dictionary of outputs, as transformers returns it."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Linear(8, 8), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        features = self.features(x)
        return {"logits": self.head(features.reshape(_joined(tuple(features.shape)))), "features": features}


@lru_cache
def _joined(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[0], shape[1] * shape[2]


def test_cached_shapes_and_dictionaries_are_converted() -> None:
    plain = _Cached()
    for batch in range(1, 10):  # the cache knows the batch that the model is recorded with
        plain(torch.zeros(batch, 2, 8))
    for _ in range(2):
        model = convert(plain, "bjorck", input_shape=(2, 8))
        assert not model.conversion.failures, model.conversion
        assert model(torch.zeros(13, 2, 8))["logits"].shape == (13, 3)
        for output in ("logits", "features"):
            assert 0.9 <= lipschitz_bound(model, (2, 8), output=output) <= 1 + 1e-6
        assert certify(model, torch.rand(3, 2, 8), output="logits").radii.shape == (3,)


def test_sizes_of_layers_may_be_integers_of_numpy() -> None:
    norm = nn.BatchNorm2d(4)
    norm.num_features = np.int64(4)  # type: ignore[assignment]
    assert not convert(nn.Sequential(norm), "aol", input_shape=(4, 6, 6)).conversion.failures
