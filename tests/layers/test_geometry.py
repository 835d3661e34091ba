"""Groups, dilation, padding, even and rectangular kernels: torch's function where there is one, never an expansion."""

from __future__ import annotations

import copy
import importlib.util
import math
import pickle
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jacobians import distance_from_isometry, jacobian, norm_at
from layer_contract import assert_close, check_bound, check_fusing, perturb
from torch import Tensor, nn

from onelip import lipschitz_bound
from onelip.errors import InvalidInputError
from onelip.layers import StandardConv2d, create_conv, create_conv1d, create_conv_transpose, list_methods
from onelip.layers.geometry import Geometry
from onelip.layers.kernel_layers import KernelConv2d
from onelip.layers.operators import Grouped, Kernel

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SIZE = (7, 10)


def torch_convolution(x: Tensor, weight: Tensor, options: dict[str, Any]) -> Tensor:
    """What torch computes with these options."""
    outputs, inputs, height, width = weight.shape
    conv = nn.Conv2d(inputs * options["groups"], outputs, (height, width), bias=False, **options)
    conv.weight = nn.Parameter(weight)
    return conv(x)


sides = st.integers(1, 4)
steps = st.integers(1, 3)


def drawn_dilation(data: st.DataObject, stride: tuple[int, int]) -> tuple[int, int]:
    """One that has no common divisor with the stride."""
    first, second = (st.sampled_from([d for d in (1, 2, 3, 5) if math.gcd(d, step) == 1]) for step in stride)
    return data.draw(first, "dilation"), data.draw(second, "dilation")


@settings(max_examples=60)
@given(data=st.data())
def test_the_baseline_is_the_convolution_of_torch(data: st.DataObject) -> None:
    """Groups, dilation, stride, integer padding, even and rectangular kernels, by the same taps."""
    groups = data.draw(st.sampled_from([1, 2, 4]), "groups")
    kernel = data.draw(sides, "height"), data.draw(sides, "width")
    stride = data.draw(steps, "step"), data.draw(steps, "step")
    dilation = drawn_dilation(data, stride)
    mode = data.draw(st.sampled_from(["circular", "zeros"]), "padding_mode")
    spans = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    most = [span // 2 if mode == "circular" else span for span in spans]
    padding = tuple(data.draw(st.integers(0, limit), "padding") for limit in most)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "padding_mode": mode}
    layer = create_conv("standard", 4, 4, kernel, bias=False, dtype=torch.float64, **options)
    size = (12 if mode == "circular" else 17, 18)  # a stride on a circle divides it
    weight = torch.randn(4, 4 // groups, *kernel, dtype=torch.float64)
    assume(all(span < length for span, length in zip(spans, size, strict=True)))
    x = torch.randn(2, 4, *size, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight.reshape(layer.weight.shape))
    assert_close(layer(x), torch_convolution(x, weight, options), 1e-12)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("kernel", [2, 3, 4, (2, 3)])
@pytest.mark.parametrize("mode", ["circular", "zeros"])
def test_same_is_that_of_torch(kernel: int | tuple[int, int], dilation: int, mode: Any) -> None:
    layer = StandardConv2d(4, 4, kernel, dilation=dilation, groups=2, bias=False, padding_mode=mode)
    options = {"padding": "same", "dilation": dilation, "groups": 2, "padding_mode": mode}
    x = torch.randn(2, 4, 10, 11)
    assert_close(layer(x), torch_convolution(x, layer.weight.reshape(4, 2, *layer.kernel_size), options), 1e-5)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("circular", [False, True])
def test_where_nothing_moves_pixels_are_where_they_were(circular: bool, transposed: bool) -> None:
    """Images and outputs of "same" at stride 1 are not looked at further; images without pixels are refused."""
    for kernel in ((1, 1), (2, 3), (4, 5), (7, 6)):
        geometry = Geometry(kernel, (1, 1), None, (1, 1), circular, transposed)
        assert geometry.moves_nothing
        assert geometry._places((3, 5)) == ((0, 3, 0, 3, 0), (0, 5, 0, 5, 0))
        with pytest.raises(InvalidInputError, match="an image side of 0 is too small"):
            geometry.read(torch.zeros(1, 2, 0, 5))
        with pytest.raises(InvalidInputError, match="an image side of 0 is too small"):
            geometry.core_image((5, 0))
    assert not Geometry((3, 3), (1, 1), (0, 0), (1, 1), circular, transposed).moves_nothing


@settings(max_examples=60)
@given(data=st.data())
def test_the_transposed_baseline_is_that_of_torch(data: st.DataObject) -> None:
    groups = data.draw(st.sampled_from([1, 2, 4]), "groups")
    kernel = data.draw(sides, "height"), data.draw(sides, "width")
    stride = data.draw(steps, "step"), data.draw(steps, "step")
    dilation = drawn_dilation(data, stride)
    padding = data.draw(st.integers(0, kernel[0] - 1), "padding"), data.draw(st.integers(0, kernel[1] - 1), "padding")
    extra = data.draw(st.integers(0, stride[0] - 1), "more"), data.draw(st.integers(0, stride[1] - 1), "more")
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "output_padding": extra}
    options |= {"bias": False, "padding_mode": "zeros", "dtype": torch.float64}
    layer, plain = (
        create_conv_transpose("standard", 4, 4, kernel, **options),
        nn.ConvTranspose2d(4, 4, kernel, **options),
    )
    with torch.no_grad():
        taps = plain.weight.unflatten(0, (groups, -1)).transpose(1, 2)
        layer.weight.copy_(taps.reshape(layer.weight.shape))
    x = torch.randn(2, 4, 5, 6, dtype=torch.float64)
    assert_close(layer(x), plain(x), 1e-12)


