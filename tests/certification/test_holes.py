"""Ways in which certificates have been wrong: each test contains the attack, and what the certificate says of it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, spectral_norm

from onelip.certification import (
    BrokenCertificateError,
    Certifier,
    Normalise,
    Residual,
    UnknownLipschitzConstant,
    certify,
    lipschitz_bound,
)
from onelip.certification.graph import Node
from onelip.errors import InvalidInputError
from onelip.layers import AOLLinear, FirstChannels, MaxMin


def linear(weight: Tensor, bias: bool = False) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias)
    layer.weight.data = weight.clone()
    return layer.eval()


def assert_holds(model: nn.Module, x: Tensor, direction: Tensor, reach: float = 10.0) -> Tensor:
    """No step along the direction within the radius changes the answer; beyond it the attack succeeds."""
    certificate = certify(model, x)
    with torch.no_grad():
        assert torch.equal(certificate.predictions, model(x.clone()).argmax(1))
        changed = []
        for step in torch.linspace(0, reach, 200):
            moved = x + step * direction / torch.linalg.vector_norm(direction)
            if bool((model(moved.clone()).argmax(1) != certificate.predictions).any()):
                changed.append(float(step))
    assert changed, "the attack itself must succeed somewhere"
    assert float(certificate.radii.min()) <= min(changed)
    return certificate.radii


# A module that is used twice


def test_tied_weights_count_as_often_as_they_are_used() -> None:
    """10 I three times: the constant is 1000, and a step of 2.24 beats what one factor of 10 would certify."""
    tied = linear(10 * torch.eye(2))
    model = nn.Sequential(tied, tied, tied, linear(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))).eval()
    assert lipschitz_bound(model, (2,)) == pytest.approx(1000.0, rel=1e-6)
    radii = assert_holds(model, torch.tensor([[4.0, 1.0]]), torch.tensor([[-1.0, 1.0]]))
    assert float(radii) == pytest.approx(3 / math.sqrt(2), rel=1e-6)


def test_an_activation_that_is_shared_runs_everywhere() -> None:
    torch.manual_seed(0)
    act = MaxMin()
    model = nn.Sequential(AOLLinear(6, 6), act, AOLLinear(6, 6), act, AOLLinear(6, 3)).eval()
    x = torch.randn(64, 6)
    with torch.no_grad():
        assert torch.equal(certify(model, x).predictions, model(x).argmax(1))


# Broadcasts


@pytest.mark.parametrize(
    ("model", "shape", "truth"),
    [
        (Residual(nn.AdaptiveAvgPool2d(1)), (1, 4, 4), 2.0),
        (Residual(linear(torch.ones(1, 100) / 10)), (100,), 11.0),
        (Residual(linear(torch.full((100, 1), 0.1))), (1,), math.sqrt(100 * 1.1**2)),
        (Normalise([0.5, 0.5, 0.5]), (1, 4, 4), math.sqrt(3)),
    ],
    ids=["pool", "to one", "from one", "normalise"],
)
def test_a_broadcast_counts_its_copies(model: nn.Module, shape: tuple[int, ...], truth: float) -> None:
    bound = lipschitz_bound(model.eval(), shape)
    x, y = torch.zeros(1, *shape, dtype=torch.float64), torch.ones(1, *shape, dtype=torch.float64)
    twin = copy.deepcopy(model).double()
    with torch.no_grad():
        stretch = float(torch.linalg.vector_norm(twin(x) - twin(y)) / torch.linalg.vector_norm(x - y))
    assert stretch * (1 - 1e-6) <= bound
    assert truth * (1 - 1e-6) <= bound <= 1.1 * truth


def test_the_bias_of_a_broadcast_normalisation_is_rounded_everywhere() -> None:
    model = nn.Sequential(Normalise([1e4] * 3), nn.Flatten(), nn.Linear(48, 2)).eval()
    certifier = Certifier(model, (1, 4, 4), arithmetic="float32")
    certifier(torch.rand(8, 1, 4, 4))  # the program is within the proven error, or this raises


# Heads that are not what their class says


class SquashedHead(nn.Linear):
    """Declares a true constant, but its rows say nothing about its scores."""

    lipschitz_constant = 1.0
    rounding_error = 100.0

    def forward(self, input: Tensor) -> Tensor:
        return input[:, : self.out_features]


def test_a_subclass_of_a_linear_layer_is_no_linear_head() -> None:
    head = SquashedHead(2, 2, bias=False)
    head.weight.data = torch.eye(2) * 0.01
    model = nn.Sequential(nn.Identity(), head).eval()
    radii = assert_holds(model, torch.tensor([[3.0, 1.0]]), torch.tensor([[-1.0, 1.0]]))
    assert float(radii) == pytest.approx(math.sqrt(2), rel=1e-5)


def test_channels_of_the_batch_are_no_channels() -> None:
    for module in (FirstChannels(1, dim=0), MaxMin(dim=0)):
        with pytest.raises(UnknownLipschitzConstant, match="batch"):
            certify(nn.Sequential(nn.Linear(3, 2), module).eval(), torch.randn(4, 3))


class MixesTheBatch(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.linear = how, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        ways: dict[str, Any] = {
            "transpose": lambda: y.t() @ torch.eye(4)[: len(x)],
            "flip": lambda: y.flip(0),
            "roll": lambda: torch.roll(y, 1),
            "mean": lambda: y - y.mean(0, keepdim=True),
            "sum": lambda: y - y.sum(),
            "cat": lambda: torch.cat([y[1:], y[:1]]),
            "permute": lambda: y.permute(1, 0),
            "sort": lambda: y.sort(0).values,
            "stack": lambda: torch.stack([y, y])[:, 0],
            "iteration": lambda: torch.stack([row for row in y]),  # noqa: C416 - iterates
            "norm": lambda: y / y.norm(),
        }
        return ways[self.how]()


@pytest.mark.parametrize(
    "how",
    ["transpose", "flip", "roll", "mean", "sum", "cat", "permute", "sort", "stack", "iteration", "norm"],
)
def test_whatever_mixes_the_inputs_of_a_batch_is_refused(how: str) -> None:
    with pytest.raises(UnknownLipschitzConstant):
        certify(MixesTheBatch(how).eval(), torch.randn(4, 4))


# Weights that are computed


@pytest.mark.parametrize("kind", ["weight_norm", "old spectral_norm", "spectral_norm", "orthogonal", "in forward"])
def test_parametrized_weights_are_those_that_the_program_uses(kind: str) -> None:
    """The margin of a point at the boundary of the float32 weights, in exact arithmetic, decides who is right."""
    torch.manual_seed(0)
    for _ in range(6):
        model = parametrized(kind)
        with torch.no_grad():
            weight = used_weight(model).double()
            normal = weight[0] - weight[1]
            x = torch.randn(40, 5, dtype=torch.float64)
            # Onto the boundary, then off it by what float32 weights and float64 weights disagree about.
            x = x - (x @ normal)[:, None] * normal / normal.square().sum()
            x = (x + 3e-8 * torch.randn(40, 1, dtype=torch.float64) * normal).float()
            certificate = certify(model, x)
            exact = [sum(a * b for a, b in zip(fractions(row), fractions(normal), strict=True)) for row in x]
        for prediction, margin, radius in zip(certificate.predictions, exact, certificate.radii, strict=True):
            assert radius == 0 or (margin > 0) == (prediction == 0)


def fractions(vector: Tensor) -> list[Any]:
    from fractions import Fraction

    return [Fraction(float(number)) for number in vector]


class NormalisedInForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 5))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight / torch.linalg.vector_norm(self.weight, dim=1, keepdim=True))


def parametrized(kind: str) -> nn.Module:
    layer = nn.Linear(5, 2, bias=False)
    made: dict[str, Any] = {
        "weight_norm": lambda: parametrizations.weight_norm(layer),
        "old spectral_norm": lambda: spectral_norm(layer),
        "spectral_norm": lambda: parametrizations.spectral_norm(layer),
        "orthogonal": lambda: parametrizations.orthogonal(layer),
        "in forward": NormalisedInForward,
    }
    return made[kind]().eval()


def used_weight(model: nn.Module) -> Tensor:
    if isinstance(model, NormalisedInForward):
        return model.weight / torch.linalg.vector_norm(model.weight, dim=1, keepdim=True)
    model(torch.zeros(1, 5))
    return model.weight  # pyright: ignore


# Ways around the checks


class Shouting(nn.Linear):
    def __call__(self, x: Tensor) -> Tensor:
        return 3 * super().__call__(x)


class Calling(nn.Linear):
    def _call_impl(self, x: Tensor) -> Tensor:
        result: Any = super()._call_impl(x)
        return 3 * result


class Repeating(nn.Sequential):
    def __iter__(self) -> Iterator[nn.Module]:
        for _ in range(3):
            yield from super().__iter__()


@pytest.mark.parametrize("cls", [Shouting, Calling])
def test_replaced_calls_are_seen(cls: Any) -> None:
    layer = cls(2, 2, bias=False)
    layer.weight.data = torch.eye(2)
    assert lipschitz_bound(layer.eval(), (2,)) == pytest.approx(3.0, rel=1e-6)
    assert_holds(layer, torch.tensor([[2.0, 1.0]]), torch.tensor([[-1.0, 1.0]]))


def test_a_sequence_that_repeats_itself_is_seen() -> None:
    model = Repeating(linear(2 * torch.eye(2))).eval()
    assert lipschitz_bound(model, (2,)) == pytest.approx(8.0, rel=1e-6)
    aol = AOLLinear(2, 2)
    aol.forward = lambda x: 3 * x  # pyright: ignore
    assert lipschitz_bound(aol.eval(), (2,)) == pytest.approx(3.0, rel=1e-6)


def test_global_hooks_are_seen() -> None:
    def tripled(module: nn.Module, inputs: Any, output: Any) -> Any:
        return 3 * output if isinstance(module, nn.Linear) else output

    model = nn.Sequential(linear(torch.eye(2)), nn.ReLU()).eval()
    handle = nn.modules.module.register_module_forward_hook(tripled)
    try:
        assert lipschitz_bound(model, (2,)) == pytest.approx(3.0, rel=1e-6)
        assert_holds(model, torch.tensor([[2.0, 1.0]]), torch.tensor([[-1.0, 1.0]]))
    finally:
        handle.remove()


class Tripling(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return 3 * result if func is F.linear else result


def test_subclasses_of_tensors_and_modes_are_refused() -> None:
    layer = linear(torch.eye(2))
    layer.weight = nn.Parameter(torch.eye(2).as_subclass(Tripling), requires_grad=False)
    with pytest.raises(UnknownLipschitzConstant, match="Tripling"):
        certify(layer, torch.randn(3, 2))

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Mode(), pytest.raises(InvalidInputError, match="Mode"):
        certify(linear(torch.eye(2)), torch.randn(3, 2))


class Reads(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else 100 * x


class LeavesTorch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(3 * x.numpy())


class WantsATensor(nn.Module):
    """Compiled code takes tensors only."""

    def forward(self, x: Tensor) -> Tensor:
        return Tensor.as_subclass(x, Tensor)


@pytest.mark.parametrize("model", [Reads(), LeavesTorch(), WantsATensor()], ids=["if", "numpy", "tensor"])
def test_code_that_needs_the_numbers_is_refused_in_one_line(model: nn.Module) -> None:
    with pytest.raises(UnknownLipschitzConstant) as caught:
        certify(model.eval(), torch.randn(3, 2))
    assert "\n" not in str(caught.value)


# Numbers out of range


@pytest.mark.parametrize("scale", [1e-160, 1e-300, 5e-324])
def test_tiny_weights_do_not_make_large_radii(scale: float) -> None:
    """Squares of such entries are zero in float64, and what looks like a constant of 0 is none."""
    model = linear(torch.eye(2, dtype=torch.float64) * scale)
    x = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    assert float(certify(model, x).radii) <= 1 / math.sqrt(2)
    deep = nn.Sequential(model, linear(torch.eye(2, dtype=torch.float64))).eval()
    assert float(certify(deep, x).radii) <= 1 / math.sqrt(2)


@pytest.mark.parametrize("size", [1e-160, 1e-300])
def test_tiny_activations(size: float) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).double().eval()
    for layer in (model[0], model[2]):
        layer.weight.data, layer.bias.data = torch.eye(2).double(), torch.zeros(2).double()  # pyright: ignore
    x = torch.tensor([[2.0, 1.0]], dtype=torch.float64) * size
    assert float(certify(model, x).radii) <= size / math.sqrt(2)


def test_huge_weights_in_float32_certify_nothing() -> None:
    """The program overflows at 0.05 from here: both scores are infinite, and the first wins."""
    model = linear(torch.tensor([[3e38, 0.0], [0.0, 3e38]]))
    x = torch.tensor([[1.0, 1.1]])
    assert float(certify(model, x, arithmetic="float32").radii) == 0.0
    beyond = linear(torch.eye(2, dtype=torch.float64) * 1.5e308)
    assert float(certify(beyond, torch.tensor([[0.2, 0.1]], dtype=torch.float64)).radii) <= 0.1


def test_limits_that_are_no_float32_numbers() -> None:
    """0.1 in float32 is larger than 0.1: the program's score is beyond what the formula allows."""
    model = nn.Sequential(nn.Hardtanh(-0.1, 0.1), linear(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))).eval()
    x = torch.tensor([[0.5, 0.1]])
    certificate = certify(model, x, arithmetic="float32")
    assert float(certificate.radii) == 0.0


