"""238 small programs such as people write, and which of them `certify` knows a constant of.

    python benchmarks/ordinary_programs.py                  # one line for each program, then the sums of the groups
    python benchmarks/ordinary_programs.py --only softmax   # those whose name has this in it

Most are one function between a linear layer and a linear head. Those of `NO_CONSTANT` have no useful global constant
and ought to be refused. "wrong": the quotient of two sampled inputs is above the constant.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import onelip
from onelip.errors import OnelipError

Make = Callable[[], nn.Module]
IMAGE, SEQUENCE, VECTOR = (3, 8, 8), (6, 8), (16,)


class Between(nn.Module):
    """head(f(stem(x))), where `f` may read the numbers `p` of the module."""

    def __init__(self, stem: nn.Module, f: Callable[..., Any], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.stem, self.f, self.p = stem, f, nn.Parameter(torch.rand(8, 8) / 2 + 0.1)
        middle = self.middle(torch.zeros(2, *shape))
        self.head = nn.Linear(middle.flatten(1).shape[1], 5)

    def middle(self, x: Tensor) -> Any:
        """f of what the stem makes, with the parameters if f takes them."""
        x = self.stem(x)
        code = getattr(self.f, "__code__", None)
        return self.f(x, self.p) if code is not None and code.co_argcount == 2 else self.f(x)

    def forward(self, x: Tensor) -> Any:
        """Five scores."""
        return self.head(self.middle(x).flatten(1))


class Whole(nn.Module):
    """The module `f(stem(x), parts)` as it is, for programs whose end matters."""

    def __init__(self, stem: nn.Module, f: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.stem, self.f, self.parts = stem, f, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Any:
        """What f returns."""
        return self.f(self.stem(x), *self.parts)


class Recurrent(nn.Module):
    """A cell of torch's over the steps of a sequence."""

    def __init__(self, cell: nn.Module, state: Callable[[Any], Tensor] = lambda h: h) -> None:
        super().__init__()
        self.cell, self.state, self.head = cell, state, nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """The head of the last state; inputs are bounded first."""
        h: Any = None
        for step in x.tanh().unbind(1):
            h = self.cell(step, h)
        return self.head(self.state(h))


class Library(nn.Module):
    """A recurrent layer of torch's on bounded steps."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """The head of the last step."""
        return self.head(self.layer(x.clamp(-1, 1))[0][:, -1])


class Frames(nn.Module):
    """An image network over the frames of a clip: the batch moves into (batch * frames)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, frames, 3, 8, 8) to scores."""
        batch, frames = x.shape[:2]
        y = self.conv(x.view(batch * frames, *x.shape[2:])).relu().mean((2, 3))
        return self.head(y.view(batch, frames, -1).mean(1))


class Attention(nn.Module):
    """Attention of positions over each other; with `bounded` queries, keys and values behind tanh."""

    def __init__(self, bounded: bool, library: bool = False) -> None:
        super().__init__()
        self.bounded, self.library = bounded, library
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the mean position."""
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.bounded:
            q, k, v = q.tanh(), k.tanh(), v.tanh()
        if self.library:
            return self.head(F.scaled_dot_product_attention(q, k, v).mean(1))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(8)).softmax(-1)
        return self.head((weights @ v).mean(1))


class Gates(nn.Module):
    """SE, GLU, highway and their kin: `f` joins a value with what a second layer makes of it."""

    def __init__(self, f: Callable[[Tensor, Tensor], Tensor], width: int = 8) -> None:
        super().__init__()
        self.a, self.b, self.f, self.head = nn.Linear(16, width), nn.Linear(16, width), f, nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        return self.head(self.f(self.a(x), self.b(x)))


class Excited(nn.Module):
    """Squeeze and excite on bounded channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.down, self.up, self.head = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Conv2d(4, 2, 1),
            nn.Conv2d(2, 4, 1),
            nn.Linear(4, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        x = F.relu6(self.conv(x))
        gate = self.up(self.down(F.adaptive_avg_pool2d(x, 1)).relu()).sigmoid()
        return self.head((x * gate).mean((2, 3)))


class Scores:
    """An output class, as transformers has them."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


def _min_gru(x: Tensor, p: Tensor) -> Tensor:
    h = torch.zeros(x.shape[0], 8, dtype=x.dtype)
    for t in range(x.shape[1]):
        z = torch.sigmoid(x[:, t] @ p)
        h = (1 - z) * h + z * torch.tanh(x[:, t])
    return h


def _independent_rnn(x: Tensor, p: Tensor) -> Tensor:
    h, states = x.new_zeros(x.size(0), 8), []
    for t in range(x.size(1)):
        h = torch.relu(x[:, t] + p[0] * h)
        states.append(h)
    return torch.stack(states, dim=1).mean(1)


