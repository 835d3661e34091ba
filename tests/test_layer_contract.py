"""The contract of every layer, over every registered method: a new method file is tested the moment it exists."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jacobians import distance_from_isometry, jacobian, norm_at
from torch import Tensor, nn

from onelip.layers import LipschitzLayer, MethodInfo, list_methods
from onelip.layers.shapes import ParametrisedLayer

METHODS = list_methods()
LIPSCHITZ = [method for method in METHODS if method.guarantee != "none"]
KINDS = ("conv", "linear")
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
IMAGE = (4, 5, 6)
FEATURES = (6,)

each_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.key)
each_lipschitz_method = pytest.mark.parametrize("method", LIPSCHITZ, ids=lambda m: m.key)
each_kind = pytest.mark.parametrize("kind", KINDS)


def make(method: MethodInfo, kind: str, dtype: torch.dtype = torch.float64) -> ParametrisedLayer:
    """A small square layer with random parameters: initial values alone may be special, such as the identity."""
    layer = method.conv(4, 4, 3, dtype=dtype) if kind == "conv" else method.linear_layer(6, 6, dtype=dtype)
    perturb(layer)
    return layer


def perturb(layer: nn.Module, size: float = 0.3) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(size * torch.randn_like(parameter))


def sample(kind: str, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(IMAGE if kind == "conv" else FEATURES, dtype=dtype)


def assert_one_lipschitz(layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, points: int = 2) -> None:
    """Jacobian norm at several points, and distances of random pairs far and near."""
    limit = 1 + TOLERANCE[dtype]
    for scale in (0.1, 3.0)[:points]:
        x = scale * torch.randn(shape, dtype=dtype)
        assert norm_at(layer, x) <= limit
        pair = torch.stack([x, x + scale * torch.randn_like(x)]).detach()
        image = layer(pair).detach().double()
        rounding = 4 * torch.finfo(dtype).eps * image.norm()  # a large bias leaves few digits for the difference
        assert (image[0] - image[1]).norm() <= limit * (pair[0] - pair[1]).double().norm() + rounding


@each_kind
@each_lipschitz_method
class TestNorm:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
    def test_fresh(self, method: MethodInfo, kind: str, dtype: torch.dtype) -> None:
        layer = method.conv(4, 4, 3, dtype=dtype) if kind == "conv" else method.linear_layer(6, 6, dtype=dtype)
        assert_one_lipschitz(layer.eval(), tuple(sample(kind).shape), dtype)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
    def test_after_large_steps_reload_and_conversion(self, method: MethodInfo, kind: str, dtype: torch.dtype) -> None:
        layer = make(method, kind, dtype)
        optimiser = torch.optim.SGD(layer.parameters(), lr=10.0)
        for _ in range(3):
            batch = torch.stack([sample(kind, dtype) for _ in range(4)])
            optimiser.zero_grad()
            (layer(batch) - torch.randn_like(batch)).square().mean().backward()
            optimiser.step()
        shape = tuple(sample(kind).shape)
        assert_one_lipschitz(layer.eval(), shape, dtype)
        fresh = make(method, kind, dtype)
        fresh.load_state_dict(layer.state_dict())
        assert_one_lipschitz(fresh.eval(), shape, dtype)
        x = sample(kind, dtype)[None]
        assert torch.equal(fresh(x), layer(x))
        other = torch.float32 if dtype == torch.float64 else torch.float64
        assert_one_lipschitz(layer.to(other), shape, other)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
    @pytest.mark.parametrize("scale", [1e-12, 0.0, 1e12])
    def test_extreme_weights(self, method: MethodInfo, kind: str, scale: float, dtype: torch.dtype) -> None:
        layer = make(method, kind, dtype)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(scale)
        for training in (False, True):
            layer.train(training)
            x = torch.stack([sample(kind, dtype) for _ in range(2)])
            assert layer(x).isfinite().all()
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)  # a bias of 1e12 leaves no digits for the rest of the output
        assert_one_lipschitz(layer.eval(), tuple(sample(kind).shape), dtype)

    def test_training_mode(self, method: MethodInfo, kind: str) -> None:
        if method.train_eval_difference:
            pytest.skip(method.train_eval_difference)
        assert_one_lipschitz(make(method, kind), tuple(sample(kind).shape), torch.float64)


@each_lipschitz_method
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_norm_for_drawn_shapes(method: MethodInfo, data: st.DataObject) -> None:
    channels = st.integers(1, 4)
    side = st.integers(1, 5)
    in_channels, out_channels = data.draw(channels, "in"), data.draw(channels, "out")
    kernel, stride = data.draw(st.sampled_from([1, 3, 5, 7]), "kernel"), data.draw(st.sampled_from([1, 2]), "stride")
    mode = data.draw(st.sampled_from(method.conv.padding_modes), "padding_mode")
    height, width = data.draw(side, "height"), data.draw(side, "width")
    bias = data.draw(st.booleans(), "bias")
    layer = method.conv(
        in_channels, out_channels, kernel, stride, padding_mode=mode, bias=bias, dtype=torch.float64
    ).eval()
    perturb(layer)
    assert_one_lipschitz(layer, (in_channels, height, width), torch.float64, points=1)
    y = layer(torch.randn(2, in_channels, height, width, dtype=torch.float64))
    assert y.shape == (2, out_channels, -(-height // stride), -(-width // stride))


@each_lipschitz_method
@settings(max_examples=8)
@given(inputs=st.integers(1, 7), outputs=st.integers(1, 7), bias=st.booleans())
def test_linear_norm_for_drawn_shapes(method: MethodInfo, inputs: int, outputs: int, bias: bool) -> None:
    layer = method.linear_layer(inputs, outputs, bias, dtype=torch.float64).eval()
    perturb(layer)
    assert_one_lipschitz(layer, (inputs,), torch.float64)
    assert layer(torch.zeros(2, 3, inputs, dtype=torch.float64)).shape == (2, 3, outputs)


@pytest.mark.parametrize("method", [m for m in LIPSCHITZ if m.guarantee == "orthogonal"], ids=lambda m: m.key)
@each_kind
def test_orthogonal_after_training_in_float32(method: MethodInfo, kind: str) -> None:
    layer = method.conv(4, 4, 3) if kind == "conv" else method.linear_layer(6, 6)
    shape = (4, 6, 6) if kind == "conv" else FEATURES  # ECO is orthogonal where its kernel side divides the image's
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        batch = torch.randn(8, *shape)
        optimiser.zero_grad()
        (layer(batch) - torch.randn_like(batch)).square().mean().backward()
        optimiser.step()
    assert distance_from_isometry(jacobian(layer.eval(), torch.randn(shape))) <= 1e-4


@each_kind
@each_method
class TestGradients:
    def test_every_parameter_learns(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind)
        x = torch.stack([sample(kind) for _ in range(4)])
        (layer(x) * torch.randn_like(x)).sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 0, name

    def test_gradcheck(self, method: MethodInfo, kind: str) -> None:
        layer = method.conv(2, 2, 3, dtype=torch.float64) if kind == "conv" else make(method, kind)
        perturb(layer)
        layer.eval()
        names = [name for name, _ in layer.named_parameters()]
        values = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
        shape = (1, 2, 3, 4) if kind == "conv" else (1, *FEATURES)
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)

        def function(x: Tensor, *parameters: Tensor) -> Tensor:
            return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

        assert torch.autograd.gradcheck(function, (x, *values))

    def test_training_equals_evaluation(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind)
        x = torch.stack([sample(kind) for _ in range(2)])
        trained = layer.train()(x)
        evaluated = layer.eval()(x)
        if method.train_eval_difference:
            assert torch.allclose(trained, evaluated, atol=0.3), method.train_eval_difference
        else:
            assert torch.allclose(trained, evaluated, atol=1e-14)


@each_kind
@each_method
class TestCache:
    def test_never_stale(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind).eval()
        x = sample(kind)[None]

        def assert_fresh() -> None:
            expected = copy.deepcopy(layer)(x)
            assert torch.equal(layer(x), expected)

        layer(x)
        weight = layer.weight
        with torch.no_grad():
            weight.add_(torch.randn_like(weight))
        assert_fresh()
        weight.data = torch.randn_like(weight)
        assert_fresh()
        layer.weight = nn.Parameter(torch.randn_like(weight))
        assert_fresh()
        other = make(method, kind)
        layer.load_state_dict(other.state_dict())
        assert torch.equal(layer(x), other.eval()(x))

    def test_is_used_and_stays_out_of_the_state(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind).eval()
        x = sample(kind)[None]
        keys = set(layer.state_dict())
        with torch.inference_mode():
            layer(x)
        first = layer.transformed(IMAGE[1:])
        assert layer.transformed(IMAGE[1:]) is first
        assert set(layer.state_dict()) == keys
        assert all(not tensor.is_inference() for tensor in first.values())
        assert layer.train().transformed(IMAGE[1:]) is not first
        layer(x).sum().backward()  # what was computed in inference mode must not reach the training graph

    def test_step_between_evaluations(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind)
        x = torch.stack([sample(kind) for _ in range(2)])
        before = layer.eval()(x)
        optimiser = torch.optim.SGD(layer.parameters(), lr=1.0)
        (layer.train()(x) * torch.randn_like(x)).sum().backward()
        optimiser.step()
        after = layer.eval()(x)
        assert not torch.equal(before, after)
        assert torch.equal(after, copy.deepcopy(layer)(x))

    def test_size_may_change_between_calls(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind).eval()
        for size in [(5, 6), (3, 3), (1, 7), (5, 6), (2, 2), (8, 8), (4, 9), (5, 6)]:
            x = torch.randn(1, 4, *size, dtype=torch.float64) if kind == "conv" else sample(kind)[None]
            assert torch.equal(layer(x), copy.deepcopy(layer)(x))

    def test_copies_and_saves(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind).eval()
        x = sample(kind)[None]
        expected = layer(x)
        assert torch.equal(copy.deepcopy(layer)(x), expected)
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        assert torch.equal(torch.load(buffer, weights_only=False)(x), expected)


@each_kind
@each_method
class TestTransformations:
    def test_forward_is_transform_then_apply(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind).eval()
        x = sample(kind)[None]
        assert torch.equal(layer(x), layer.apply_to(x, layer.transform(IMAGE[1:])))

    def test_equal_layers_transform_as_one_batch(self, method: MethodInfo, kind: str) -> None:
        layers = [make(method, kind) for _ in range(3)]
        size = layers[0].core_size(IMAGE[1:])
        tensors = [layer.tensors_to_transform() for layer in layers]
        stacked = {name: torch.stack([t[name] for t in tensors]) for name in tensors[0]}
        together = layers[0].transform_tensors(stacked, size)
        for index, layer in enumerate(layers):
            alone = layer.transform_tensors(tensors[index], size)
            assert alone.keys() == together.keys()
            for name, tensor in alone.items():
                assert torch.allclose(together[name][index], tensor, atol=1e-12), name

    def test_autocast_concerns_the_input_transformation_only(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind, torch.float32).eval()
        x = sample(kind, torch.float32)[None]
        plain = layer.transform(IMAGE[1:])
        with torch.autocast("cpu", torch.bfloat16):
            inside = layer.transform(IMAGE[1:])
            y = layer(x).detach()
        for name, tensor in plain.items():
            assert torch.equal(inside[name], tensor)
        expected = layer(x).detach()
        assert torch.allclose(y.float(), expected, atol=0.05 * float(expected.abs().max()))

    def test_linear_methods_are_affine(self, method: MethodInfo, kind: str) -> None:
        if not method.linear:
            pytest.skip("not linear by design")
        layer = make(method, kind).eval()
        x, y = sample(kind)[None], sample(kind)[None]
        assert torch.allclose(layer(x + y) + layer(torch.zeros_like(x)), layer(x) + layer(y), atol=1e-12)

    def test_half_precision_parameters(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind, torch.float32).to(torch.bfloat16).eval()
        y = layer(sample(kind, torch.bfloat16)[None])
        assert y.dtype == torch.bfloat16
        assert y.isfinite().all()

    def test_meta_device(self, method: MethodInfo, kind: str) -> None:
        with torch.device("meta"):
            layer = method.conv(4, 6, 3, stride=2) if kind == "conv" else method.linear_layer(6, 5)
            y = layer(torch.empty(2, *(IMAGE if kind == "conv" else FEATURES)))
        assert y.device.type == "meta"
        assert y.shape == ((2, 6, 3, 3) if kind == "conv" else (2, 5))


@each_kind
@each_method
class TestCompilers:
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    def test_compiles_as_one_graph(self, method: MethodInfo, kind: str, training: bool) -> None:
        torch.compiler.reset()
        layer = make(method, kind).train(training)
        twin = copy.deepcopy(layer)
        x = torch.stack([sample(kind) for _ in range(2)])
        y = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
        expected = twin(x)
        assert torch.allclose(y, expected, atol=1e-12)
        if training:
            weights = torch.randn_like(y)
            (y * weights).sum().backward()
            (expected * weights).sum().backward()
            for (name, got), wanted in zip(layer.named_parameters(), twin.parameters(), strict=True):
                assert got.grad is not None, name
                assert wanted.grad is not None, name
                assert torch.allclose(got.grad, wanted.grad, atol=1e-10), name

    def test_exports(self, method: MethodInfo, kind: str) -> None:
        layer = make(method, kind).eval()
        x = torch.stack([sample(kind) for _ in range(2)])
        program = torch.export.export(layer, (x,))
        assert torch.allclose(program.module()(x), layer(x), atol=1e-12)


@each_method
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"kernel_size": 2}, "odd"),
        ({"kernel_size": (3, 5)}, "equal"),
        ({"stride": 0}, "positive"),
        ({"stride": (1, 2)}, "equal"),
        ({"padding": 0}, "same"),
        ({"padding": "valid"}, "same"),
        ({"dilation": 2}, "use 1"),
        ({"groups": 2}, "use 1"),
        ({"padding_mode": "reflect"}, "circular"),
        ({"padding_mode": "replicate"}, "circular"),
        ({"init": "magic"}, "auto"),
        ({"in_channels": 0}, "positive"),
        ({"out_channels": -1}, "positive"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_unsupported_arguments_raise(method: MethodInfo, options: dict[str, object], word: str) -> None:
    arguments = {"in_channels": 4, "out_channels": 4, "kernel_size": 3, **options}
    with pytest.raises(ValueError, match=word) as caught:
        method.conv(**arguments)  # pyright: ignore[reportArgumentType]
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
    assert torch.allclose(layer(x[0]), layer(x)[0], atol=1e-6)


@each_method
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_every_initialisation_works(method: MethodInfo, kernel: int) -> None:
    for init in method.conv.initialisations:
        layer = method.conv(4, 4, kernel, init=init)
        assert all(parameter.isfinite().all() for parameter in layer.parameters())
        assert layer(torch.randn(1, 4, 4, 4)).isfinite().all()
    for init in method.linear_layer.initialisations:
        assert method.linear_layer(4, 4, init=init)(torch.randn(1, 4)).isfinite().all()


@each_method
@pytest.mark.parametrize(
    ("in_channels", "out_channels", "kernel", "stride", "size"),
    [(4, 4, 3, 1, (6, 6)), (3, 5, 3, 2, (6, 8)), (5, 2, 5, 2, (7, 5)), (2, 3, 7, 1, (2, 3)), (4, 4, 1, 1, (4, 4))],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_fused_layers_give_the_same(
    method: MethodInfo,
    in_channels: int,
    out_channels: int,
    kernel: int,
    stride: int,
    size: tuple[int, int],
    dtype: torch.dtype,
) -> None:
    for mode in method.conv.padding_modes:
        layer = method.conv(in_channels, out_channels, kernel, stride, padding_mode=mode, dtype=dtype).eval()
        perturb(layer)
        x = torch.randn(2, in_channels, *size, dtype=dtype)
        fused = layer.fuse(size)
        assert not any(isinstance(module, LipschitzLayer) for module in fused.modules())
        assert torch.allclose(fused(x), layer(x), atol=1e-5 if dtype == torch.float32 else 1e-12)


@each_method
def test_fused_linear_layers_give_the_same(method: MethodInfo) -> None:
    for inputs, outputs in [(4, 4), (3, 5), (5, 2)]:
        layer = method.linear_layer(inputs, outputs, dtype=torch.float64).eval()
        perturb(layer)
        x = torch.randn(3, inputs, dtype=torch.float64)
        assert torch.allclose(layer.fuse()(x), layer(x), atol=1e-12)


@pytest.mark.parametrize("key", ["standard", "aol", "bcop", "bjorck", "oni", "eco"])
def test_small_kernels_fuse_to_plain_torch_modules(key: str) -> None:
    method = next(method for method in METHODS if method.key == key)
    assert type(method.conv(4, 4, 3).fuse((6, 6))) is nn.Conv2d
    assert type(method.linear_layer(4, 3).fuse()) is nn.Linear