def test_radii_that_are_no_numbers() -> None:
    model = linear(torch.eye(2))
    x = torch.tensor([[2.0, 1.0]])
    certificate = certify(model, x, torch.tensor([0]))
    with pytest.raises(InvalidInputError, match="eps"):
        certificate.certified(math.nan)
    assert not certificate.certified(math.inf).any()
    with pytest.raises(InvalidInputError, match="input_scale"):
        certify(model, x, input_scale=1e-310)


# Changes that were not seen


def change_in_place(model: nn.Sequential) -> None:
    with torch.no_grad():
        model[0].weight.mul_(1.5)  # pyright: ignore


def change_data(model: nn.Sequential) -> None:
    model[0].weight.data.mul_(1.5)  # pyright: ignore


def change_numpy(model: nn.Sequential) -> None:
    model[0].weight.detach().numpy()[:] *= 1.5  # pyright: ignore


def swap_data(model: nn.Sequential) -> None:
    model[0].weight.data = model[0].weight.data * 1.5  # pyright: ignore


def replace_module(model: nn.Sequential) -> None:
    model[1] = nn.Tanh()


def add_hook(model: nn.Sequential) -> None:
    def doubled(module: nn.Module, inputs: Any, output: Any) -> Any:
        return 2 * output

    model[1].register_forward_hook(doubled)