def _time_first(x: Tensor, p: Tensor) -> Tensor:
    x = x.permute(1, 0, 2)
    return torch.stack([torch.relu(x[t] @ p) for t in range(x.shape[0])], 0).mean(0)


def _slots(x: Tensor, p: Tensor) -> Tensor:
    keys = x.tanh()
    return torch.einsum("bns,bnd->bsd", torch.einsum("bnd,sd->bns", keys, p[:3]).softmax(-1), keys)


def _linear_attention(x: Tensor) -> Tensor:
    k = F.elu(x.tanh()) + 1
    sums = 1 / (torch.einsum("bnd,bd->bn", k, k.sum(1)) + 0.1)
    return torch.einsum("bnd,bde->bne", k, torch.einsum("bnd,bne->bde", k, x.tanh())) * sums.unsqueeze(-1)


def _causal_attention(x: Tensor) -> Tensor:
    x = x.tanh()
    scores = (x @ x.transpose(1, 2)).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
    return scores.softmax(-1) @ x


def _attention_pool(x: Tensor, p: Tensor) -> Tensor:
    values = x.tanh()
    return torch.bmm((values @ p[0]).softmax(1).unsqueeze(1), values)


def _midpoint(x: Tensor, p: Tensor) -> Tensor:
    for _ in range(4):
        x = x + 0.25 * torch.tanh((x + 0.125 * torch.tanh(x @ p)) @ p)
    return x


def _chebyshev(x: Tensor) -> Tensor:
    x = torch.tanh(x)
    terms = [torch.ones_like(x), x]
    for _ in range(2):
        terms.append(2 * x * terms[-1] - terms[-2])
    return torch.stack(terms, -1)


def _llama_norm(x: Tensor) -> Tensor:
    kind = x.dtype
    x = x.to(kind)
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2)).to(kind)


def _exponential_map(x: Tensor) -> Tensor:
    norm = x.norm(dim=-1, keepdim=True).clamp_min(1e-3)
    return torch.tanh(norm) * x / norm


def _householder(x: Tensor, p: Tensor) -> Tensor:
    a, b, t = *x.split(4, 1), p[0, :4]
    side = b * torch.sin(t / 2) - a * torch.cos(t / 2)
    turned = a * torch.cos(t) + b * torch.sin(t), a * torch.sin(t) - b * torch.cos(t)
    return torch.cat([torch.where(side <= 0, a, turned[0]), torch.where(side <= 0, b, turned[1])], 1)


def _cbam(x: Tensor) -> Tensor:
    x = x.tanh()
    maps = torch.cat([x.max(1, keepdim=True)[0], x.mean(1, keepdim=True)], 1)
    return x * torch.sigmoid(F.conv2d(maps, torch.full((1, 2, 3, 3), 0.1, dtype=x.dtype), padding=1))


def _eca(x: Tensor) -> Tensor:
    x = F.hardtanh(x)
    y = F.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(-1, -2)
    y = F.conv1d(y, torch.full((1, 1, 3), 0.3, dtype=x.dtype), padding=1).transpose(-1, -2).unsqueeze(-1)
    return x * y.sigmoid().expand_as(x)


def _coordinates(x: Tensor) -> Tensor:
    n, _, h, w = x.shape
    rows = torch.linspace(-1, 1, h, dtype=x.dtype).view(1, 1, h, 1).expand(n, 1, h, w)
    return torch.cat([x, rows, rows.transpose(2, 3)], 1)


def _blur_pool(x: Tensor) -> Tensor:
    row = torch.tensor([1.0, 2, 1], dtype=x.dtype) / 4
    kernel = (row[:, None] * row)[None, None].repeat(4, 1, 1, 1)
    return F.conv2d(F.pad(F.max_pool2d(x, 2, 1), (1, 1, 1, 1), "reflect"), kernel, stride=2, groups=4)


def _standardised(x: Tensor, p: Tensor) -> Tensor:
    w = p[:4, :4, None, None]
    return F.conv2d(x, (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5))


def _response_norm(x: Tensor) -> Tensor:
    x = x.permute(0, 2, 3, 1).clamp(-1, 1)
    norms = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
    return x * (norms / (norms.mean(dim=-1, keepdim=True) + 0.1)) + x


def _involution(x: Tensor) -> Tensor:
    x = x.tanh()
    n, c, h, w = x.shape
    kernels = torch.sigmoid(x[:, :1].repeat(1, 9, 1, 1)).view(n, 1, 9, h, w)
    return (kernels * F.unfold(x, 3, padding=1).view(n, c, 9, h, w)).sum(2)


