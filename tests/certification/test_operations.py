"""Every operation with a bound against exact Jacobians, and random graphs of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from jacobians import norm_at
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification import UnknownLipschitzConstant, certify, explain, lipschitz_bound, lipschitz_table
from onelip.certification.proven_model import trace
from onelip.layers import MaxMin

ROUNDING = 1 + 1e-12
IMAGE = (4, 6, 6)


class Run(nn.Module):
    """A function as a model that computes in float64."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("kind", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def worst_norm(model: nn.Module, shape: tuple[int, ...], points: int = 6) -> float:
    """Largest norm of exact Jacobians in float64 at several points, of small and of large entries."""
    scales = [0.3, 1.0, 3.0]
    return max(
        norm_at(model, scales[i % 3] * torch.randn(shape, dtype=torch.float64).requires_grad_()) for i in range(points)
    )


def by_hand(x: Tensor) -> Tensor:
    a, b = x.chunk(2, 1)
    return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], 1)


def by_where(x: Tensor) -> Tensor:
    a, b = x.chunk(2, 1)
    return torch.cat([torch.where(a >= b, a, b), torch.where(b > a, a, b)], 1)


WEIGHT, MATRIX = torch.randn(4, 1, 1, dtype=torch.float64), torch.randn(6, 6, dtype=torch.float64)