def change_attribute(model: nn.Sequential) -> None:
    model[1].negative_slope = 0.9  # pyright: ignore


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "change", [change_in_place, change_data, change_numpy, swap_data, replace_module, add_hook, change_attribute]
)
def test_a_certifier_notices_every_change(change: Any, training: bool) -> None:
    model = nn.Sequential(AOLLinear(6, 6), nn.LeakyReLU(0.1), AOLLinear(6, 3)).train(training)
    certifier = Certifier(model, (6,))
    x = torch.randn(8, 6)
    certifier(x)
    change(model)
    with pytest.raises((InvalidInputError, BrokenCertificateError)):
        certifier(x)


def test_an_in_place_first_layer_leaves_the_callers_input_alone() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)).eval()
    x = torch.randn(4, 3)
    before = x.clone()
    for arithmetic in ("float64", "float32"):
        certify(model, x, arithmetic=arithmetic)  # pyright: ignore
    assert torch.equal(x, before)


class Overwrites(nn.Module):
    """x + relu_(x) is 2 relu(x), not x + relu(x)."""

    def __init__(self, view: bool) -> None:
        super().__init__()
        self.view = view

    def forward(self, x: Tensor) -> Tensor:
        y = F.leaky_relu(x.view(x.shape) if self.view else x, -3.0, inplace=True)
        return x + y