@pytest.mark.parametrize("method", list_methods(), ids=lambda method: method.key)
def test_transposed_layers_of_every_method(method: Any) -> None:
    """Twice the height and width; orthogonal where the method is."""
    layer = create_conv_transpose(method.key, 8, 2, 4, stride=2, padding=1, groups=2)
    perturb(layer)
    shape = (8, 3, 4)
    assert layer(torch.randn(1, *shape)).shape == (1, 2, 6, 8)
    check_bound(method, layer, shape, points=2)
    check_fusing(layer, shape)
    assert type(pickle.loads(pickle.dumps(layer))) is type(layer)
    if method.guarantee == "orthogonal" and method.key != "eco":
        assert distance_from_isometry(jacobian(layer.double(), torch.randn(shape, dtype=torch.float64))) <= 1e-6


@pytest.mark.parametrize("method", list_methods(), ids=lambda method: method.key)
def test_signals_of_every_method(method: Any) -> None:
    layer = create_conv1d(method.key, 4, 6, 5, stride=2, padding=2)
    perturb(layer)
    shape = (4, 12)
    assert layer.eval()(torch.randn(1, *shape)).shape == (1, 6, 6)
    assert_close(layer(torch.ones(*shape)), layer(torch.ones(1, *shape))[0], 1e-6)
    x = torch.randn(shape, dtype=torch.float64)
    proven = layer.bound(shape).lipschitz
    assert norm_at(copy.deepcopy(layer).double(), x) <= proven * (1 + 1e-6)
    assert proven <= 1 + 1e-5 or method.guarantee == "none"
    fused = layer.fuse((1, 12))
    assert_close(fused(x[None].float()), layer(x[None].float()), 1e-5)
    assert lipschitz_bound(fused, shape) == proven


def test_a_signal_is_convolved_as_by_torch() -> None:
    layer = create_conv1d("standard", 4, 4, 4, padding=1, dilation=2, groups=2, padding_mode="zeros")
    plain = nn.Conv1d(4, 4, 4, padding=1, dilation=2, groups=2)
    with torch.no_grad():
        layer.weight.copy_(plain.weight.reshape(layer.weight.shape))
        plain.bias.zero_()  # pyright: ignore[reportOptionalMemberAccess]
    x = torch.randn(2, 4, 13)
    assert_close(layer(x), plain(x), 1e-5)


def test_a_kernel_of_one_row_costs_no_square() -> None:
    for method in list_methods():
        layer = create_conv1d(method.key, 8, 8, 7)
        taps = sum(parameter.numel() for parameter in layer.parameters())
        assert taps <= 2 * 8 * 8 * 7 + 2 * 8, method.key