def _windows(x: Tensor, p: Tensor) -> Tensor:
    n, c, h, w = x.shape
    parts = x.view(n, c, 2, h // 2, 2, w // 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
    return F.relu(p[0, 0] * parts + parts.mean(1, keepdim=True)).view(n, -1)


def _flips_in_the_batch(x: Tensor) -> Tensor:
    n = x.shape[0]
    y = F.relu(torch.cat([x, x.flip(3)], 0)).mean((2, 3))
    return (y[:n] + y[n:]) / 2


def _pyramid(x: Tensor) -> Tensor:
    kernel = torch.full((2, 4, 3, 3), 0.1, dtype=x.dtype)
    parts = [F.relu(F.conv2d(x, kernel, padding=d, dilation=d)) for d in (1, 2, 3)]
    size = x.shape[-2:]
    top = F.interpolate(F.adaptive_avg_pool2d(x, 1), size=size, mode="bilinear", align_corners=False)
    return torch.cat([*parts, top], dim=1)


def _images(f: Callable[..., Any]) -> Make:
    return lambda: Between(nn.Conv2d(3, 4, 3, padding=1), f, IMAGE)


def _sequences(f: Callable[..., Any]) -> Make:
    return lambda: Between(nn.Linear(8, 8), f, SEQUENCE)


def _vectors(f: Callable[..., Any]) -> Make:
    return lambda: Between(nn.Linear(16, 8), f, VECTOR)


def _whole(f: Callable[..., Any], *parts: Callable[[], nn.Module], width: int = 5) -> Make:
    return lambda: Whole(nn.Linear(16, width), f, *[make() for make in parts])


def _put(x: Tensor, place: Any, value: Any) -> Tensor:
    x = x.clone()
    x[place] = value
    return x


def _places(*shape: int, below: int) -> Tensor:
    return (torch.arange(math.prod(shape)) * 7 % below).reshape(shape)


_MASK = torch.arange(8).reshape(8, 1) + torch.arange(8) < 9
_GRID = torch.stack(torch.meshgrid(torch.linspace(-0.8, 0.8, 5), torch.linspace(-0.7, 0.9, 5), indexing="ij"), -1)[None]


def _pool_and_unpool(x: Tensor) -> Tensor:
    places = (torch.arange(4)[:, None] * 16 + torch.arange(4) * 2).expand(len(x), 4, 4, 4)
    return F.max_unpool2d(F.max_pool2d(x, 2), places, [2, 2])


def _dice(x: Tensor) -> Tensor:
    low, high = torch.tensor([1.0, 1.0]) / math.sqrt(2), torch.tensor([1.0, -1.0]) / math.sqrt(2)
    rows = torch.stack([x[..., 0::2, :], x[..., 1::2, :]], -1)
    return torch.cat([rows @ low.to(x), rows @ high.to(x)], 1)


def _gem(x: Tensor, p: float = 3.0) -> Tensor:
    return F.avg_pool2d(x.clamp(min=1e-6).pow(3.0), 8).pow(1 / 3.0)


def _moved_batch(x: Tensor, p: Tensor) -> Tensor:
    return (x.transpose(0, 1) @ p).transpose(0, 1)


IMAGES: dict[str, Callable[..., Any]] = {
    "upsample bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "upsample bilinear align_corners": lambda x: F.interpolate(x, (13, 13), mode="bilinear", align_corners=True),
    "resize bicubic": lambda x: F.interpolate(x, size=(12, 12), mode="bicubic"),
    "resize area": lambda x: F.interpolate(x, size=(3, 5), mode="area"),
    "resize antialiased": lambda x: F.interpolate(x, size=(5, 5), mode="bilinear", antialias=True),
    "upsample nearest": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "grid_sample": lambda x: F.grid_sample(x, _GRID.to(x.dtype).expand(len(x), -1, -1, -1), align_corners=False),
    "affine crop": lambda x: F.grid_sample(
        x,
        F.affine_grid(
            torch.tensor([[[0.8, 0.1, 0.0], [-0.1, 0.8, 0.1]]], dtype=x.dtype).expand(len(x), 2, 3),
            [len(x), 4, 6, 6],
            align_corners=False,
        ),
        align_corners=False,
    ),
    "fold of unfold": lambda x: F.fold(F.unfold(x, 3, padding=1), (8, 8), 3, padding=1),
    "patches by unfold": lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2),
    "einsum of channels": lambda x, p: torch.einsum("nchw,dc->ndhw", x, p[:, :4]),
    "einsum of rows and columns": lambda x, p: torch.einsum("nchw,hk,wl->nckl", x, p, p),
    "tensordot": lambda x, p: torch.tensordot(x, p[:4], dims=([1], [0])),  # pyright: ignore[reportArgumentType]
    "max_unpool": _pool_and_unpool,
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "patches by permute": lambda x: x.reshape(-1, 4, 4, 2, 4, 2).permute(0, 2, 4, 1, 3, 5).flatten(3),
    "roll of windows": lambda x: x.roll((2, 2), (2, 3)),
    "masked_fill": lambda x: x.masked_fill(_MASK, 0.0),
    "where by a constant mask": lambda x: torch.where(_MASK, x, torch.zeros((), dtype=x.dtype)),
    "border written in place": lambda x: _put(x, (slice(None), slice(None), 0), 0.0),
    "channel written in place": lambda x: _put(x, (slice(None), 0), x[:, 1]),
    "blur": lambda x: F.conv2d(x, torch.full((4, 1, 3, 3), 1 / 9, dtype=x.dtype), padding=1, groups=4),
    "Haar wavelet": _dice,
    "low pass by rfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * _MASK[:, :5], s=(8, 8)),
    "real part of fft2": lambda x: torch.fft.fft2(x, norm="ortho").real,
    "FNet mixing": lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
    "spectrum as pairs": lambda x: torch.view_as_real(torch.fft.rfft2(x, norm="ortho")),
    "rot90": lambda x: x.rot90(1, (2, 3)),
    "mean of flips": lambda x: (x + x.flip(3)) / 2,
    "image gradients": lambda x: torch.cat([x.diff(dim=2).flatten(1), x.diff(dim=3).flatten(1)], 1),
    "channel shuffle by view": lambda x: x.view(-1, 2, 2, 8, 8).transpose(1, 2).reshape(-1, 4, 8, 8),
    "replicate padding and mean": lambda x: F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1),
    "spatial centering": lambda x: x - x.mean((2, 3), keepdim=True),
    "stack of views and mean": lambda x: torch.stack([x, x.flip(2), x.flip(3)], 1).mean(1),
    "max over rotations": lambda x: torch.stack([x.rot90(k, (2, 3)) for k in range(4)]).amax(0),
    "averages without padding": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "pyramid of pools": lambda x: torch.cat([F.adaptive_avg_pool2d(x, n).flatten(1) for n in (1, 2, 4)], 1),
    "fractional max pooling": lambda x: F.fractional_max_pool2d(
        x, 2, output_size=4, _random_samples=torch.full((len(x), 4, 2), 0.5, dtype=x.dtype)
    ),
    "GeM pooling": _gem,
    "std pooling": lambda x: torch.cat([x.mean((2, 3)), x.flatten(2).std(-1)], 1),
    "LocalResponseNorm": lambda x: F.local_response_norm(x, 3),
    "GroupNorm": lambda x: F.group_norm(x, 2),
    "InstanceNorm": F.instance_norm,
    "GlobalResponseNorm of bounded": lambda x: x.tanh() * torch.linalg.vector_norm(x.tanh(), dim=(2, 3), keepdim=True),
    "spatial soft-argmax": lambda x: x.flatten(2).softmax(-1) @ torch.linspace(-1, 1, 64, dtype=x.dtype),
    "LSE pooling": lambda x: x.flatten(2).logsumexp(-1),
    "CBAM of bounded": _cbam,
    "ECA of bounded": _eca,
    "CoordConv": _coordinates,
    "ASPP": _pyramid,
    "blur pooling": _blur_pool,
    "weight standardisation": _standardised,
    "GRN of bounded": _response_norm,
    "involution of bounded": _involution,
    "windows as rows": _windows,
    "flips in the batch": _flips_in_the_batch,
    "DCT": lambda x, p: (p @ x @ p.t()).abs(),
    "global filter": lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho") * (1 + 0.5j), norm="ortho"),
}
SEQUENCES: dict[str, Callable[..., Any]] = {
    "cumsum": lambda x: x.cumsum(1),
    "causal mean": lambda x: x.cumsum(1) / torch.arange(1, 7, dtype=x.dtype)[:, None],
    "x @ matrix": lambda x, p: x @ p,
    "matrix @ x": lambda x, p: p[:6, :6].softmax(-1) @ x,
    "x @ vector": lambda x, p: x @ p[0],
    "bmm with an expanded matrix": lambda x, p: torch.bmm(p[:6, :6].expand(len(x), 6, 6), x),
    "matmul by heads": lambda x, p: x.view(-1, 6, 2, 4).transpose(1, 2) @ p.view(2, 8, 4)[:, :4],
    "index_add": lambda x: torch.zeros_like(x).index_add(1, torch.tensor([0, 1, 1, 2, 0, 5]), x),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, _places(6, 8, below=6).expand(len(x), 6, 8), x),
    "gather": lambda x: x.gather(1, _places(4, 8, below=6).expand(len(x), 4, 8)),
    "take_along_dim": lambda x: x.take_along_dim(_places(1, 6, 8, below=6), 1),
    "index_put": lambda x: torch.zeros_like(x).index_put((torch.arange(len(x))[:, None], torch.arange(3)), x[:, 3:]),
    "pairs by two lists": lambda x: x[:, [0, 1, 2], [2, 1, 0]],
    "tril": lambda x: x.tril(),
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
    "diag_embed": lambda x: x.diag_embed(),
    "broadcast_to": lambda x: x.mean(1, keepdim=True).broadcast_to(x.shape),
    "hstack": lambda x: torch.hstack([x, x.flip(1)]),
    "dstack": lambda x: torch.dstack([x, x.flip(1)]),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "moving average": lambda x: F.avg_pool1d(x.transpose(1, 2), 3, 1, 1).transpose(1, 2),
    "series decomposition": lambda x: x - F.avg_pool1d(x.transpose(1, 2), 3, 1, 1).transpose(1, 2),
    "batch second": _moved_batch,
    "mean of time first": lambda x: x.transpose(0, 1).mean(0),
    "steps as rows": lambda x, p: (x.reshape(-1, 8) @ p).reshape(-1, 6, 8),
    "masked mean": lambda x: (x * torch.tensor([1.0, 1, 1, 1, 0, 0])[:, None]).sum(1) / 4,
    "positions": lambda x: x + torch.linspace(0, 1, 48, dtype=x.dtype).reshape(6, 8).sin(),
    "rotary": lambda x: x * 0.6 + torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2) * 0.8,
    "baddbmm": lambda x, p: torch.baddbmm(torch.zeros(1, dtype=x.dtype), x, p.expand(len(x), 8, 8), alpha=0.5),
    "spectrum of a series": lambda x: torch.fft.rfft(x, dim=1).abs(),
    "differences": lambda x: x.diff(dim=1, n=2),
    "median over time": lambda x: x.median(dim=1).values,
    "kthvalue": lambda x: x.kthvalue(2, dim=1).values,
    "quantile": lambda x: x.quantile(0.25, dim=1),
    "cummax": lambda x: x.cummax(1).values,
    "std over time": lambda x: x.std(1),
    "softmax over time": lambda x: x.softmax(1),
    "attention pooling of constants": lambda x, p: x.softmax(-1) @ p,
    "norm of order 1": lambda x: x.norm(p=1, dim=-1),
    "norm of order inf": lambda x: torch.linalg.vector_norm(x, ord=math.inf, dim=-1),
    "log cosh": lambda x: torch.logaddexp(x, -x),
    "hypot": lambda x: torch.hypot(x[..., :4], x[..., 4:]),
    "minimal GRU": _min_gru,
    "independent RNN": _independent_rnn,
    "time first, step by step": _time_first,
    "slots of bounded": _slots,
    "linear attention of bounded": _linear_attention,
    "causal attention of bounded": _causal_attention,
    "attention pooling of bounded": _attention_pool,
    "causal convolution": lambda x: F.pad(x.transpose(1, 2), (4, 0)).unfold(2, 3, 2).mean(-1),
    "deep sets": lambda x, p: torch.tanh(x.reshape(len(x) * 6, 8) @ p).reshape(len(x), 6, -1).sum(1),
    "graph convolution": lambda x, p: F.relu(torch.einsum("ij,bjd->bid", p[:6, :6].softmax(-1), x)).mean(dim=-2),
    "class token": lambda x, p: torch.cat((p[None, :1].expand(x.shape[0], -1, -1), x), dim=1),
    "log spectrum": lambda x: torch.log(torch.fft.rfft(x, dim=-1).abs() + 0.1),
}
VECTORS: dict[str, Callable[..., Any]] = {
    "swish with beta": lambda x, p: x * torch.sigmoid(1.5 * x),
    "GELU by tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "GELU by erf": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "quick GELU": lambda x: x * torch.sigmoid(1.702 * x),
    "Snake": lambda x: x + torch.sin(2.0 * x) ** 2 / 2.0,
    "Mish by hand": lambda x: x * torch.tanh(F.softplus(x)),
    "hard swish by hand": lambda x: x * F.relu6(x + 3) / 6,
    "leaky by where": lambda x: torch.where(x > 0, x, 0.1 * x),
    "ELU by where": lambda x: torch.where(x > 0, x, torch.exp(x.clamp(max=0)) - 1),
    "relu by a product": lambda x: x * (x > 0),
    "sqrt(x^2 + eps)": lambda x: torch.sqrt(x**2 + 1e-3),
    "Charbonnier mean": lambda x: torch.sqrt(x * x + 1e-2).mean(-1, keepdim=True),
    "Gaussian": lambda x: torch.exp(-(x**2)),
    "softsign by hand": lambda x: x / (1 + x.abs()),
    "log1p of |x|": lambda x: torch.sign(x) * torch.log1p(x.abs()),
    "log1p of relu": lambda x: torch.log1p(x.relu()),
    "square of tanh": lambda x: x.tanh() ** 2,
    "softplus by hand": lambda x: torch.log(1 + torch.exp(-x.abs())) + x.relu(),
    "sine": lambda x: torch.sin(3 * x),
    "random features": lambda x: torch.cat([x.cos(), x.sin()], -1),
    "isru": lambda x: x / torch.sqrt(1 + x * x),
    "bent identity": lambda x: (torch.sqrt(x * x + 1) - 1) / 2 + x,
    "PReLU of channels": lambda x, p: F.prelu(x, p[0]),
    "per-channel swish": lambda x, p: x * torch.sigmoid(p[0] * x),
    "soft threshold": lambda x: x.sign() * (x.abs() - 0.1).relu(),
    "nan_to_num": lambda x: x.nan_to_num(),
    "top 3 of 8": lambda x: x.topk(3).values,
    "maxout": lambda x: x.view(-1, 4, 2).amax(-1),
    "norm with eps": lambda x: torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6),
    "RMS": lambda x: x.pow(2).mean(-1, keepdim=True).add(1e-2).sqrt(),
    "L2 normalised with a large eps": lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1.0),
    "clamped normalise": lambda x: F.normalize(x, dim=-1, eps=0.1),
    "x / max(norm, 1)": lambda x: x / x.norm(dim=-1, keepdim=True).clamp(min=1.0),
    "LayerNorm": lambda x: F.layer_norm(x, (8,), eps=1e-2),
    "LayerNorm by hand": lambda x: (
        (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-2)
    ),
    "RMSNorm by hand": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2),
    "squash of capsules": lambda x: (
        x
        * (x * x).sum(-1, keepdim=True)
        / (1 + (x * x).sum(-1, keepdim=True))
        / x.norm(dim=-1, keepdim=True).clamp(min=1e-3)
    ),
    "softmax": lambda x: x.softmax(-1),
    "softmax with temperature": lambda x: F.softmax(x / 0.5, dim=-1),
    "log_softmax inside": lambda x: x.log_softmax(-1),
    "softmin": lambda x: F.softmin(x, dim=-1),
    "logsumexp": lambda x: x.logsumexp(-1, keepdim=True),
    "cdist to prototypes": lambda x, p: torch.cdist(x, p, p=2.0),
    "distance to prototypes": lambda x, p: torch.norm(x[:, None] - p, dim=-1),
    "pairwise_distance": lambda x, p: F.pairwise_distance(x[:, None], p[None]),
    "RBF of prototypes": lambda x, p: torch.exp(-(torch.cdist(x, p) ** 2)),
    "kernel of distances": lambda x, p: 1 / (1 + torch.norm(x[:, None] - p, dim=-1)),
    "median": lambda x: x.median(dim=-1, keepdim=True).values,
    "branches of disjoint halves": lambda x: torch.cat([x[:, :4].tanh(), x[:, 4:].relu()], -1),
    "column_stack": lambda x: torch.column_stack([x, -x]),
    "addmm": lambda x, p: torch.addmm(p[0], x, p, beta=0.5, alpha=2.0),
    "outer with a constant": lambda x, p: x[:, :, None] * p[0],
    "minmax clamp": lambda x: x.clamp(-1, 1).pow(3),
    "exp of bounded": lambda x: torch.exp(x.clamp(max=1)),
    "gate of bounded": lambda x: x[:, :4].tanh() * x[:, 4:].sigmoid(),
    "product of sigmoids": lambda x: x[:, :4].sigmoid() * x[:, 4:].sigmoid(),
    "reciprocal of softplus": lambda x: 1 / (1 + F.softplus(x)),
    "soft quantisation": lambda x, p: (-torch.cdist(x, p)).softmax(-1) @ p,
    "RBF of each entry": lambda x, p: torch.exp(-((x.unsqueeze(-1) - p[0]) ** 2)),
    "Chebyshev polynomials": _chebyshev,
    "Fourier features": lambda x: (x[..., None] * 2.0 ** torch.arange(3)).flatten(1).sin(),
    "exponential map": _exponential_map,
    "ordinal scores": lambda x: torch.sigmoid(x[:, :1] + torch.arange(4.0)),
    "Dirichlet mean": lambda x: (F.softplus(x) + 1) / (F.softplus(x) + 1).sum(1, keepdim=True),
    "CReLU": lambda x: F.relu(torch.cat((x, -x), 1)),
    "GroupSort": lambda x: x.view(*x.shape[:-1], 4, 2).sort(-1)[0].reshape(x.shape),
    "PReLU by max and min": lambda x, p: torch.max(x, torch.zeros_like(x)) + p[0] * torch.min(x, torch.zeros_like(x)),
    "RMSNorm of LLaMA": _llama_norm,
    "NAC": lambda x, p: F.linear(x, torch.tanh(p) * torch.sigmoid(p)),
    "midpoint steps": _midpoint,
    "addcmul of bounded": lambda x: torch.addcmul(torch.zeros_like(x), x.tanh(), x.sigmoid(), value=0.5),
    "glu of tanh": lambda x: F.glu(x.tanh(), dim=-1),
    "Householder activation": _householder,
    "median of three": lambda x, p: torch.stack([x @ p, x @ p.T, x], 0).median(0).values,
    "log of mean probabilities": lambda x, p: torch.stack([x.log_softmax(-1), (x @ p).log_softmax(-1)]).logsumexp(0),
    "dropouts in evaluation": lambda x: torch.stack([F.dropout(x, 0.5, False) for _ in range(3)], dim=0).mean(dim=0),
}
HEADS: dict[str, tuple[tuple[int, ...], Make]] = {
    "tuple": (VECTOR, _whole(lambda x: (x, x.relu()))),
    "dictionary": (VECTOR, _whole(lambda x: {"logits": x, "features": x.relu()})),
    "output class": (VECTOR, _whole(Scores)),
    "one logit": (VECTOR, _whole(lambda x: x, width=1)),
    "one number squeezed": (VECTOR, _whole(lambda x: x.squeeze(1), width=1)),
    "probabilities": (VECTOR, _whole(lambda x: x.softmax(-1))),
    "log-probabilities": (VECTOR, _whole(lambda x: F.log_softmax(x, dim=1))),
    "sigmoid scores": (VECTOR, _whole(torch.sigmoid)),
    "temperature": (VECTOR, _whole(lambda x: x / 0.7)),
    "mean of an ensemble": (VECTOR, _whole(lambda x, a, b: (a(x) + b(x)) / 2, *[lambda: nn.Linear(5, 5)] * 2)),
    "cosine head": (VECTOR, _whole(lambda x, a: F.linear(x.tanh(), F.normalize(a.weight)), lambda: nn.Linear(5, 5))),
    "negative distances": (VECTOR, _whole(lambda x, a: -torch.cdist(x, a.weight), lambda: nn.Linear(5, 5))),
    "two heads": (VECTOR, _whole(lambda x, a, b: torch.cat([a(x), b(x)], 1), *[lambda: nn.Linear(5, 3)] * 2)),
}
MODULES: dict[str, tuple[tuple[int, ...], Make]] = {
    "tanh RNN cell": (SEQUENCE, lambda: Recurrent(nn.RNNCell(8, 8))),
    "GRU cell": (SEQUENCE, lambda: Recurrent(nn.GRUCell(8, 8))),
    "LSTM cell": (SEQUENCE, lambda: Recurrent(nn.LSTMCell(8, 8), lambda h: h[0])),
    "nn.RNN": (SEQUENCE, lambda: Library(nn.RNN(8, 8, batch_first=True))),
    "nn.GRU": (SEQUENCE, lambda: Library(nn.GRU(8, 8, batch_first=True))),
    "nn.LSTM": (SEQUENCE, lambda: Library(nn.LSTM(8, 8, batch_first=True))),
    "frames of a clip": ((4, 3, 8, 8), Frames),
    "attention of bounded values": (SEQUENCE, lambda: Attention(True)),
    "library attention of bounded values": (SEQUENCE, lambda: Attention(True, True)),
    "GLU of bounded values": (VECTOR, lambda: Gates(lambda a, b: a.tanh() * b.sigmoid())),
    "highway": (VECTOR, lambda: Gates(lambda a, b: b.sigmoid() * a.tanh() + (1 - b.sigmoid()) * F.hardtanh(b))),
    "squeeze and excite of bounded": (IMAGE, Excited),
    "max of two layers": (VECTOR, lambda: Gates(torch.maximum)),
    "where of two layers": (VECTOR, lambda: Gates(lambda a, b: torch.where(a > b, a, b))),
    "cross gate": (VECTOR, lambda: Gates(lambda a, b: a.clamp(-2, 2) * b.clamp(0, 1))),
}
_OUTPUTS: dict[str, Any] = {"tuple": 0, "dictionary": "logits", "output class": "logits"}
NO_CONSTANT: dict[str, tuple[tuple[int, ...], Make]] = {
    "attention": (SEQUENCE, lambda: Attention(False)),
    "library attention": (SEQUENCE, lambda: Attention(False, True)),
    "GLU": (VECTOR, lambda: Gates(lambda a, b: a * b.sigmoid())),
    "bilinear": (VECTOR, lambda: Gates(lambda a, b: a * b)),
    "polynomial": (VECTOR, _vectors(lambda x: x + x**2)),
    "exponential": (VECTOR, _vectors(torch.exp)),
    "square": (VECTOR, _vectors(torch.square)),
    "ratio": (VECTOR, _vectors(lambda x: x[:, :4] / x[:, 4:])),
    "cosine similarity": (VECTOR, _vectors(lambda x: x / x.norm(dim=-1, keepdim=True))),
    "step": (VECTOR, _vectors(lambda x: (x > 0) + 0.0 * x)),
    "jump by where": (VECTOR, _vectors(lambda x: torch.where(x > 0, x, x - 1))),
    "rounding": (VECTOR, _vectors(lambda x: x.round())),
    "argmax": (VECTOR, _vectors(lambda x: F.one_hot(x.argmax(-1), 8).to(x))),
    "square root": (VECTOR, _vectors(lambda x: x.abs().sqrt())),
    "logarithm": (VECTOR, _vectors(lambda x: x.abs().log())),
    "sum of squares": (VECTOR, _vectors(lambda x: (x * x).sum(-1, keepdim=True))),
    "covariance": (IMAGE, _images(lambda x: x.flatten(2) @ x.flatten(2).mT)),
    "product of channels": (IMAGE, _images(lambda x: x.prod(1))),
    "batch statistics": (VECTOR, _vectors(lambda x: x - x.mean(0))),
    "sorted by another": (SEQUENCE, _sequences(lambda x: x.gather(1, x.argsort(1).flip(2)))),
    "control flow": (VECTOR, _vectors(lambda x: x if x.sum() > 0 else -x)),
    "noise": (VECTOR, _vectors(lambda x: x + torch.randn_like(x))),
}