def test_in_place_operations_change_what_they_write_to() -> None:
    assert lipschitz_bound(Overwrites(view=False).eval(), (3,)) == pytest.approx(6.0, rel=1e-6)
    with pytest.raises(UnknownLipschitzConstant, match="in place"):
        lipschitz_bound(Overwrites(view=True).eval(), (3,))


def test_a_naive_certificate_is_beaten_by_the_same_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every node counted 1, the attack would refute the radius: the tests above can fail."""
    monkeypatch.setattr(Node, "lipschitz", property(lambda self: 1.0, lambda self, value: None))
    monkeypatch.setattr("onelip.certification.margins.find_linear_head", lambda graph: None)
    tied = linear(10 * torch.eye(2))
    model = nn.Sequential(tied, tied, tied).eval()
    with pytest.raises(AssertionError):
        assert_holds(model, torch.tensor([[4.0, 1.0]]), torch.tensor([[-1.0, 1.0]]))


# Broadcasts, and ranges that were cut off


class Computed(nn.Module):
    """A function of vectors, with a weight that says which type the program has."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.arange(1.0, 9.0).reshape(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.flatten(self.function(x, self.weight.to(x.dtype)), 1)


BROADCAST: dict[str, tuple[Any, float]] = {
    "one entry of x against many numbers": (lambda x, w: torch.einsum("bi,oi->boi", x[:, :1], w), 204**0.5),
    "many entries of x against one number": (lambda x, w: torch.einsum("bi,oi->bo", x, w[:, :1]), 2 * 26**0.5),
    "a letter of length 1 in an ellipsis": (lambda x, w: torch.einsum("b...,o...->bo", x, w[:, :1]), 2 * 26**0.5),
    "a mask of one entry": (lambda x, w: torch.where(torch.tensor([True]), x[:, :1], w[0]), 2.0),
    "a mask without dimensions": (lambda x, w: torch.where(torch.tensor(False), w[0], x[:, :1]), 2.0),
    "the method, with a mask": (lambda x, w: x[:, :1].where(torch.tensor(True), w[0]), 2.0),
}


