"""Programs that people might write and nobody had tried on certificates: each is refused, or its radii are attacked.

An idea makes a function of vectors (batch, 8) from a seed; a random linear head behind it makes the scores. What reads
numbers, has state, or computes in another type must be refused; all else must be certified or refused, and no point
within a radius may change the answer. The names say what is odd. `red_team.py --kinds ideas` runs them.
"""

from __future__ import annotations

import contextlib
import copy
import math
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from onelip.certification import certify
from onelip.layers import AOLLinear, MaxMin, SLLLinear

N = 8
Function = Callable[["Odd", Tensor], Any]
IDEAS: dict[str, tuple[Function, Callable[[Odd], None]]] = {}


class Odd(nn.Module):
    """One idea with weights of its own, and a head."""

    weight: nn.Parameter
    other: nn.Parameter
    places: Tensor
    mask: Tensor
    kept: Any

    def __init__(self, name: str) -> None:
        super().__init__()
        self.function, prepare = IDEAS[name]
        scale = float(10 ** torch.empty(()).uniform_(-1, 1))
        self.weight = nn.Parameter(scale * torch.randn(N, N))
        self.other = nn.Parameter(torch.randn(N, N))
        self.register_buffer("places", torch.randint(N, (N,)))
        self.register_buffer("mask", torch.rand(N) < 0.5)
        self.layer, self.calls, self.kept = nn.Linear(N, N), 0, []
        self.bounded = nn.Sequential(AOLLinear(N, N), MaxMin(), SLLLinear(N, N))
        with torch.no_grad():
            for parameter in self.bounded.parameters():
                parameter.add_(torch.randn_like(parameter))
        self.one = int(torch.randint(1, N - 1, ()))
        self.head = nn.LazyLinear(5)
        prepare(self)
        with torch.no_grad():
            self.head(torch.flatten(self.function(self, torch.randn(3, N)), 1))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.function(self, x), 1))


def idea(name: str, prepare: Callable[[Odd], None] = lambda model: None) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        IDEAS[name] = function, prepare
        return function

    return register


# Memory that several values share


@idea("one view is written, another read")
def _views(m: Odd, x: Tensor) -> Tensor:
    y = x.clone()
    first, second = y[:, : m.one + 1], y[:, m.one - 1 :]
    first.mul_(3)
    return torch.cat([first, second], 1)


@idea("a slice with steps is written")
def _steps(m: Odd, x: Tensor) -> Tensor:
    y = x @ m.weight
    y[:, :: m.one] += x[:, :: m.one] * 2
    y[:, 1::2] *= 3
    return y


@idea("a view of a view is written, the base returned")
def _base(m: Odd, x: Tensor) -> Tensor:
    y = x.clone()
    y.view(-1, 2, 4).transpose(1, 2)[:, 1:3].copy_(5 * x.view(-1, 4, 2)[:, :2])
    return y


@idea("as_strided overlaps itself")
def _strided(m: Odd, x: Tensor) -> Tensor:
    return x.contiguous().as_strided((len(x), 5, 4), (N, 1, 1))


@idea("flips and rolls beyond the length")
def _flips(m: Odd, x: Tensor) -> Tensor:
    y = x.reshape(-1, 2, 4)
    turned = torch.rot90(y, m.one, (1, 2)).reshape(-1, 2, 4) if m.one == 1 else y.flip(2)
    return torch.cat([y.flip(1, -1), turned, y.roll((9, -7), (2, 1))], 1)


@idea("expanded, then written")
def _expanded(m: Odd, x: Tensor) -> Tensor:
    y = x[:, :1].expand(-1, N).clone() if m.one % 2 else x[:, :1].expand(-1, N)
    y[:, m.one] += x[:, m.one]
    return y


@idea("overlapping views in cat, stack and sum of a list")
def _overlaps(m: Odd, x: Tensor) -> Tensor:
    windows = [x[:, i : i + 4] for i in range(5)]
    return torch.cat([*windows, torch.stack(windows, 2).flatten(1), sum(windows[1:], windows[0])], 1)