DRAWN = [
    {"kernel_size": (1, 3), "groups": 4, "dilation": (2, 3), "padding_mode": "zeros"},
    {"kernel_size": 4, "stride": 2, "padding": 1, "groups": 2},
    {"kernel_size": 3, "stride": (2, 3), "padding": (3, 1), "dilation": (3, 2), "padding_mode": "zeros"},
]


def test_a_dilation_that_skips_pixels_behind_a_stride_says_what_to_do() -> None:
    with pytest.raises(InvalidInputError, match="common divisor") as caught:
        create_conv("aol", 4, 8, 3, stride=4, dilation=2)
    assert "\n" not in str(caught.value)
    options: dict[str, Any] = {"padding": 2, "groups": 1, "padding_mode": "zeros"}
    x, weight = torch.randn(1, 4, 12, 16), torch.randn(8, 4, 3, 3)
    layer = create_conv("standard", 4, 8, 3, stride=2, padding=1, bias=False, padding_mode="zeros")
    with torch.no_grad():
        layer.weight.copy_(weight)
    expected = torch_convolution(x, weight, {**options, "stride": 4, "dilation": 2})
    assert_close(layer(x[..., ::2, ::2]), expected, 1e-4)


@pytest.mark.parametrize("options", DRAWN, ids=lambda options: "-".join(f"{k}={v}" for k, v in options.items()))
@pytest.mark.parametrize("method", list_methods(), ids=lambda method: method.key)
def test_every_method_has_a_bound_and_fuses(method: Any, options: dict[str, Any]) -> None:
    layer = method.conv(4, 8, **options)
    perturb(layer)
    check_bound(method, layer, (4, *SIZE), points=2)
    check_fusing(layer, (4, *SIZE))


@pytest.mark.parametrize("key", ["bcop", "cayley", "lot", "soc"])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "groups": 2},
        {"kernel_size": 2, "groups": 4},
        {"kernel_size": 3, "dilation": 2},
        {"kernel_size": 4},
        {"kernel_size": (3, 1)},
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": 3, "stride": 2, "dilation": 3},
    ],
    ids=lambda options: "-".join(f"{k}={v}" for k, v in options.items()),
)
def test_orthogonal_methods_stay_orthogonal(key: str, options: dict[str, Any]) -> None:
    layer = create_conv(key, 4, 16 if "stride" in options else 4, **options, dtype=torch.float64)
    perturb(layer)
    assert distance_from_isometry(jacobian(layer.eval(), torch.randn(4, 6, 8, dtype=torch.float64))) <= 1e-9


STRIDES = [
    (4, 8, 3, 2),  # more pixels than outputs
    (2, 8, 3, 2),  # as many
    (2, 24, 3, 2),  # fewer: the projections act on more channels than there are inputs
    (3, 5, 4, (2, 1)),
    (4, 4, 1, 2),  # skips pixels, has orthonormal rows
    (2, 8, (5, 2), 2),
]


