"""The contract of every layer, over every registered method: a new method file is tested the moment it exists."""

from __future__ import annotations

import copy

import layer_contract as contract
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jacobians import distance_from_isometry, jacobian, norm_at
from layer_contract import CONVS, FEATURES, STATES, assert_close, fresh, image_size, input_shape, make, perturb, samples
from shipped_methods import SHIPPED
from torch import Tensor, nn

from onelip.layers import MethodInfo, get_method, list_methods
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operators import Kernel

METHODS = list_methods()
LIPSCHITZ = [method for method in METHODS if method.guarantee != "none"]
DTYPES = [torch.float64, torch.float32]


def supports(method: MethodInfo, case: str) -> bool:
    """Whether a method has this case: "frequencies" is for the methods that choose between two forms."""
    if case == "frequencies":
        return method.conv.has_frequency_form
    return case == "linear" or CONVS[case].get("padding_mode", "circular") in method.conv.padding_modes


def over(methods: list[MethodInfo], *cases: str) -> pytest.MarkDecorator:
    """Every method in each of the cases that it has."""
    pairs = [(method, case) for method in methods for case in cases if supports(method, case)]
    return pytest.mark.parametrize(("method", "case"), [pytest.param(m, c, id=f"{m.key}-{c}") for m, c in pairs])