@pytest.mark.parametrize(("function", "constant"), BROADCAST.values(), ids=BROADCAST)
def test_what_torch_repeats_counts_as_often(function: Any, constant: float) -> None:
    found = lipschitz_bound(Computed(function).eval(), (4,))
    assert constant * (1 - 1e-6) <= found <= constant * (1 + 1e-6)


@pytest.mark.parametrize("end", [0.1, 0.3, 0.7, 3.3])
def test_a_function_is_looked_at_up_to_the_ends_of_its_range(end: float) -> None:
    """In float32 0.1 is above 0.1, so that what was between 1/16 and 0.1 was not looked at.

    The program's values may be a little beyond the ends: so the constant is that of a slightly wider range.
    """
    bound = lipschitz_bound(Computed(lambda x, w: (y := x.clamp(-end, end).flip(1)) * y).eval(), (4,))
    assert 2 * end * (1 + 2.0**-11) <= bound <= 2 * end * (1 + 2.0**-9)


def test_a_comparison_is_that_of_the_values_as_they_were() -> None:
    """y * (old y > 0) jumps by 0.001, which a point within 1e-9 shows."""

    def later(x: Tensor, w: Tensor) -> Tensor:
        y = x.clone()
        positive = y > 0
        y += 1e-3
        return y * positive

    with pytest.raises(UnknownLipschitzConstant, match="jumps"):
        lipschitz_bound(Computed(later).eval(), (4,))