@pytest.mark.parametrize("transpose", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize(("inputs", "outputs", "kernel", "stride"), STRIDES)
@pytest.mark.parametrize("key", ["bcop", "bro", "cayley", "lot", "soc"])
def test_strides_of_orthogonal_methods(
    key: str, inputs: int, outputs: int, kernel: Any, stride: Any, transpose: bool
) -> None:
    """All min(inputs, outputs) singular values are 1, wherever an operator with torch's taps can have that."""
    create, channels = (create_conv_transpose, (outputs, inputs)) if transpose else (create_conv, (inputs, outputs))
    layer = create(key, *channels, kernel, stride=stride, dtype=torch.float64)
    perturb(layer)
    size = (3, 2) if transpose else (6, 4)
    matrix = jacobian(layer.eval(), torch.randn(channels[0], *size, dtype=torch.float64))
    assert distance_from_isometry(matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT) <= 1e-9


@pytest.mark.parametrize("key", ["bcop", "eco", "lot"])
def test_where_no_strided_operator_is_orthogonal(key: str) -> None:
    with pytest.raises(InvalidInputError, match=r"4 to 5 channels .* is orthogonal, because it skips pixels"):
        create_conv(key, 4, 5, 1, stride=2)
    with pytest.raises(InvalidInputError, match="use a kernel_size of at least the stride"):
        create_conv_transpose(key, 5, 2, (1, 2), stride=2)


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"padding_mode": "zeros", "padding": 1}], ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (4, 1)], ids=str)
@pytest.mark.parametrize("key", [m.key for m in list_methods() if issubclass(m.conv, KernelConv2d)])
def test_a_kernel_is_applied_with_its_stride(key: str, kernel: tuple[int, int], options: dict[str, Any]) -> None:
    """By torch's convolution, to the same effect as unshuffled pixels: no tap beyond the kernel's own is lost."""
    layer = create_conv(key, 4, 6, kernel, stride=2, **options, dtype=torch.float64)
    perturb(layer)
    x = torch.randn(2, 4, 7, 8, dtype=torch.float64)
    operator, geometry = layer.transform((7, 8)), layer.geometry
    assert isinstance(operator, Grouped if "groups" in options else Kernel)
    unshuffled = geometry.write(operator.apply(geometry.read(x), layer.bias), (7, 8))
    assert_close(layer(x), unshuffled, 1e-12)
    taps = layer.convolution_geometry._strided_taps(operator, 4)
    assert taps is not None
    assert taps.shape == (6, 4 // layer.groups, *kernel)


def test_a_strided_layer_has_no_more_parameters_than_that_of_torch() -> None:
    for method in list_methods():
        if not method.conv.traits.square and method.conv.traits.has_torch_taps:
            layer, plain = method.conv(8, 32, 4, stride=2), nn.Conv2d(8, 32, 4, stride=2)
            count, needed = (sum(p.numel() for p in module.parameters()) for module in (layer, plain))
            assert count <= 1.01 * needed, method.key


@pytest.mark.parametrize("key", ["aol", "cpl", "lot"])
def test_groups_are_layers_of_their_own(key: str) -> None:
    """A group sees its own channels and parameters only."""
    layer = create_conv(key, 6, 6, 3, groups=3, dtype=torch.float64).eval()
    perturb(layer)
    x = torch.randn(1, 6, *SIZE, dtype=torch.float64)
    expected = []
    for group in range(3):
        alone = create_conv(key, 2, 2, 3, dtype=torch.float64).eval()
        state = {name: tensor.chunk(3)[group] for name, tensor in layer.state_dict().items()}
        alone.load_state_dict({name: part if name == "bias" else part[0] for name, part in state.items()})
        expected.append(alone(x[:, 2 * group : 2 * group + 2]))
    assert_close(layer(x), torch.cat(expected, dim=1), 1e-12)


def test_groups_start_apart() -> None:
    layer = create_conv("bcop", 8, 4, 3, groups=2)
    assert not torch.equal(layer.weight[0], layer.weight[1])
    before = layer.weight.detach().clone()
    layer.reset_parameters()
    assert all(not torch.equal(new, old) for new, old in zip(layer.weight, before, strict=True))


def test_the_norm_of_a_grouped_layer_is_the_largest_of_its_groups() -> None:
    layer = StandardConv2d(4, 4, 3, groups=2, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.weight[1] *= 100
    bound = layer.bound((4, *SIZE)).lipschitz
    truth = norm_at(layer, torch.randn(4, *SIZE, dtype=torch.float64))
    assert truth <= bound <= truth * (1 + 1e-9)


def grid() -> ModuleType:
    """benchmarks/geometry.py."""
    specification = importlib.util.spec_from_file_location("geometry", BENCHMARKS / "geometry.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_a_sample_of_the_grid() -> None:
    """Norm and orthogonality of trained layers; the whole grid is the benchmark."""
    module = grid()
    assert len(module.GRID) == 768
    small = [place for place in module.GRID if place[2] == min(module.CHANNELS)]
    failures = {place: module.failure(place) for place in random.Random(0).sample(small, 24)}
    assert not any(failures.values()), failures


@pytest.mark.parametrize("options", [{"groups": 2}, {"dilation": 2}], ids=["grouped", "dilated"])
@pytest.mark.parametrize("key", ["aol", "lot"])
def test_exported_programs(key: str, options: dict[str, Any]) -> None:
    layer = create_conv(key, 4, 4, 3, **options).eval()
    x = torch.randn(2, 4, 6, 6)
    program = torch.export.export(layer.fuse((6, 6)), (x,))
    assert_close(program.module()(x), layer(x), 1e-5)