def programs() -> Iterator[tuple[str, str, tuple[int, ...], Make, bool]]:
    """Group, name, shape of one input, what makes the model, and whether it has a useful global constant."""
    simple = {"images": (IMAGES, IMAGE, _images), "sequences": (SEQUENCES, SEQUENCE, _sequences)}
    simple["vectors"] = (VECTORS, VECTOR, _vectors)
    for group, (functions, shape, wrap) in simple.items():
        for name, function in functions.items():
            yield group, name, shape, wrap(function), True
    for group, models in {"heads": HEADS, "modules": MODULES, "no constant": NO_CONSTANT}.items():
        for name, (shape, make) in models.items():
            yield group, name, shape, make, models is not NO_CONSTANT


def scores_of(output: Any) -> Tensor:
    """What a radius speaks of."""
    if isinstance(output, tuple):
        return output[0]
    if isinstance(output, dict):
        return output["logits"]
    return getattr(output, "logits", output)


def tried(name: str, shape: tuple[int, ...], make: Make) -> tuple[str, str]:
    """ "certified", "refused", "crashed" or "wrong", and the constant or the reason."""
    torch.manual_seed(0)
    model, draw = make().eval(), torch.Generator().manual_seed(1)
    x = torch.randn((4, *shape), generator=draw)
    try:
        bound = onelip.lipschitz_bound(model, shape, output=_OUTPUTS.get(name))
        onelip.certify(model, x, output=_OUTPUTS.get(name), threshold=0.0 if name.startswith("one ") else None)
    except OnelipError as error:
        return "refused", str(error)
    except Exception as error:
        return "crashed", f"{type(error).__name__}: {error}"
    model = model.double()
    found = max(quotients(model, shape, draw))
    return ("wrong", f"{found:.4g} above {bound:.4g}") if found > bound * (1 + 1e-6) else ("certified", f"{bound:.4g}")