each_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.key)
each_kind = over(METHODS, "circular", "linear")
each_case = over(METHODS, *contract.CASES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float64", "float32"])


class TestBounds:
    @pytest.mark.parametrize("state", STATES)
    @each_case
    def test_every_state(self, method: MethodInfo, case: str, state: str) -> None:
        layer = contract.in_state(method, case, state, torch.float32)
        contract.check_evaluation_is_finite(layer, samples(case, 2, torch.float32))
        contract.check_bound(method, layer, input_shape(case))

    @each_kind
    def test_float64_and_conversion(self, method: MethodInfo, case: str) -> None:
        layer = contract.in_state(method, case, "stepped", torch.float64)
        contract.check_bound(method, layer, input_shape(case))
        reloaded = fresh(method, case)
        reloaded.load_state_dict(layer.state_dict())
        contract.check_bound(method, reloaded.float(), input_shape(case))

    @over([m for m in METHODS if m.linear and m.key != "eco"], "circular", "square", "linear")
    def test_the_bound_of_a_linear_layer_is_its_norm(self, method: MethodInfo, case: str) -> None:
        """ECO alone loses something, where its kernel does not divide the image; so does zero padding."""
        layer = make(method, case, torch.float32).eval()
        truth = norm_at(contract.Deployed(layer, input_shape(case)), samples(case)[0])
        assert layer.bound(input_shape(case)).lipschitz <= truth * (1 + 1e-5)

    @over(LIPSCHITZ, "circular", "linear")
    def test_training_mode(self, method: MethodInfo, case: str) -> None:
        """Where training computes the same function, it is 1-Lipschitz too; a bound asked for then is of evaluation."""
        layer = make(method, case)
        bound = layer.bound(input_shape(case))
        assert layer.training
        assert bound.lipschitz == layer.eval().bound(input_shape(case)).lipschitz
        if not method.train_eval_difference or case == "linear":
            assert norm_at(layer.train(), samples(case)[0]) <= 1 + 1e-2 * bool(method.train_eval_difference) + 1e-9

    @pytest.mark.parametrize("method", LIPSCHITZ, ids=lambda m: m.key)
    @settings(max_examples=10)
    @given(data=st.data())
    def test_drawn_shapes(self, method: MethodInfo, data: st.DataObject) -> None:
        side, channels = st.integers(1, 5), st.integers(1, 4)
        inputs, outputs = data.draw(channels, "in"), data.draw(channels, "out")
        kernel, stride = data.draw(st.sampled_from([1, 3, 5, 7]), "kernel"), data.draw(st.integers(1, 3), "stride")
        kernel = max(kernel, stride) if method.conv.traits.orthogonal_by_rank else kernel
        mode = data.draw(st.sampled_from(method.conv.padding_modes), "padding_mode")
        height, width = data.draw(side, "height"), data.draw(side, "width")
        bias, dtype = data.draw(st.booleans(), "bias"), data.draw(st.sampled_from(DTYPES), "dtype")
        layer = method.conv(inputs, outputs, kernel, stride, padding_mode=mode, bias=bias, dtype=dtype)
        perturb(layer)
        contract.check_bound(method, layer, (inputs, height, width), points=2)
        y = layer(torch.randn(2, inputs, height, width, dtype=dtype))
        assert y.shape == (2, outputs, -(-height // stride), -(-width // stride))

    @pytest.mark.parametrize("method", LIPSCHITZ, ids=lambda m: m.key)
    @settings(max_examples=4)
    @given(inputs=st.integers(1, 7), outputs=st.integers(1, 7), bias=st.booleans(), dtype=st.sampled_from(DTYPES))
    def test_drawn_features(
        self, method: MethodInfo, inputs: int, outputs: int, bias: bool, dtype: torch.dtype
    ) -> None:
        layer = method.linear_layer(inputs, outputs, bias, dtype=dtype)
        perturb(layer)
        contract.check_bound(method, layer, (2, inputs), points=2)
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


@over([method for method in METHODS if method.key in SHIPPED], "frequencies", "square")
def test_the_cases_of_the_frequencies_are_such(method: MethodInfo, case: str) -> None:
    """They stand for all forms of a layer only while these kernels are applied by frequency."""
    transformed = make(method, case).transform(image_size(case))
    tensors = transformed.tensors()
    assert not isinstance(transformed, Kernel)
    assert "kernel" not in tensors
    if "dft_rows" in tensors and method.key != "eco":  # whose torus is that of the kernel
        assert ("dft_columns" in tensors) == (case == "frequencies")


@each_case
class TestLayer:
    def test_every_parameter_learns(self, method: MethodInfo, case: str) -> None:
        contract.check_gradients(method, case)

    def test_gradcheck(self, method: MethodInfo, case: str) -> None:
        contract.check_gradcheck(method, case)

    def test_training_equals_evaluation_but_for_what_is_declared(self, method: MethodInfo, case: str) -> None:
        contract.check_both_modes_agree(method, case)

    def test_the_cache_is_used_and_never_stale(self, method: MethodInfo, case: str) -> None:
        contract.check_cache(method, case)

    def test_copies_and_saves(self, method: MethodInfo, case: str) -> None:
        contract.check_copies(method, case)

    def test_equal_layers_transform_as_one_batch(self, method: MethodInfo, case: str) -> None:
        contract.check_stacking(method, case)

    def test_fused_layers_are_those_of_evaluation(self, method: MethodInfo, case: str) -> None:
        contract.check_fusing(make(method, case), input_shape(case))

    def test_float16_autocast_concerns_the_input_transformation_only(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case, torch.float32).eval()
        assert_input_transformation_only(layer, samples(case, 1, torch.float32), torch.float16)

    def test_linear_methods_are_affine(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case).eval()
        x, y = samples(case, 1), samples(case, 1)
        error = (layer(x + y) + layer(torch.zeros_like(x)) - layer(x) - layer(y)).norm()
        assert (error < 1e-12) == method.linear


@pytest.mark.parametrize("case", contract.GEOMETRIES)
@each_method
def test_geometries(method: MethodInfo, case: str) -> None:
    contract.check_geometry(method, case)


@pytest.mark.parametrize("lipschitz", [0.25, 10.0])
@over(LIPSCHITZ, "circular", "zeros", "square", "linear")
def test_a_constant_other_than_one(method: MethodInfo, case: str, lipschitz: float) -> None:
    contract.check_scaling(method, case, lipschitz)


@each_kind
class TestKinds:
    def test_bfloat16_autocast_concerns_the_input_transformation_only(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case, torch.float32).eval()
        assert_input_transformation_only(layer, samples(case, 1, torch.float32), torch.bfloat16)

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

    def test_half_precision_parameters(self, method: MethodInfo, case: str) -> None:
        y = make(method, case, torch.float32).to(torch.bfloat16).eval()(samples(case, 1, torch.bfloat16))
        assert y.dtype == torch.bfloat16
        assert y.isfinite().all()

    def test_size_may_change_between_calls(self, method: MethodInfo, case: str) -> None:
        layer = make(method, case).eval()
        for size in [(5, 6), (3, 3), (1, 7), (5, 6), (2, 2), (8, 8), (4, 9), (5, 6)]:
            x = samples(case, 1) if case == "linear" else torch.randn(1, 4, *size, dtype=torch.float64)
            assert torch.equal(layer(x), copy.deepcopy(layer)(x))

    def test_meta_device(self, method: MethodInfo, case: str) -> None:
        x = samples(case)
        with torch.device("meta"):
            y = fresh(method, case)(torch.empty_like(x, device="meta"))
        assert y.device.type == "meta"
        assert y.shape == fresh(method, case)(x).shape


def assert_input_transformation_only(layer: LipschitzLayer, x: Tensor, dtype: torch.dtype) -> None:
    """Autocast leaves the transformed parameters alone, and the output follows the plain one."""
    size = (x.shape[-2], x.shape[-1]) if x.dim() == 4 else None
    plain = layer.transform(size).tensors()
    with torch.autocast("cpu", dtype):
        inside = layer.transform(size).tensors()
        y = layer(x).detach()
    assert all(torch.equal(inside[name], tensor) for name, tensor in plain.items())
    expected = layer(x).detach()
    assert_close(y.float(), expected, 0.05 * float(expected.abs().max()))


FAMILIES = [
    ("aol", "frequencies"),
    ("bcop", "linear"),
    ("bcop", "zeros"),
    ("cayley", "circular"),
    ("cpl", "square"),
    ("eco", "circular"),
    ("sandwich", "linear"),
    ("sandwich", "square"),
    ("sll", "linear"),
    ("soc", "zeros"),
    ("aol", "grouped"),
    ("standard", "dilated"),
]
"""One layer for each operator and each way to it: compilers take seconds a layer, and see no more in the others."""


class TestCompilers:
    def test_every_operator_is_among_the_families(self) -> None:
        def operators(pairs: list[tuple[str, str]]) -> set[type]:
            return {type(make(get_method(key), case).transform(image_size(case))) for key, case in pairs}

        every = [(m.key, case) for m in METHODS for case in contract.CASES if supports(m, case)]
        every.append(("aol", "grouped"))
        assert operators(FAMILIES) == operators(every)

    @pytest.mark.parametrize(("key", "case"), FAMILIES)
    def test_compiles_as_one_graph_in_training(self, key: str, case: str) -> None:
        layer, x = make(get_method(key), case), samples(case)
        torch.compiler.reset()
        twin = copy.deepcopy(layer)
        y = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
        expected = twin(x)
        assert_close(y, expected, 1e-12)
        weights = torch.randn_like(y)
        (y * weights).sum().backward()
        (expected * weights).sum().backward()
        for (name, got), wanted in zip(layer.named_parameters(), twin.parameters(), strict=True):
            assert got.grad is not None, name
            assert wanted.grad is not None, name
            assert_close(got.grad, wanted.grad, 1e-10)

    @pytest.mark.parametrize(("key", "case"), FAMILIES)
    def test_compiles_and_exports_in_evaluation(self, key: str, case: str) -> None:
        """Fused layers too; and what was kept before a change must not be exported."""
        layer, x = make(get_method(key), case).eval(), samples(case)
        layer(x)
        perturb(layer)
        assert_close(torch.export.export(layer, (x,)).module()(x), layer(x), 1e-12)
        torch.compiler.reset()
        assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x), 1e-12)
        fused = layer.fuse(image_size(case)).eval()
        assert_close(torch.export.export(fused, (x,)).module()(x), layer(x), 1e-12)


@each_method
@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "size"),
    [((3, 5), 3, 2, (6, 8)), ((5, 2), 5, 2, (7, 5)), ((2, 3), 7, 1, (2, 3)), ((4, 4), 1, 1, (4, 4))],
)
def test_fused_layers_of_other_shapes(
    method: MethodInfo, channels: tuple[int, int], kernel: int, stride: int, size: tuple[int, int]
) -> None:
    for mode in method.conv.padding_modes:
        layer = method.conv(*channels, kernel, stride, padding_mode=mode, dtype=torch.float32)
        perturb(layer)
        contract.check_fusing(layer, (channels[0], *size))
    linear = method.linear_layer(*channels)
    perturb(linear)
    contract.check_fusing(linear, (channels[0],))


@pytest.mark.parametrize("key", ["standard", "aol", "bcop", "bjorck", "oni", "eco"])
def test_small_kernels_fuse_to_plain_torch_modules(key: str) -> None:
    assert type(get_method(key).conv(4, 4, 3).fuse((6, 6))) is nn.Conv2d
    assert type(get_method(key).linear_layer(4, 3).fuse()) is nn.Linear