# name: (function, how much larger than the truth the bound may be)
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "add constant": (lambda x: x + WEIGHT, 1),
    "constant minus": (lambda x: WEIGHT - x, 1),
    "times constant": (lambda x: WEIGHT * x, 1),
    "divided": (lambda x: x / WEIGHT, 1),
    "numbers": (lambda x: 2 - 3 * x / 4 + 1, 1),
    "x + x": (lambda x: x + x, 1),
    "alpha": (lambda x: torch.add(x, x, alpha=-3), 2),
    "convex": (lambda x: 0.3 * x + 0.7 * x.relu(), 1),
    "lerp": (lambda x: torch.lerp(x, x.abs(), 0.25), 2),
    "cat of branches": (lambda x: torch.cat([2 * x, x.relu()], 1), 1),
    "stack": (lambda x: torch.stack([x, 2 * x], 1), 1),
    "maxmin by hand": (by_hand, 1),
    "maxmin by where": (by_where, 1),
    "sum of halves": (lambda x: sum(x.chunk(2, 1)), 1),  # pyright: ignore
    "split and swap": (lambda x: torch.cat(list(reversed(x.split([1, 3], 1))), 1), 1),
    "broadcast": (lambda x: x + x.mean((2, 3), keepdim=True), 1),
    "broadcast channels": (lambda x: x[:, :1] + WEIGHT, 1),
    "maximum broadcast": (lambda x: torch.maximum(x, x.amax(1, keepdim=True)), 3),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), 1),
    "clamp by tensor": (lambda x: torch.clamp(x, max=WEIGHT), 1),
    "neg abs": (lambda x: -x.abs(), 1),
    "sum": (lambda x: x.sum((1, 2)), 1),
    "mean": (lambda x: torch.mean(x, dim=-1), 1),
    "amax": (lambda x: x.amax((2, 3)), 1),
    "max dim": (lambda x: x.max(1).values, 1),
    "sort": (lambda x: x.sort(1).values, 1),
    "topk": (lambda x: x.topk(2, 1).values, 1),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=1), 1),
    "reshape": (lambda x: x.reshape(len(x), -1), 1),
    "view": (lambda x: x.view(x.size(0), 2, 2, 6, 6), 1),
    "permute": (lambda x: x.permute(0, 2, 3, 1), 1),
    "transpose": (lambda x: x.transpose(1, -1).mT, 1),
    "unsqueeze squeeze": (lambda x: x.unsqueeze(1).squeeze(1), 1),
    "flip roll": (lambda x: x.flip(2).roll(1, -1), 1),
    "slices": (lambda x: x[:, ::2, 1:5, -1], 1),
    "ellipsis": (lambda x: x[..., :3], 1),
    "index twice": (lambda x: x[:, [0, 0, 1]], 1),
    "index_select": (lambda x: x.index_select(1, torch.tensor([3, 3, 3])), 1),
    "expand": (lambda x: x[:, :1].expand(-1, 5, -1, -1), 1),
    "repeat": (lambda x: x.repeat(1, 3, 1, 1), 1),
    "interleave": (lambda x: x.repeat_interleave(2, 1), 1),
    "unbind": (lambda x: x.unbind(1)[2], 1),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), 1),
    "pad reflect": (lambda x: F.pad(x, (2, 2, 1, 1), mode="reflect"), 1),
    "pad circular": (lambda x: F.pad(x, (2, 2, 1, 1), mode="circular"), 1),
    "unfold": (lambda x: F.unfold(x, 3), 1),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), 1),
    "matmul": (lambda x: x @ MATRIX, 1),
    "matrix first": (lambda x: MATRIX @ x, 1),
    "linear": (lambda x: F.linear(x, MATRIX), 1),
    "in place": (lambda x: x.clone().mul_(2).add_(1).relu_(), 1),
    "plus equals": (lambda x: x.clone().__iadd__(x), 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_methods_and_operators(name: str) -> None:
    function, slack = FUNCTIONS[name]
    model = Run(function).eval()
    truth, bound = worst_norm(model, IMAGE), lipschitz_bound(model, IMAGE)
    assert truth <= bound * ROUNDING
    assert bound <= slack * truth * (1 + 1e-6)


MODULES: list[tuple[nn.Module, tuple[int, ...], float]] = [
    (nn.Conv1d(2, 3, 3, stride=2, padding=1), (2, 9), 1.2),
    (nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (2, 8), 1),
    (nn.Conv2d(2, 4, 3, dilation=2, padding="same", groups=2), (2, 6, 6), 1.6),
    (nn.Conv3d(2, 3, (2, 3, 2), stride=(2, 1, 1), padding=1), (2, 4, 3, 3), 1.6),
    (nn.Conv3d(2, 4, 2, groups=2), (2, 3, 3, 3), 1.6),
    (nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1), (2, 5), 1.2),
    (nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, groups=2), (4, 4, 4), 1.2),
    (nn.ConvTranspose3d(2, 2, 2, stride=2), (2, 2, 2, 2), 1.2),
    (nn.AvgPool1d(3, 2, 1), (2, 7), 1),
    (nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 6, 6), 1),
    (nn.AvgPool2d(2, divisor_override=3), (2, 6, 6), 1),
    (nn.AvgPool3d(2), (1, 4, 4, 4), 1),
    (nn.AdaptiveAvgPool1d(3), (2, 7), 1),
    (nn.AdaptiveAvgPool2d((4, 3)), (1, 6, 5), 1),
    (nn.AdaptiveAvgPool3d(2), (1, 3, 3, 3), 1),
    (nn.MaxPool1d(3, 1), (1, 8), 1.8),
    (nn.MaxPool2d(3, 2, 1), (1, 6, 6), 2),
    (nn.MaxPool2d(2, 1, dilation=2), (1, 6, 6), 2.1),
    (nn.MaxPool3d(2), (1, 4, 4, 4), 1),
    (nn.AdaptiveMaxPool2d(4), (1, 6, 6), 2.1),
    (nn.LPPool2d(2, 2), (2, 4, 4), 1.0),
    (nn.LPPool1d(2, 3, stride=1), (1, 6), 1.8),
    (nn.BatchNorm2d(3), (3, 4, 4), 1),
    (nn.ReflectionPad2d(2), (1, 5, 5), 1),
    (nn.ReplicationPad1d(3), (1, 5), 1),
    (nn.ConstantPad2d(1, 2.0), (1, 3, 3), 1),
    (nn.CircularPad2d(1), (1, 3, 3), 1),
    (nn.PixelShuffle(2), (4, 2, 2), 1),
    (nn.ChannelShuffle(2), (4, 2, 2), 1),
    (nn.Upsample(scale_factor=2), (1, 3, 3), 1),
    (nn.GELU(), (50,), 1.02),
    (nn.GELU("tanh"), (50,), 1.02),
    (nn.SiLU(), (80,), 1.02),
    (nn.Mish(), (80,), 1.02),
    (nn.Hardswish(), (80,), 1.05),
    (nn.Hardsigmoid(), (8,), 1),
    (nn.SELU(), (80,), 1.2),
    (nn.CELU(0.5), (8,), 1),
    (nn.ELU(3.0), (80,), 1.2),
    (nn.Softplus(2.0), (8,), 1.1),
    (nn.Softshrink(), (8,), 1),
    (nn.Softsign(), (80,), 1.2),
    (nn.Tanhshrink(), (8,), 1.1),
    (nn.LogSigmoid(), (8,), 1.1),
    (nn.PReLU(4), (4, 3), 4.1),
    (nn.RReLU(), (8,), 1),
    (nn.Hardtanh(-2, 3), (8,), 1),
    (nn.ReLU6(inplace=True), (8,), 1),
    (nn.Dropout2d(), (2, 3, 3), 1),
    (nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Flatten(2)), (8, 2), 1),
]


