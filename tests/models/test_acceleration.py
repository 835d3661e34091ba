"""`onelip.accelerate`: any model, the same in every respect but the number of operations."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

import onelip
from onelip.layers import AOLConv2d, LOTConv2d, LOTLinear, MaxMin
from onelip.layers.layer import LipschitzLayer
from onelip.linalg.tensor_modes import traced_operations
from onelip.models import batch_parts


class OwnForward(nn.Module):
    """Two stages of equal layers, a layer that is used twice, and one that may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(LOTConv2d(4, 4, 3) for _ in range(3))
        self.second = nn.ModuleList(AOLConv2d(16, 16, 3) for _ in range(2))
        self.activation, self.extra, self.head = MaxMin(), AOLConv2d(16, 16, 3), LOTLinear(256, 5)
        self.with_extra = True

    def forward(self, x: Tensor) -> Tensor:
        for conv in (*self.first, self.first[0]):
            x = self.activation(conv(x))
        x = nn.functional.pixel_unshuffle(x, 2)
        for conv in (*self.second, *([self.extra] if self.with_extra else [])):
            x = self.activation(conv(x))
        return self.head(x.flatten(1))


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.conv2(torch.relu(self.conv1(x))))


def resnet() -> nn.Module:
    plain = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), Block(8), Block(8), nn.Flatten(), nn.Linear(512, 5))
    return onelip.convert(plain, "aol")


def images(batch: int = 3) -> Tensor:
    return torch.randn(batch, 4, 8, 8, generator=torch.Generator().manual_seed(1))


def stirred(make: object) -> nn.Module:
    torch.manual_seed(0)
    model = make()  # type: ignore[operator]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def outputs_and_gradients(model: nn.Module) -> list[Tensor]:
    model.zero_grad()
    y = model(images())
    (y * torch.linspace(0, 1, y.numel()).view_as(y)).sum().backward()
    return [y.detach(), *(parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None)]


def count_transformations(model: nn.Module, patch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    for kind in {type(module) for module in model.modules() if isinstance(module, LipschitzLayer)}:
        original = kind.transform_tensors

        def counted(self: nn.Module, tensors: object, size: object, original: object = original) -> object:
            calls.append(type(self).__name__)
            return original(self, tensors, size)  # type: ignore[operator]

        patch.setattr(kind, "transform_tensors", counted)
    return calls


@pytest.mark.parametrize("make", [OwnForward, resnet])
def test_training_is_the_same_with_fewer_transformations(make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    model = stirred(make)
    expected = outputs_and_gradients(model)
    assert onelip.accelerate(model) is model
    assert onelip.accelerate(model) is model  # a second time changes nothing
    torch.testing.assert_close(outputs_and_gradients(model), expected)  # the pass that finds the sizes
    calls = count_transformations(model, monkeypatch)
    torch.testing.assert_close(outputs_and_gradients(model), expected)
    together = len(calls)
    calls.clear()
    with traced_operations():
        model(images())
    assert together < len(calls)


def test_a_layer_that_is_left_out_is_not_transformed_again() -> None:
    model, plain = onelip.accelerate(stirred(OwnForward)), stirred(OwnForward)
    outputs_and_gradients(model)
    model.with_extra = plain.with_extra = False  # pyright: ignore[reportArgumentType]
    outputs_and_gradients(model)
    expected, actual = outputs_and_gradients(plain), outputs_and_gradients(model)
    assert model.get_parameter("extra.weight").grad is None
    torch.testing.assert_close(actual, expected)


def test_copies_pickles_and_states_are_those_of_the_model() -> None:
    model = onelip.accelerate(stirred(OwnForward))
    expected = outputs_and_gradients(model)
    assert model.state_dict().keys() == OwnForward().state_dict().keys()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1)  # the copy must not look at the original
        torch.testing.assert_close(outputs_and_gradients(other), expected)
        assert vars(other)["forward"].model is other


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images of eight channels at a time, four of four."""
    monkeypatch.setattr(batch_parts, "BYTES_AT_ONCE", 8 * 8 * 8 * 4 * 2)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("make", [OwnForward, resnet])
def test_evaluation_in_parts_is_the_same(make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    model = stirred(make).eval()
    x, parts = images(9), []
    with torch.no_grad():
        expected = model(x)
        onelip.accelerate(model)
        plain = type(model).forward

        def noted(self: nn.Module, x: Tensor) -> Tensor:
            parts.append(len(x))
            return plain(self, x)

        monkeypatch.setattr(type(model), "forward", noted)
        torch.testing.assert_close(model(x), expected)
        assert parts[0] == 9
        assert max(parts[1:]) < 9
        parts.clear()
        torch.testing.assert_close(model(x), expected)
        assert max(parts) < 9
    parts.clear()
    model(x.requires_grad_()).sum().backward()
    handle = next(model.children()).register_forward_hook(lambda *_: None)
    with torch.no_grad():
        model(x)
    handle.remove()
    assert parts == [9, 9]


@pytest.mark.usefixtures("small_parts")
def test_a_model_that_mixes_images_is_never_split() -> None:
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = AOLConv2d(4, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x - x.mean(0))

    model = Mixing().eval()
    with torch.no_grad():
        expected = model(images(9))
        onelip.accelerate(model)
        for _ in range(2):
            torch.testing.assert_close(model(images(9)), expected)


def test_certificates_and_compilers_see_the_model() -> None:
    model = stirred(OwnForward).eval()
    expected = onelip.certify(model, images())
    onelip.accelerate(model)
    actual = onelip.certify(model, images())
    assert torch.equal(torch.as_tensor(actual.radii), torch.as_tensor(expected.radii))


def test_what_cannot_be_accelerated_is_refused() -> None:
    with pytest.raises(onelip.InvalidInputError, match=r"torch\.nn\.Module"):
        onelip.accelerate(len)  # pyright: ignore[reportArgumentType]
    model = nn.Identity()
    model.forward = lambda x: x  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(onelip.InvalidInputError, match="forward of its own"):
        onelip.accelerate(model)
