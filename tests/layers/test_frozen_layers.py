"""Layers whose weights get no gradient: transformed once in training, as in evaluation, until something changes."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import layer_contract
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

import onelip
from onelip.layers import MethodInfo, list_methods
from onelip.layers.layer import LipschitzLayer
from onelip.models import ConvNet

METHODS = [pytest.param(method, id=method.key) for method in list_methods()]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[LipschitzLayer]:
    """Layers whose parameters are transformed, one of each batch."""
    found: list[LipschitzLayer] = []
    original = LipschitzLayer.build

    def noted(self: LipschitzLayer, *args: object, **kwargs: object) -> object:
        found.append(self)
        return original(self, *args, **kwargs)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(LipschitzLayer, "build", noted)
    return found


def frozen(key: str, case: str = "circular", dtype: torch.dtype = torch.float32) -> LipschitzLayer:
    torch.manual_seed(0)
    layer = layer_contract.make(onelip.get_method(key), case, dtype).train()
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name == "bias")
    return layer


def image(case: str = "circular", dtype: torch.dtype = torch.float32) -> Tensor:
    return layer_contract.samples(case, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("case", ["circular", "linear"])
@pytest.mark.parametrize("method", METHODS)
def test_training_is_evaluation_with_one_transformation(
    method: MethodInfo, case: str, calls: list[LipschitzLayer]
) -> None:
    layer, x = frozen(method.key, case), image(case)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    optimizer = torch.optim.SGD([layer.get_parameter("bias")], 0.1)
    expected = layer.eval()(x)
    layer.train()
    calls.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the bias may learn
        for step in range(3):
            y = layer(x)
            assert step or torch.equal(y, expected)
            optimizer.zero_grad()
            (gradient,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
            assert gradient.norm() > 0
            y.square().sum().backward()
            optimizer.step()
    assert len(calls) == 1
    after = layer.state_dict()
    assert [name for name, tensor in before.items() if not torch.equal(tensor, after[name])] == ["bias"]


def _copied(layer: nn.Module) -> None:
    with torch.no_grad():
        layer.get_parameter("weight").mul_(-0.5)


def _through_data(layer: nn.Module) -> None:
    layer.get_parameter("weight").data.numpy()[...] *= -0.5


def _loaded(layer: nn.Module) -> None:
    layer.load_state_dict({name: -0.5 * tensor for name, tensor in layer.state_dict().items()})


def _trained_for_a_step(layer: nn.Module) -> None:
    weight = layer.get_parameter("weight").requires_grad_()
    layer(image()).square().sum().backward()
    torch.optim.SGD([weight], 0.3).step()
    weight.requires_grad_(False)


@pytest.mark.parametrize("change", [_copied, _through_data, _loaded, _trained_for_a_step])
def test_a_change_is_noticed(change: Callable[[nn.Module], None]) -> None:
    layer, x = frozen("lot"), image()
    with torch.no_grad():
        before = layer(x)
    change(layer)
    with torch.no_grad():
        after = layer(x)
        assert torch.equal(after, layer.eval()(x))
    assert not torch.allclose(after, before, atol=1e-3)


def test_a_layer_that_is_frozen_in_part_learns(calls: list[LipschitzLayer]) -> None:
    layer, x = frozen("cayley"), image()
    layer.get_parameter("alpha").requires_grad_()
    for _ in range(2):
        layer(x).square().sum().backward()
    assert len(calls) == 2
    assert layer.get_parameter("alpha").grad is not None


def test_other_tensors_in_the_place_of_parameters_get_their_gradients() -> None:
    layer, x = frozen("aol", dtype=torch.float64), image(dtype=torch.float64).detach()
    layer(x)
    other = {name: 2 * tensor.detach() + 0.1 for name, tensor in layer.named_parameters()}

    def function(named: dict[str, Tensor]) -> Tensor:
        return functional_call(layer, named, x).square().sum()

    leaves = {name: tensor.clone().requires_grad_() for name, tensor in other.items()}
    function(leaves).backward()
    for name, gradient in torch.func.grad(function)(other).items():
        torch.testing.assert_close(gradient, leaves[name].grad)
        assert gradient.norm() > 0
    both = torch.func.vmap(function)({name: torch.stack([tensor, -tensor]) for name, tensor in other.items()})
    expected = [function(other), function({name: -tensor for name, tensor in other.items()})]
    torch.testing.assert_close(both, torch.stack(expected))


def test_fake_tensors_leave_nothing_behind() -> None:
    layer, x = frozen("aol"), image().detach()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        layer(mode.from_tensor(x))
    assert type(layer(x)) is Tensor
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert layer(mode.from_tensor(x)).shape == x.shape


def test_compiled_training_sees_every_change() -> None:
    layer, x = frozen("aol"), image().detach()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), layer(x))
        _copied(layer)


@pytest.mark.parametrize("method", METHODS)
def test_a_network_transforms_what_learns(method: MethodInfo, calls: list[LipschitzLayer]) -> None:
    """One layer of a block learns, by the gradients that it has in a network that learns as a whole."""
    torch.manual_seed(0)
    net = ConvNet(method.key, None, 3, input_size=8, width=4, dtype=torch.float64).train()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    layers = [module for module in net.modules() if isinstance(module, LipschitzLayer)]
    learning = layers[2].get_parameter("weight")
    state = {name: buffer.clone() for name, buffer in net.named_buffers()}
    (expected,) = torch.autograd.grad(net(x).square().sum(), learning)
    net.load_state_dict(state, strict=False)
    net.requires_grad_(False)
    for parameter in layers[2].parameters():
        parameter.requires_grad_()
    with torch.no_grad():
        net(x)
    calls.clear()
    for _ in range(2):
        net(x).square().sum().backward()
    assert [id(layer) for layer in calls] == [id(layers[2])] * 2
    assert learning.grad is not None
    if not method.train_eval_difference:
        assert (learning.grad / 2 - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("key", ["bcop", "soc"])
def test_a_frozen_last_layer_gives_the_scores_of_evaluation(key: str, calls: list[LipschitzLayer]) -> None:
    """In training the network takes its first rows alone; a layer that is kept has all of them."""
    torch.manual_seed(0)
    net = ConvNet(key, None, 3, input_size=8, width=4).train()
    *_, head, _ = net.children()
    assert isinstance(head, LipschitzLayer)
    x, features = torch.randn(2, 3, 8, 8), []
    head.requires_grad_(False)
    for _ in range(2):
        net(x)
    assert sum(layer is head for layer in calls) == 1
    handle = head.register_forward_hook(lambda _, inputs, y: features.append((inputs[0], y)))
    scores = net(x)
    handle.remove()
    assert sum(layer is head for layer in calls) == 1
    assert features[0][1].shape[1] > 3
    torch.testing.assert_close(scores, features[0][1][:, :3])
    torch.testing.assert_close(net(x), scores)
    torch.testing.assert_close(head.eval()(features[0][0]), features[0][1])