@idea("places that occur twice are written")
def _twice(m: Odd, x: Tensor) -> Tensor:
    y = x.clone()
    y[:, m.places] = x @ m.weight
    return y.index_add(1, m.places, x) if m.one % 2 else y


@idea("scatter and gather with constant places")
def _scatter(m: Odd, x: Tensor) -> Tensor:
    index = m.places.expand(len(x), -1)
    return x.scatter_add(1, index, x @ m.weight) if m.one % 2 else x.gather(1, index)


@idea("out= of an own buffer")
def _out(m: Odd, x: Tensor) -> Tensor:
    result = torch.empty(0, dtype=m.weight.dtype)
    torch.add(x, x @ m.weight, out=result)
    return result


@idea("the input itself is overwritten")
def _input(m: Odd, x: Tensor) -> Tensor:
    return x.mul_(2).add_(x)


# Weights


def _repeat(model: Odd) -> None:
    model.weight = nn.Parameter(torch.randn(1, N).expand(N, N), requires_grad=False)


def _negate(model: Odd) -> None:
    model.weight = nn.Parameter(torch.complex(torch.randn(N, N), torch.randn(N, N)).conj().imag, requires_grad=False)


@idea("a weight without strides", _repeat)
def _stride_zero(m: Odd, x: Tensor) -> Tensor:
    return F.linear(x, m.weight) + F.linear(x, m.weight.t())


@idea("a weight with the negative bit", _negate)
def _negative_bit(m: Odd, x: Tensor) -> Tensor:
    return F.linear(x, m.weight) * m.weight[0]


@idea("one weight, also transposed")
def _tied(m: Odd, x: Tensor) -> Tensor:
    return F.linear(F.relu(F.linear(x, m.weight)), m.weight.mT) - x


@idea("parameters change places at every call")
def _swapped(m: Odd, x: Tensor) -> Tensor:
    m.weight, m.other = m.other, m.weight
    return x @ m.weight


@idea("functional_call with other weights")
def _functional(m: Odd, x: Tensor) -> Tensor:
    return torch.func.functional_call(m.layer, {"weight": m.weight, "bias": m.other[0]}, (x,)) + m.layer(x)


@idea("a bounded layer with other weights")
def _bounded(m: Odd, x: Tensor) -> Tensor:
    name = next(name for name, _ in m.bounded.named_parameters())
    parameters = {name: 7 * m.get_parameter(f"bounded.{name}")}
    return torch.func.functional_call(m.bounded, parameters, (x,))


@idea("weights that are made in forward")
def _made(m: Odd, x: Tensor) -> Tensor:
    matrix = torch.linalg.qr(m.weight)[0] @ torch.diag(m.other[0].cumsum(0)) @ torch.linalg.inv(m.other)
    return x @ (matrix / torch.linalg.matrix_norm(matrix, 2))


@idea("a module is used again for another shape")
def _again(m: Odd, x: Tensor) -> Tensor:
    return m.layer(m.layer(x).reshape(-1, 1, N).expand(-1, 3, -1)) + m.layer(x)[:, None]


@idea("a module hidden in a closure", lambda m: setattr(m, "kept", [_hiding(nn.Linear(N, N), AOLLinear(N, N).eval())]))
def _hidden(m: Odd, x: Tensor) -> Tensor:
    return m.kept[0](x)