@torch.no_grad()
def quotients(model: nn.Module, shape: tuple[int, ...], draw: torch.Generator) -> Iterator[float]:
    """How far outputs of near and far pairs of inputs of many sizes are apart, relative to the inputs."""
    for size in (1e-2, 1.0, 30.0):
        x = size * torch.randn((64, *shape), generator=draw, dtype=torch.float64)
        for step in (1e-6, 1e-2, 1.0):
            y = x + size * step * torch.randn(x.shape, generator=draw, dtype=torch.float64)
            change = (scores_of(model(x)) - scores_of(model(y))).reshape(64, -1).norm(dim=1)
            yield float((change / (x - y).reshape(64, -1).norm(dim=1)).max())


def main() -> int:
    """Print the table; 1 where a program crashed, or where a constant is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the name or group")
    only = parser.parse_args().only
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: dict[str, Counter[str]] = {}
    for group, name, shape, make, _ in programs():
        if only in name or only in group:
            found, why = tried(name, shape, make)
            counts.setdefault(group, Counter())[found] += 1
            print(f"{group:<12}{name:<38}{found:<10} {why.partition(chr(10))[0][:150]}", flush=True)
    for group, count in counts.items():
        print(f"{group:<12}", dict(count))
    return int(any(count["crashed"] + count["wrong"] for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
