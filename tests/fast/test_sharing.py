"""`onelip.shared_transforms`: the gradients of separate passes by one parameter transformation."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

import onelip
from onelip.fast.sharing import SharedOperators
from onelip.layers import MaxMin, MethodInfo, list_methods
from onelip.layers.layer import LipschitzLayer
from onelip.linalg.devices import pretend_device
from onelip.models import ConvNet

METHODS = [pytest.param(method, id=method.key) for method in list_methods()]
DOUBLE = torch.float64


def network(key: str) -> nn.Module:
    torch.manual_seed(0)
    return stirred(ConvNet(key, None, 3, input_size=8, width=4, dtype=DOUBLE))


def sequence(key: str) -> nn.Module:
    torch.manual_seed(0)
    convs = [onelip.create_conv(key, 3, 4, 3), MaxMin(), onelip.create_conv(key, 4, 4, 3)]
    return stirred(nn.Sequential(*convs, nn.Flatten(), onelip.create_linear(key, 256, 5)).to(DOUBLE))


def stirred(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter + 0.05 * torch.randn(parameter.shape, generator=generator, dtype=DOUBLE))
    return model.train()


def micro_batches(size: int = 8) -> tuple[Tensor, ...]:
    return torch.randn(6, 3, size, size, dtype=DOUBLE, generator=torch.Generator().manual_seed(1)).chunk(3)


def loss(y: Tensor) -> Tensor:
    return (y.logsumexp(1) - y[:, 0]).sum()


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    found = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


def separately(model: nn.Module, step: Callable[[Tensor], None]) -> dict[str, Tensor | None]:
    """Passes that all start from the same buffers, which move in training, and leave them so."""
    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for x in micro_batches():
        step(x)
        model.load_state_dict(state, strict=False)
    return gradients(model)


def together(model: nn.Module, step: Callable[[Tensor], None]) -> dict[str, Tensor | None]:
    with onelip.shared_transforms(model):
        for x in micro_batches():
            step(x)
    assert not any(layer.sources for layer in layers_of(model))
    return gradients(model)


def assert_equal(
    actual: dict[str, Tensor | None], expected: dict[str, Tensor | None], tolerance: float = 1e-11
) -> None:
    assert actual.keys() == expected.keys()
    for name, there in expected.items():
        here = actual[name]
        assert (here is None) == (there is None), name
        if here is not None and there is not None:
            assert (here - there).norm() <= tolerance * there.norm(), name


def layers_of(model: nn.Module) -> list[LipschitzLayer]:
    return [module for module in model.modules() if isinstance(module, LipschitzLayer)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the layers whose parameters are transformed, batches once."""
    found: list[str] = []
    original = LipschitzLayer.build

    def noted(self: LipschitzLayer, *args: object, **kwargs: object) -> object:
        found.append(type(self).__name__)
        return original(self, *args, **kwargs)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(LipschitzLayer, "build", noted)
    return found


@pytest.mark.parametrize("make", [network, sequence])
@pytest.mark.parametrize("method", METHODS)
def test_the_gradients_are_the_sum(method: MethodInfo, make: Callable[[str], nn.Module], calls: list[str]) -> None:
    model = make(method.key)
    step = lambda x: loss(model(x)).backward()  # noqa: E731
    expected = separately(model, step)
    calls.clear()
    model(micro_batches()[0])
    once = len(calls)
    model = make(method.key)
    calls.clear()
    assert_equal(together(model, step), expected)
    assert len(calls) == once or not method.conv.traits.transforms_parameters


@pytest.mark.parametrize("key", ["lot", "sandwich", "cpl"])
def test_the_forms_of_accelerators(key: str) -> None:
    model = network(key)
    step = lambda x: loss(model(x)).backward()  # noqa: E731
    with pretend_device("accelerator"):
        assert_equal(together(model, step), _expected(key), 1e-7)


def _expected(key: str) -> dict[str, Tensor | None]:
    model = network(key)
    return separately(model, lambda x: loss(model(x)).backward())


def test_an_estimate_moves_on_once() -> None:
    one, several = sequence("cpl"), sequence("cpl")
    one(micro_batches()[0])
    together(several, lambda x: loss(several(x)).backward())
    for (name, here), there in zip(several.named_buffers(), one.buffers(), strict=True):
        assert torch.equal(here, there), name