@pytest.mark.parametrize(("module", "shape", "slack"), MODULES, ids=lambda value: type(value).__name__)
def test_modules_of_torch(module: nn.Module, shape: tuple[int, ...], slack: float) -> None:
    module = module.double().eval()
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.2)
    truth, bound = worst_norm(module, shape, 9), lipschitz_bound(module, shape)
    assert truth <= bound * ROUNDING
    assert bound <= slack * truth * (1 + 1e-6)


class RandomGraph(nn.Module):
    """Random operations on values so far, some used several times; all values keep the shape (batch, 4, 3, 3)."""

    def __init__(self, seed: int, length: int = 7) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.convs = nn.ModuleList([nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.ConvTranspose2d(4, 4, 1)])
        self.norm, self.maxmin, self.pool = nn.BatchNorm2d(4), MaxMin(), nn.MaxPool2d(3, 1, 1)
        self.choices = torch.randint(0, 1000, (length, 3), generator=generator).tolist()

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for which, first, second in self.choices:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(self.step(which, a, b))
        return torch.cat([values[-1], values[-2]], 1).flatten(1)[:, 3:]

    def step(self, which: int, a: Tensor, b: Tensor) -> Tensor:
        ways: list[Callable[[], Tensor]] = [
            lambda: a + b,
            lambda: a - 0.5 * b,
            lambda: torch.maximum(a, -b),
            lambda: torch.cat([a[:, 2:], b[:, :2]], 1),
            lambda: torch.cat([torch.maximum(a[:, :2], a[:, 2:]), torch.minimum(a[:, :2], a[:, 2:])], 1),
            lambda: self.convs[which % 3](a),
            lambda: self.convs[which % 3](b),
            lambda: self.norm(a).relu(),
            lambda: self.maxmin(a),
            lambda: self.pool(a) + b.mean((2, 3), keepdim=True),
            lambda: F.silu(a).flip(-1),
            lambda: a.reshape(len(a), 4, 9).sort(2).values.view_as(a),
            lambda: torch.lerp(a, b, 0.3),
            lambda: F.pad(a, (1, 1, 1, 1), mode="replicate")[:, :, 2:, 2:],
            lambda: a.amax(1, keepdim=True).expand(-1, 4, -1, -1) - b,
            lambda: F.avg_pool2d(a, 3, 1, 1).abs(),
        ]
        return ways[which % len(ways)]()


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    """Bounds against exact Jacobians, and float64 values of the traced graph against the model's."""
    torch.manual_seed(seed)
    model = RandomGraph(seed).double().eval()
    bound = lipschitz_bound(model, (4, 3, 3))
    assert worst_norm(model, (4, 3, 3), 3) <= bound * ROUNDING
    certificate = certify(model.float(), torch.randn(3, 4, 3, 3))
    assert torch.isfinite(certificate.radii).all()


@pytest.mark.parametrize("seed", range(8))
def test_rounding_of_random_graphs_in_float32(seed: int) -> None:
    """The program's scores are within the proven error of the exact ones, or certify raises."""
    torch.manual_seed(seed)
    certify(RandomGraph(100 + seed).eval(), 100 * torch.randn(16, 4, 3, 3), arithmetic="float32")