def _hiding(*modules: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: sum(copy.deepcopy(module).to(x.dtype)(x) for module in modules)  # pyright: ignore


@idea("a module that is made in forward")
def _fresh(m: Odd, x: Tensor) -> Tensor:
    pool = nn.AvgPool1d(2) if m.one % 2 else nn.Flatten()
    return pool(nn.ReLU()((x @ m.weight)[:, None]))


# Code around operations


class _ThreeTimes(torch.autograd.Function):
    """Its derivative is a lie."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 3 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


@idea("an autograd function with a false derivative")
def _lies(m: Odd, x: Tensor) -> Any:
    return _ThreeTimes.apply(x @ m.weight)


@idea("gradients on and off")
def _modes(m: Odd, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x @ m.weight
    with torch.enable_grad():
        y = y + checkpoint(m.layer, x, use_reentrant=False)
    with torch.inference_mode():
        return y.detach() * 2


@idea("autocast in forward")
def _autocast(m: Odd, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ m.weight).float()


@idea("a type and back")
def _types(m: Odd, x: Tensor) -> Tensor:
    other = (torch.float64, torch.float16, torch.bfloat16, torch.int32)[m.one % 4]
    return x.to(other).to(m.weight.dtype)


@idea("constants of other types")
def _constants(m: Odd, x: Tensor) -> Tensor:
    double, half = torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float16)
    return x * double + half + np.float64(0.1) + torch.arange(N) / 3 + x * np.float32(0.1) - m.places  # pyright: ignore[reportOperatorIssue]


@idea("complex numbers")
def _complex(m: Odd, x: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(x.reshape(-1, 4, 2)) * 1j) if m.one % 2 else torch.fft.rfft(x).abs()


@idea("sparse weights")
def _sparse(m: Odd, x: Tensor) -> Tensor:
    return torch.sparse.mm(m.weight.to_sparse(), x.mT).mT


@idea("masks and choices")
def _masks(m: Odd, x: Tensor) -> Tensor:
    if m.one == 1:
        return torch.where(m.mask, x @ m.weight, -x)
    return torch.cat([x[:, m.mask], x[:, ~m.mask] * 2, (x @ m.weight) * m.mask], 1)


@idea("einsum and products from both sides")
def _einsum(m: Odd, x: Tensor) -> Tensor:
    y = x.reshape(-1, 2, 4)
    return torch.einsum("bij,jk->bki", y, m.weight[:4]) if m.one % 2 else m.other[:3, :2] @ y @ m.weight[:4]


def _trebled(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return 3 * output


def _hook(m: Odd) -> None:
    m.layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 3,))
    m.bounded[0].register_forward_hook(_trebled)


@idea("hooks that scale", _hook)
def _hooked(m: Odd, x: Tensor) -> Tensor:
    return m.layer(m.bounded(x))


@idea("forward is replaced on an instance", lambda m: setattr(m.bounded[2], "forward", lambda x: 4 * x.flip(1)))
def _replaced(m: Odd, x: Tensor) -> Tensor:
    return m.bounded(x)


class _Louder(AOLLinear):
    def forward(self, x: Tensor) -> Tensor:
        return 4 * super().forward(x)


@idea("the class is replaced on an instance", lambda m: setattr(m.bounded[0], "__class__", _Louder))
def _class(m: Odd, x: Tensor) -> Tensor:
    return m.bounded(x)


@idea("a method is bound to an instance", lambda m: setattr(m.bounded, "forward", types.MethodType(_thrice, m.bounded)))
def _method(m: Odd, x: Tensor) -> Tensor:
    return m.bounded(x)


def _thrice(self: nn.Sequential, x: Tensor) -> Tensor:
    for _ in range(3):
        x = 2 * self[2](self[1](self[0](x)))
    return x


# State, randomness, the batch


@idea("every second call is another function")
def _counts(m: Odd, x: Tensor) -> Tensor:
    m.calls += 1
    return x * (1 + m.calls % 2)


@idea("a buffer moves with what it sees")
def _moves(m: Odd, x: Tensor) -> Tensor:
    m.kept = [*m.kept, x.mean()]
    return x - len(m.kept)


@idea("noise from a generator that is put back")
def _noise(m: Odd, x: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(m.one)
        return x + torch.randn(N) * 2 + x * torch.rand(N)


@idea("dropout from a generator that is put back")
def _dropout(m: Odd, x: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(m.one)
        return x * F.dropout(torch.ones(len(x), N), 0.5, training=True)


@idea("a factor for each place in the batch")
def _batch(m: Odd, x: Tensor) -> Tensor:
    return x * torch.linspace(1, 4, len(x))[:, None] if m.one % 2 else x - x[:1]


@idea("the length of the batch is a number")
def _length(m: Odd, x: Tensor) -> Tensor:
    return x * len(x) if m.one % 2 else x.reshape(-1)[: len(x) * N].reshape(len(x), N) + x.shape[0]


@idea("sizes are computed with")
def _sizes(m: Odd, x: Tensor) -> Tensor:
    return x * math.sqrt(x.numel() / x.size(0)) + x.reshape(*x.shape[:-1], 2, -1).sum(-1).repeat(1, 4)


@idea("a value that is built and thrown away")
def _unused(m: Odd, x: Tensor) -> Tensor:
    (x * 1e30).exp_() if m.one % 2 else (x @ m.weight).mul_(3)
    return torch.maximum(x, x @ m.other) - torch.minimum(x, x.roll(1, 1))


@idea("large and small factors that cancel")
def _cancel(m: Odd, x: Tensor) -> Tensor:
    size = float(10 ** (m.one * 5))
    return (x * size + 1) / size - x * size * (1 / size)


@idea("norms and their parts")
def _norms(m: Odd, x: Tensor) -> Tensor:
    y = x.reshape(-1, 2, 4)
    first = torch.hypot(x[:, :4], x[:, 4:]) if m.one == 1 else torch.linalg.vector_norm(y, 3, 1)
    return torch.cat([first, y.norm(dim=1), y.logsumexp(2), y.cumsum(2).amax(1)], 1)


@idea("in a nested lambda with a default that changes")
def _lambdas(m: Odd, x: Tensor) -> Tensor:
    steps = [lambda y, f=f: y * f + x for f in (0.5, -1.5, m.one)]
    for step in steps:
        x = step(x)  # the closure reads the x of the last step
    return x


# Broadcasts, comparisons, ranges, places


@idea("one entry against many numbers, and many against one")
def _repeated(m: Odd, x: Tensor) -> Tensor:
    first = torch.einsum("bi,io->bo", x[:, :1], m.weight)
    return first + torch.einsum("bi,oi->bo", x, m.other[:, :1])


@idea("a mask of one entry")
def _one_mask(m: Odd, x: Tensor) -> Tensor:
    y = torch.where(m.mask[:1], x[:, :1], m.weight[0])
    return y + x[:, :1].where(torch.tensor(m.one % 2 == 0), m.other[0])


@idea("a comparison of what is overwritten later")
def _later(m: Odd, x: Tensor) -> Tensor:
    y = x.clone()
    positive = y > 0
    y += 1e-3 * m.one
    return y * positive if m.one % 2 else y.masked_fill(~positive if m.one == 2 else positive, 0.0)


@idea("comparisons as numbers")
def _numbers(m: Odd, x: Tensor) -> Tensor:
    y = x @ m.weight
    return y * (y > 0).float() - 0.2 * x * (x < 0).to(x.dtype) + y.masked_fill(y > 0, 0.0)


@idea("a choice that jumps by little")
def _little(m: Odd, x: Tensor) -> Tensor:
    return torch.where(x > 0.1, x - 0.1, torch.zeros_like(x)) * 10.0 + x.masked_fill(x < 0, 10.0**-m.one)


@idea("functions in ranges whose ends are no float32 numbers")
def _ranges(m: Odd, x: Tensor) -> Tensor:
    y = (x @ m.weight).clamp(-0.1 * m.one, 0.7).flip(1)
    return y * y * y - y * y.exp()


@idea("ranges of sums, means, softmax and constants")
def _ends(m: Odd, x: Tensor) -> Tensor:
    y = torch.cat([x.softmax(1), x.clamp(-0.3, 0.1).mean(1, True), x[:, : m.one].tanh()], 1).roll(1, 1)
    return y * y / (1.3 - y)


@idea("a function near the end of where it is defined")
def _near(m: Odd, x: Tensor) -> Tensor:
    y = (x.clamp(-1, 1) * 0.1).flip(1)
    return y * torch.log(0.1 + 10.0**-m.one - y)


@idea("the batch goes round")
def _round(m: Odd, x: Tensor) -> Tensor:
    y = x.reshape(-1, 2, 4).movedim(0, m.one % 3)
    return (y.relu() * 3 - y).moveaxis(m.one % 3, 0)


@idea("constant places are filled and written")
def _filled(m: Odd, x: Tensor) -> Tensor:
    index = m.places[: m.one].unique().expand(len(x), -1)
    y = (x @ m.weight).scatter(1, index, 0.5).index_fill(1, m.places[:1], -1.0)
    return y - torch.zeros_like(x).scatter(1, index, x[:, : index.shape[1]])


@idea("the number of the input in the batch, by a sum of ones")
def _place(m: Odd, x: Tensor) -> Tensor:
    return x * torch.ones_like(x).cumsum(0)[:, : m.one].sum(1, keepdim=True)


@idea("a function mode in forward")
def _mode(m: Odd, x: Tensor) -> Tensor:
    with Trebling():
        return torch.relu(x @ m.weight)


class Trebling(TorchFunctionMode):
    """It makes relu another function."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return 3 * result if func is torch.relu else result


# Ways to call certify


def _in_threads(model: nn.Module, x: Tensor, arithmetic: Any) -> Any:
    """The largest radii of four threads, each of which also certifies something else."""
    another = nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Linear(N, 3)).eval()

    def one(index: int) -> Any:
        certify(another, x, arithmetic=arithmetic)
        return certify(model, x, arithmetic=arithmetic)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(4)))
    return found[0].predictions, torch.stack([certificate.radii for certificate in found]).amax(0)