class Winding(nn.Module):
    """A layer used twice, one in evaluation mode, one left out at times, any image size."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.equal = nn.ModuleList(onelip.create_conv("lot", 3, 3, 3, dtype=DOUBLE) for _ in range(3))
        self.fixed = onelip.create_conv("bcop", 3, 3, 3, dtype=DOUBLE)
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.fixed.eval()
        self.passes += 1
        for layer in (self.equal[0], *([] if self.passes % 3 else [self.equal[1]]), self.fixed, self.equal[0]):
            x = layer(x[..., self.passes % 3 :])
        return x.flatten(1)


@pytest.mark.parametrize("accelerated", [False, True])
def test_layers_that_are_used_in_odd_ways(accelerated: bool, calls: list[str]) -> None:
    model, plain = stirred(Winding()), stirred(Winding())
    model = onelip.accelerate(model) if accelerated else model
    expected = separately(plain, lambda x: loss(plain(x)).backward())
    together(model, lambda x: loss(model(x)).backward())
    calls.clear()
    actual = together(model, lambda x: loss(model(x)).backward())
    assert len(calls) < 10
    assert_equal(actual, expected)
    assert actual["fixed.weight"] is actual["equal.2.weight"] is None


def test_passes_without_gradients_and_hooks_change_nothing() -> None:
    """A hook makes the network transform all rows of its last layer, a pass without it the scores alone."""
    model, seen = network("bcop"), []

    def step(x: Tensor) -> None:
        with torch.no_grad():
            model(x)
        loss(model(x)).backward()
        handle = list(model.children())[-2].register_forward_hook(lambda *found: seen.append(found[-1].shape[1]))
        with torch.no_grad():
            model(x)
        loss(model(x)).backward()
        handle.remove()

    expected = separately(model, step)
    assert_equal(together(model, step), expected, 1e-6)  # rows in float32 and in float64
    assert set(seen) == {32}


def test_second_derivatives_inside() -> None:
    model = sequence("cayley")

    def step(x: Tensor) -> None:
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(model(x)), x, create_graph=True)
        gradient.square().sum().backward()

    assert_equal(together(model, step), separately(model, step), 1e-9)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_inside(reentrant: bool, calls: list[str]) -> None:
    model = sequence("lot")

    def step(x: Tensor) -> None:
        x = x.clone().requires_grad_()
        loss(checkpoint(model, x, use_reentrant=reentrant)).backward()  # pyright: ignore[reportArgumentType]

    expected = separately(model, step)
    calls.clear()
    assert_equal(together(model, step), expected)
    assert len(calls) == 3 * (2 if reentrant else 1)  # the first reentrant pass has no gradients


def test_nothing_stays_in_memory() -> None:
    model, found = sequence("lot"), []
    gc.collect()
    gc.disable()
    try:
        with onelip.shared_transforms(model):
            loss(model(micro_batches()[0])).backward()
            for layer in layers_of(model):
                (shared,) = layer.sources
                assert isinstance(shared, SharedOperators)
                found.extend(weakref.ref(tensor) for pair in shared.pairs for tensor in pair)
        left = [reference() is not None for reference in found]
    finally:
        gc.enable()
    assert left == [False] * 6


def test_mixed_precision_with_a_scaler() -> None:
    model = sequence("lot").float()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def step(x: Tensor) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x.float())
        scaler.scale(loss(y.float())).backward()

    expected = separately(model, step)
    assert_equal(together(model, step), expected, 2e-2)  # sums of bfloat16
    with torch.autocast("cpu", torch.bfloat16), onelip.shared_transforms(model):
        step(micro_batches()[0])
    inside = gradients(model)
    with onelip.shared_transforms(model):
        step(micro_batches()[0])
    assert_equal(inside, gradients(model), 0)  # the end of the block is in float32, whatever is around it


def test_exact_transforms_are_others() -> None:
    model, x = sequence("lot").float(), micro_batches()[0].float()
    with onelip.shared_transforms(model):
        model(x)
        with onelip.exact_transforms():
            exact = model(x)
    with onelip.exact_transforms():
        assert torch.equal(exact, model(x))


def test_other_tensors_in_the_place_of_parameters_get_their_gradients() -> None:
    model, x = sequence("aol"), micro_batches()[0]
    values = {name: parameter.detach() for name, parameter in model.named_parameters()}
    function = lambda named: loss(functional_call(model, named, x))  # noqa: E731
    expected = torch.func.grad(function)(values)
    with onelip.shared_transforms(model):
        loss(model(x)).backward()
        assert_equal(dict(torch.func.grad(function)(values)), dict(expected))
        others = {name: nn.Parameter(value.clone()) for name, value in values.items()}
        function(others).backward()
        assert_equal({name: other.grad for name, other in others.items()}, dict(expected))
    assert_equal(gradients(model), dict(expected))


def test_fake_tensors_stay_among_themselves() -> None:
    model, x = sequence("aol"), micro_batches()[0]
    with onelip.shared_transforms(model):
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            model(mode.from_tensor(x))
        loss(model(x)).backward()
    assert gradients(model)["0.weight"] is not None


def test_copies_belong_to_no_block() -> None:
    model, x = sequence("aol"), micro_batches()[0]
    with onelip.shared_transforms(model):
        model(x)
        other = copy.deepcopy(model)
    loss(other(x)).backward()
    assert gradients(other)["0.weight"] is not None


def test_an_exception_leaves_the_gradients_of_before() -> None:
    model = sequence("aol")
    x, *_ = micro_batches()
    model[0].get_parameter("weight").grad = torch.ones_like(model[0].get_parameter("weight"))  # pyright: ignore

    def fail() -> None:
        with onelip.shared_transforms(model):
            loss(model(x)).backward()
            assert model.get_parameter("0.bias").grad is not None
            raise KeyError("stop")

    with pytest.raises(KeyError):
        fail()
    found = gradients(model)
    first = found.pop("0.weight")
    assert first is not None
    assert bool((first == 1).all())
    assert set(found.values()) == {None}
    assert not any(layer.sources for layer in layers_of(model))
    assert_equal(
        together(model, lambda x: loss(model(x)).backward()), separately(model, lambda x: loss(model(x)).backward())
    )


def _steps(model: nn.Module) -> None:
    torch.optim.SGD(model.parameters(), 0.1).step()


def _loads(model: nn.Module) -> None:
    model.load_state_dict({name: tensor + 0.1 for name, tensor in model.state_dict().items()})


def _writes(model: nn.Module) -> None:
    model.get_parameter("4.weight").data.mul_(0.5)


def _replaces(model: nn.Module) -> None:
    model.get_submodule("4").weight = nn.Parameter(model.get_parameter("4.weight").detach().clone())


@pytest.mark.parametrize("another_pass", [True, False])
@pytest.mark.parametrize("change", [_steps, _loads, _writes, _replaces])
def test_weights_that_change_inside_are_refused(change: Callable[[nn.Module], None], another_pass: bool) -> None:
    model = sequence("bcop")
    x, *_ = micro_batches()
    loss(model(x)).backward()

    def act() -> None:
        with onelip.shared_transforms(model):
            loss(model(x)).backward()
            change(model)
            if another_pass:
                loss(model(x)).backward()

    with pytest.raises(onelip.InvalidInputError, match="changed inside of shared_transforms") as caught:
        act()
    assert "\n" not in str(caught.value)


def test_what_comes_too_late_or_too_early_is_refused() -> None:
    model = sequence("bcop")
    x = micro_batches()[0].clone().requires_grad_()
    with onelip.shared_transforms(model):
        late = loss(model(x))
        weight = model.get_parameter("0.weight")
        with pytest.raises(RuntimeError, match="not have been used"):
            torch.autograd.grad(loss(model(x)), weight)
    assert torch.autograd.grad(late, x, retain_graph=True)[0].isfinite().all()
    with pytest.raises(onelip.InvalidInputError, match="inside of the block"):
        late.backward()


def test_blocks_within_blocks() -> None:
    model, other = sequence("aol"), sequence("aol")
    x, *_ = micro_batches()
    with onelip.shared_transforms(model), onelip.shared_transforms(other):
        loss(model(x) + other(x)).backward()
    assert gradients(model)["0.weight"] is not None
    assert gradients(other)["0.weight"] is not None
    part, refused = model.get_submodule("0"), pytest.raises(onelip.InvalidInputError, match="inside of")
    with onelip.shared_transforms(model), refused, onelip.shared_transforms(part):
        pass
    assert not any(layer.sources for layer in layers_of(model))


def test_compiled_models_are_refused_and_compiled_passes_are_right() -> None:
    model = sequence("aol")
    compiled = cast("nn.Module", torch.compile(model, backend="eager"))
    with pytest.raises(onelip.InvalidInputError, match="not compiled"), onelip.shared_transforms(compiled):
        pass
    expected = separately(model, lambda x: loss(model(x)).backward())
    assert_equal(together(model, lambda x: loss(compiled(x)).backward()), expected)
    model.compile(backend="eager")
    with pytest.raises(onelip.InvalidInputError, match="not compiled"), onelip.shared_transforms(model):
        pass


def test_what_cannot_be_shared_is_refused() -> None:
    with (
        pytest.raises(onelip.InvalidInputError, match=r"torch\.nn\.Module"),
        onelip.shared_transforms(cast("Any", len)),
    ):
        pass