REFUSED: list[tuple[nn.Module, tuple[int, ...], list[str]]] = [
    (
        nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.LayerNorm(4, eps=0.0))),
        (4,),
        ["'1.0'", "LayerNorm", "LayerCentering"],
    ),
    (nn.GroupNorm(2, 4, eps=0.0), (4, 3), ["GroupNorm", "LayerCentering"]),
    (nn.BatchNorm1d(4, track_running_stats=False), (4,), ["BatchNorm1d", "statistics"]),
    (nn.GLU(), (4,), ["GLU", "MaxMin"]),
    (nn.Hardshrink(), (4,), ["Hardshrink", "softshrink"]),
    (nn.TransformerEncoderLayer(4, 1, 4, batch_first=True), (3, 4), ["'self_attn'", "attention"]),
    (Run(lambda x: x * x), (4,), ["product", "test_operations.py line"]),
    (Run(lambda x: x / x.norm()), (4,), ["batch"]),
    (Run(lambda x: x.exp()), (4,), ["exp"]),
    (Run(lambda x: torch.where(x > 0, x, x - 1)), (4,), ["maximum"]),
    (Run(lambda x: x.half()), (4,), ["half"]),
    (Run(lambda x: torch.fft.fft(x).real), (4,), ["fft", "complex", "CayleyConv2d"]),
]


@pytest.mark.parametrize(("module", "shape", "names"), REFUSED, ids=lambda value: type(value).__name__)
def test_refusals_say_where_why_and_what_helps(module: nn.Module, shape: tuple[int, ...], names: list[str]) -> None:
    with pytest.raises(UnknownLipschitzConstant) as caught:
        lipschitz_bound(module.eval(), shape)
    message = str(caught.value)
    assert "\n" not in message
    assert all(name in message for name in names), message


def test_explain_names_what_makes_the_product_large() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    model[0].weight.data = 7 * torch.eye(3)
    found = explain(model, (3,))
    assert [node.path for node in found.nodes] == ["0", "1", "2"]
    assert found.nodes[1].rounding == 0
    assert found.expanding()[0].path == "0"
    assert found.lipschitz == lipschitz_bound(model, (3,))
    assert "Linear            2 calls, together" in str(found)
    assert "the largest, 0: 7" in str(found)
    table = lipschitz_table(model, (3,))
    assert len(str(table).splitlines()) == 1 + len(table)


def test_explain_says_which_kind_of_call_makes_it_large() -> None:
    """Many normalisations of 1.5 make more of a ResNet's constant than its one pooling of 2; 80 columns are enough."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.BatchNorm2d(2), nn.BatchNorm2d(2)
            for norm in (self.first, self.second):
                norm.running_var.fill_(4 / 9)  # pyright: ignore[reportOptionalMemberAccess]

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x + self.second(F.relu(self.first(x))))

    model = nn.Sequential(nn.MaxPool2d(3, 2, 1), Block(), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    found = explain(model, (2, 8, 8))
    factors = [(kind, product) for kind, product, _ in found.kinds()]
    assert math.prod(product for _, product in factors) == pytest.approx(found.lipschitz, rel=1e-6)
    assert factors[0] == ("BatchNorm2d", pytest.approx(1.5**4, rel=1e-3))
    told = str(found).splitlines()
    assert max(map(len, told)) <= 80
    row = next(place for place, line in enumerate(told) if line.startswith("what makes it large"))
    assert told[row + 1].startswith("  BatchNorm2d       4 calls, together 5.062; the largest, ")
    assert "  MaxPool2d         1 call, 0: 2" in told


def test_joint_bounds_of_errors() -> None:
    """A MaxMin by hand neither stretches nor adds errors, however often it is applied."""
    model = nn.Sequential(*[Run(by_hand) for _ in range(30)]).eval()
    assert lipschitz_bound(model, (4,)) == 1.0
    assert all(node.rounds_nothing for node in trace(model, (4,)).nodes)


def test_a_constant_model_has_constant_zero() -> None:
    assert lipschitz_bound(Run(lambda x: 0 * x + 3).eval(), (4,)) == 0.0
    with pytest.raises(UnknownLipschitzConstant, match="does not depend"):
        lipschitz_bound(Run(lambda x: torch.zeros(len(x), 3)).eval(), (4,))


def test_several_uses_of_the_input() -> None:
    model = Run(lambda x: torch.cat([x, x, x], 1)).eval()
    assert lipschitz_bound(model, (4,)) == pytest.approx(math.sqrt(3), rel=1e-9)


def keyword(x: Any) -> Any:
    return F.conv2d(weight=torch.ones(1, 4, 1, 1, dtype=x.dtype), input=x)


def test_arguments_by_name() -> None:
    assert lipschitz_bound(Run(keyword).eval(), IMAGE) == pytest.approx(2.0, rel=1e-6)
