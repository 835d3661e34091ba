"""The contract of every layer, over every registered method: a new method file is tested the moment it exists."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jacobians import distance_from_isometry, jacobian, norm_at
from torch import Tensor, nn

from onelip.layers import LipschitzLayer, MethodInfo, list_methods
from onelip.layers.base import transform_layers
from onelip.layers.shapes import ParametrisedLayer
from onelip.layers.spectral_conv import CheapestFormConv2d

METHODS = list_methods()
LIPSCHITZ = [method for method in METHODS if method.guarantee != "none"]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
FEATURES = (6,)
CONVS: dict[str, dict[str, Any]] = {
    "circular": {"kernel_size": 3},
    "zeros": {"kernel_size": 3, "padding_mode": "zeros"},
    "strided": {"kernel_size": 3, "stride": 2},
    "frequencies": {"kernel_size": 7},  # so many taps that the product per frequency is cheaper
    "square": {"kernel_size": 7},  # the same on square images, whose frequencies have a form of their own
}


def image_size(case: str) -> tuple[int, int]:
    """Height and width of the images of a case."""
    return (4, 4) if case == "square" else (5, 6)


def gradcheck_size(case: str) -> tuple[int, int]:
    """The smallest images that show all of a case."""
    return {"strided": (5, 4), "square": (4, 4)}.get(case, (3, 4))


def supports(method: MethodInfo, case: str) -> bool:
    """Whether a method has this case: "frequencies" is for the methods that choose between two forms."""
    if case == "frequencies":
        return issubclass(method.conv, CheapestFormConv2d)
    return case == "linear" or CONVS[case].get("padding_mode", "circular") in method.conv.padding_modes


def over(methods: list[MethodInfo], *cases: str) -> pytest.MarkDecorator:
    """Every method in each of the cases that it has."""
    pairs = [(method, case) for method in methods for case in cases if supports(method, case)]
    return pytest.mark.parametrize(("method", "case"), [pytest.param(m, c, id=f"{m.key}-{c}") for m, c in pairs])


each_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.key)
each_lipschitz_method = pytest.mark.parametrize("method", LIPSCHITZ, ids=lambda m: m.key)
each_kind = over(METHODS, "circular", "linear")
each_case = over(METHODS, *CONVS, "linear")
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


def fresh(method: MethodInfo, case: str, dtype: torch.dtype = torch.float64, channels: int = 4) -> ParametrisedLayer:
    if case == "linear":
        return method.linear_layer(*FEATURES, *FEATURES, dtype=dtype)
    return method.conv(channels, channels, **CONVS[case], dtype=dtype)


def make(method: MethodInfo, case: str, dtype: torch.dtype = torch.float64, channels: int = 4) -> ParametrisedLayer:
    """A small layer with random parameters: initial values alone may be special, such as the identity."""
    layer = fresh(method, case, dtype, channels)
    perturb(layer)
    return layer


def perturb(layer: nn.Module, size: float = 0.3) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(size * torch.randn_like(parameter))


def samples(case: str, count: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(count, *(FEATURES if case == "linear" else (4, *image_size(case))), dtype=dtype)


def may_differ(method: MethodInfo, layer: nn.Module) -> bool:
    """Whether MethodInfo declares that this layer trains and evaluates differently; SOC does for its series only."""
    if "algorithm='series'" in method.train_eval_difference:
        return getattr(layer, "algorithm", None) == "series"
    return bool(method.train_eval_difference)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Equal up to an absolute error: torch.allclose alone would allow a relative one of 1e-5 too."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def assert_one_lipschitz(
    method: MethodInfo, layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, points: int = 20, pairs: int = 100
) -> None:
    """Jacobian norms at points of all sizes, and distances of random pairs far and near.

    An affine layer has one Jacobian: there two points and pairs suffice.
    """
    points, pairs = (2, 2) if method.linear else (points, pairs)
    limit = 1 + TOLERANCE[dtype]
    for scale in torch.logspace(-1, 0.5, points).tolist():
        assert norm_at(layer, scale * torch.randn(shape, dtype=dtype)) <= limit
    scales = torch.logspace(-1, 0.5, pairs, dtype=dtype).reshape(-1, *[1] * len(shape))
    x = scales * torch.randn(pairs, *shape, dtype=dtype)
    near = x + scales.flip(0) * torch.randn_like(x)
    images = [layer(each).detach().double().flatten(1) for each in (x, near)]
    rounding = 4 * torch.finfo(dtype).eps * torch.cat(images, 1).norm(dim=1)  # a large bias leaves few digits
    distances = (x - near).double().flatten(1).norm(dim=1)
    assert ((images[0] - images[1]).norm(dim=1) <= limit * distances + rounding).all()


@over(LIPSCHITZ, "circular", "square", "linear")
class TestNorm:
    @each_dtype
    def test_fresh(self, method: MethodInfo, case: str, dtype: torch.dtype) -> None:
        assert_one_lipschitz(method, fresh(method, case, dtype).eval(), tuple(samples(case)[0].shape), dtype)

    @each_dtype
    def test_after_large_steps_reload_and_conversion(self, method: MethodInfo, case: str, dtype: torch.dtype) -> None:
        layer = make(method, case, dtype)
        optimiser = torch.optim.SGD(layer.parameters(), lr=10.0)
        for _ in range(3):
            batch = samples(case, 4, dtype)
            optimiser.zero_grad()
            (layer(batch) - torch.randn_like(batch)).square().mean().backward()
            optimiser.step()
        x = samples(case, 4, dtype)
        shape = tuple(x[0].shape)
        assert_one_lipschitz(method, layer.eval(), shape, dtype)
        reloaded = make(method, case, dtype)
        reloaded.load_state_dict(layer.state_dict())
        assert_one_lipschitz(method, reloaded.eval(), shape, dtype)
        assert torch.equal(reloaded(x), layer(x))
        other = torch.float32 if dtype == torch.float64 else torch.float64
        assert_one_lipschitz(method, layer.to(other), shape, other)

    @each_dtype
    @pytest.mark.parametrize("scale", [1e-12, 0.0, 1e12])
    def test_extreme_weights(self, method: MethodInfo, case: str, scale: float, dtype: torch.dtype) -> None:
        layer = make(method, case, dtype)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(scale)
        x = samples(case, 2, dtype)
        for training in (False, True):
            assert layer.train(training)(x).isfinite().all()
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)  # a bias of 1e12 leaves no digits for the rest of the output
        assert_one_lipschitz(method, layer.eval(), tuple(x[0].shape), dtype)

    def test_training_mode(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case)
        if may_differ(method, layer):
            pytest.skip(method.train_eval_difference)
        assert_one_lipschitz(method, layer, tuple(samples(case)[0].shape), torch.float64)


@each_lipschitz_method
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_norm_for_drawn_shapes(method: MethodInfo, data: st.DataObject) -> None:
    channels = st.integers(1, 4)
    side = st.integers(1, 5)
    in_channels, out_channels = data.draw(channels, "in"), data.draw(channels, "out")
    kernel, stride = data.draw(st.sampled_from([1, 3, 5, 7]), "kernel"), data.draw(st.integers(1, 3), "stride")
    mode = data.draw(st.sampled_from(method.conv.padding_modes), "padding_mode")
    height, width = data.draw(side, "height"), data.draw(side, "width")
    bias, dtype = data.draw(st.booleans(), "bias"), data.draw(st.sampled_from([torch.float64, torch.float32]), "dtype")
    layer = method.conv(in_channels, out_channels, kernel, stride, padding_mode=mode, bias=bias, dtype=dtype).eval()
    perturb(layer)
    assert_one_lipschitz(method, layer, (in_channels, height, width), dtype, points=3, pairs=10)
    y = layer(torch.randn(2, in_channels, height, width, dtype=dtype))
    assert y.shape == (2, out_channels, -(-height // stride), -(-width // stride))


@each_lipschitz_method
@settings(max_examples=12)
@given(
    inputs=st.integers(1, 7),
    outputs=st.integers(1, 7),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_linear_norm_for_drawn_shapes(
    method: MethodInfo, inputs: int, outputs: int, bias: bool, dtype: torch.dtype
) -> None:
    layer = method.linear_layer(inputs, outputs, bias, dtype=dtype).eval()
    perturb(layer)
    assert_one_lipschitz(method, layer, (inputs,), dtype, points=3, pairs=10)
    assert layer(torch.zeros(2, 3, inputs, dtype=dtype)).shape == (2, 3, outputs)


@over([m for m in LIPSCHITZ if m.guarantee == "orthogonal"], "circular", "linear")
def test_orthogonal_after_training_in_float32(method: MethodInfo, case: str) -> None:
    layer = fresh(method, case, torch.float32)
    shape = FEATURES if case == "linear" else (4, 6, 6)  # ECO is orthogonal where its kernel side divides the image's
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        batch = torch.randn(8, *shape)
        optimiser.zero_grad()
        (layer(batch) - torch.randn_like(batch)).square().mean().backward()
        optimiser.step()
    assert distance_from_isometry(jacobian(layer.eval(), torch.randn(shape))) <= 1e-4


@pytest.mark.parametrize("channels", [3, 4])
@over(METHODS, "frequencies", "square")
def test_the_cases_of_the_frequencies_are_such(method: MethodInfo, case: str, channels: int) -> None:
    """The cases below stand for all forms of a layer only while these kernels are applied by frequency."""
    size = gradcheck_size(case) if channels == 3 else image_size(case)
    transformed = make(method, case, channels=channels).transform(size).tensors()
    assert "kernel" not in transformed
    if "dft_rows" in transformed and method.key != "eco":  # whose torus is that of the kernel
        assert ("dft_columns" in transformed) == (case == "frequencies")
    if issubclass(method.conv, CheapestFormConv2d):
        assert "matrices" in transformed


@each_case
class TestGradients:
    def test_every_parameter_learns(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case)
        y = layer(samples(case, 4))
        (y * torch.randn_like(y)).sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 0, name

    def test_every_parameter_learns_from_the_default_start(self, method: MethodInfo, case: str) -> None:
        """Within two steps: a scale of the identity has no gradient yet (Cayley's alpha, SLL's q)."""
        layer = fresh(method, case)
        moved = dict.fromkeys((name for name, _ in layer.named_parameters()), False)
        optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(2):
            optimiser.zero_grad()
            y = layer(samples(case, 4))
            (y * torch.randn_like(y)).sum().backward()
            for name, parameter in layer.named_parameters():
                moved[name] |= parameter.grad is not None and bool(parameter.grad.abs().max() > 0)
            optimiser.step()
        assert all(moved.values()), moved

    def test_gradcheck(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case, channels=3).eval()
        names = [name for name, _ in layer.named_parameters()]
        values = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
        shape = FEATURES if case == "linear" else (3, *gradcheck_size(case))
        x = torch.randn(1, *shape, dtype=torch.float64, requires_grad=True)

        def function(x: Tensor, *parameters: Tensor) -> Tensor:
            return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

        assert torch.autograd.gradcheck(function, (x, *values), fast_mode=case not in ("circular", "linear"))

    def test_training_equals_evaluation_but_for_what_is_declared(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case)
        x = samples(case)
        with torch.no_grad():
            for _ in range(19):  # CPL's power iteration goes on from where it was
                layer(x)
            trained, evaluated = layer(x), layer.eval()(x)
        if may_differ(method, layer):
            difference = (trained - evaluated).norm()
            assert difference <= 0.03 * x.norm(), method.train_eval_difference
            assert difference > 0 or case != "circular"  # elsewhere one frequency may be so large that both are exact
        else:
            assert_close(trained, evaluated, 1e-14)


@each_case
class TestCache:
    def test_never_stale(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case).eval()
        x = samples(case, 1)

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
        layer.weight.data.mul_(-2)  # leaves no trace: docs/layers.md names what helps
        layer.train().eval()
        assert_fresh()
        other = make(method, case)
        layer.load_state_dict(other.state_dict())
        assert torch.equal(layer(x), other.eval()(x))

    def test_is_used_and_stays_out_of_the_state(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case).eval()
        x = samples(case, 1)
        keys = set(layer.state_dict())
        with torch.inference_mode():
            layer(x)
        first = layer.transformed(image_size(case))
        assert layer.transformed(image_size(case)) is first
        assert set(layer.state_dict()) == keys
        assert all(not tensor.is_inference() for tensor in first.tensors().values())
        assert layer.train().transformed(image_size(case)) is not first
        layer(x).sum().backward()  # what was computed in inference mode must not reach the training graph

    def test_step_between_evaluations(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case)
        x = samples(case)
        before = layer.eval()(x)
        optimiser = torch.optim.SGD(layer.parameters(), lr=1.0)
        (layer.train()(x) * torch.randn_like(before)).sum().backward()
        optimiser.step()
        after = layer.eval()(x)
        assert not torch.equal(before, after)
        assert torch.equal(after, copy.deepcopy(layer)(x))

    def test_size_may_change_between_calls(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case).eval()
        for size in [(5, 6), (3, 3), (1, 7), (5, 6), (2, 2), (8, 8), (4, 9), (5, 6)]:
            x = samples(case, 1) if case == "linear" else torch.randn(1, 4, *size, dtype=torch.float64)
            assert torch.equal(layer(x), copy.deepcopy(layer)(x))

    def test_copies_and_saves(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case).eval()
        x = samples(case, 1)
        expected = layer(x)
        assert torch.equal(copy.deepcopy(layer)(x), expected)
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        assert torch.equal(torch.load(buffer, weights_only=False)(x), expected)


def assert_input_transformation_only(layer: ParametrisedLayer, x: Tensor, dtype: torch.dtype) -> None:
    """Autocast leaves the transformed parameters alone, and the output follows the plain one."""
    plain = layer.transform(image_size("circular"))
    with torch.autocast("cpu", dtype):
        inside = layer.transform(image_size("circular"))
        y = layer(x).detach()
    for name, tensor in plain.tensors().items():
        assert torch.equal(inside.tensors()[name], tensor)
    expected = layer(x).detach()
    assert_close(y.float(), expected, 0.05 * float(expected.abs().max()))


@each_kind
def test_bfloat16_autocast_concerns_the_input_transformation_only(method: MethodInfo, case: str) -> None:
    layer = make(method, case, torch.float32).eval()
    assert_input_transformation_only(layer, samples(case, 1, torch.float32), torch.bfloat16)


@each_kind
def test_half_precision_parameters(method: MethodInfo, case: str) -> None:
    layer = make(method, case, torch.float32).to(torch.bfloat16).eval()
    y = layer(samples(case, 1, torch.bfloat16))
    assert y.dtype == torch.bfloat16
    assert y.isfinite().all()


@each_case
class TestTransformations:
    def test_forward_is_transform_then_apply(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case).eval()
        x = samples(case, 1)
        assert torch.equal(layer(x), layer.apply_to(x, layer.transform(image_size(case))))

    def test_equal_layers_transform_as_one_batch(self, method: MethodInfo, case: str) -> None:
        layers = [make(method, case) for _ in range(3)]
        together = transform_layers(layers, layers[0].core_size(image_size(case)))
        for layer, transformed in zip(layers, together, strict=True):
            alone = layer.transform(image_size(case))
            assert alone.tensors().keys() == transformed.tensors().keys()
            for name, tensor in alone.tensors().items():
                assert_close(transformed.tensors()[name], tensor, 1e-12)

    def test_float16_autocast_concerns_the_input_transformation_only(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case, torch.float32).eval()
        assert_input_transformation_only(layer, samples(case, 1, torch.float32), torch.float16)

    def test_float16_autocast_trains(self, method: MethodInfo, case: str) -> None:
        """Every gradient is that of the plain pass, up to the digits of float16."""
        layer = make(method, case, torch.float32)
        twin = copy.deepcopy(layer)
        x = samples(case, 2, torch.float32).requires_grad_()
        with torch.autocast("cpu", torch.float16):
            y = layer(x)
        expected = twin(x)
        assert not torch.equal(y.float(), expected)
        weights = torch.randn_like(expected)
        given = torch.autograd.grad((y.float() * weights).sum(), [x, *layer.parameters()])
        wanted = torch.autograd.grad((expected * weights).sum(), [x, *twin.parameters()])
        for got, want in zip(given, wanted, strict=True):
            assert got.dtype == torch.float32
            assert (got - want).norm() <= 0.02 * want.norm() + 2e-3

    def test_linear_methods_are_affine(self, method: MethodInfo, case: str) -> None:
        if not method.linear:
            pytest.skip("not linear by design")
        layer = make(method, case).eval()
        x, y = samples(case, 1), samples(case, 1)
        assert_close(layer(x + y) + layer(torch.zeros_like(x)), layer(x) + layer(y), 1e-12)

    def test_meta_device(self, method: MethodInfo, case: str) -> None:
        x = samples(case)
        with torch.device("meta"):
            y = fresh(method, case)(torch.empty_like(x, device="meta"))
        assert y.device.type == "meta"
        assert y.shape == fresh(method, case)(x).shape


class TestCompilers:
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    @each_kind
    def test_compiles_as_one_graph(self, method: MethodInfo, case: str, training: bool) -> None:
        self._compare(make(method, case).train(training), samples(case))

    @over(METHODS, "zeros", "frequencies", "square")
    def test_compiles_as_one_graph_in_training(self, method: MethodInfo, case: str) -> None:
        self._compare(make(method, case), samples(case))

    def _compare(self, layer: LipschitzLayer, x: Tensor) -> None:
        torch.compiler.reset()
        twin = copy.deepcopy(layer)
        y = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
        expected = twin(x)
        assert_close(y, expected, 1e-12)
        if not layer.training:
            return
        weights = torch.randn_like(y)
        (y * weights).sum().backward()
        (expected * weights).sum().backward()
        for (name, got), wanted in zip(layer.named_parameters(), twin.parameters(), strict=True):
            assert got.grad is not None, name
            assert wanted.grad is not None, name
            assert_close(got.grad, wanted.grad, 1e-10)

    @each_case
    def test_exports(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case).eval()
        x = samples(case)
        layer(x)
        perturb(layer)  # what was kept before must not be exported
        program = torch.export.export(layer, (x,))
        assert_close(program.module()(x), layer(x), 1e-12)


@each_method
@pytest.mark.parametrize(
    ("in_channels", "out_channels", "kernel", "stride", "size"),
    [(4, 4, 3, 1, (6, 6)), (3, 5, 3, 2, (6, 8)), (5, 2, 5, 2, (7, 5)), (2, 3, 7, 1, (2, 3)), (4, 4, 1, 1, (4, 4))],
)
@each_dtype
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_fused_layers_are_those_of_evaluation(
    method: MethodInfo,
    in_channels: int,
    out_channels: int,
    kernel: int,
    stride: int,
    size: tuple[int, int],
    training: bool,
    dtype: torch.dtype,
) -> None:
    for mode in method.conv.padding_modes:
        layer = method.conv(in_channels, out_channels, kernel, stride, padding_mode=mode, dtype=dtype)
        perturb(layer)
        x = torch.randn(2, in_channels, *size, dtype=dtype)
        fused = layer.train(training).fuse(size)
        assert not any(isinstance(module, LipschitzLayer) for module in fused.modules())
        assert_close(fused(x), layer.eval()(x), 1e-5 if dtype == torch.float32 else 1e-12)


@each_method
def test_fused_linear_layers_are_those_of_evaluation(method: MethodInfo) -> None:
    for inputs, outputs in [(4, 4), (3, 5), (5, 2)]:
        layer = method.linear_layer(inputs, outputs, dtype=torch.float64)
        perturb(layer)
        x = torch.randn(3, inputs, dtype=torch.float64)
        assert_close(layer.train().fuse()(x), layer.eval()(x), 1e-12)


@pytest.mark.parametrize("key", ["standard", "aol", "bcop", "bjorck", "oni", "eco"])
def test_small_kernels_fuse_to_plain_torch_modules(key: str) -> None:
    method = next(method for method in METHODS if method.key == key)
    assert type(method.conv(4, 4, 3).fuse((6, 6))) is nn.Conv2d
    assert type(method.linear_layer(4, 3).fuse()) is nn.Linear