@contextlib.contextmanager
def _default_double() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _flushed() -> Any:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _within(context: Callable[[], Any], change: Callable[[Tensor], Tensor] = lambda x: x) -> Callable[..., Any]:
    def radii_of(model: nn.Module, x: Tensor, arithmetic: Any) -> Any:
        with context():
            certificate = certify(model, change(x), arithmetic=arithmetic)
        return certificate.predictions, certificate.radii

    return radii_of


def _as_negative_view(x: Tensor) -> Tensor:
    return torch.complex(x, -x).conj().imag


SURROUNDINGS: dict[str, Callable[..., Any]] = {
    "plain": _within(contextlib.nullcontext),
    "in four threads": _in_threads,
    "under inference mode": _within(torch.inference_mode),
    "with gradients": _within(torch.enable_grad, lambda x: x.clone().requires_grad_()),
    "with float64 as default": _within(_default_double),
    "with denormals flushed": _within(_flushed),
    "of inputs with the negative bit": _within(contextlib.nullcontext, _as_negative_view),
    "of inputs that lie across": _within(contextlib.nullcontext, lambda x: x.mT.contiguous().mT),
    "in deterministic algorithms": _within(lambda: torch.backends.mkldnn.flags(enabled=False)),
}


class Copies(nn.Module):
    """A model that may write into its input, which is not that of the attack."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.clone())


def odd_model(seed: int) -> tuple[str, Odd, Tensor]:
    """An idea with its name and inputs."""
    torch.manual_seed(seed)
    name = list(IDEAS)[seed % len(IDEAS)]
    return name, Odd(name).eval().requires_grad_(False), torch.randn(16, N) * 10 ** torch.empty(16, 1).uniform_(-2, 2)


def surroundings(seed: int) -> tuple[str, Callable[..., Any]]:
    """How the idea of this seed is certified: as it is, or in other surroundings with later seeds."""
    names = list(SURROUNDINGS)
    name = names[seed // len(IDEAS) % len(names)]
    return name, SURROUNDINGS[name]
