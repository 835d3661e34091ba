"""Every operation that certificates know, as a step of a random program on images (batch, 4, 4, 4).

A step takes two values and a number and returns an image. `tests/certification/test_red_team.py` traces all of them and
fails where an operation of `onelip.certification.operations` is drawn by none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip import layers
from onelip.certification import Normalise, Residual

aten = torch.ops.aten
Step = Callable[[Tensor, Tensor, float], Any]
SIDE = 4
ENTRIES = SIDE**3


def fitted(y: Tensor) -> Tensor:
    """Entries spread over an image: some are left out, or zeros are put behind them."""
    flat = torch.flatten(y, 1)
    count = flat.shape[1]
    if count < ENTRIES:
        flat = F.pad(flat, (0, ENTRIES - count))
    return torch.reshape(flat[:, :: max(1, count // ENTRIES)][:, :ENTRIES], (-1, SIDE, SIDE, SIDE))


def weights(*shape: int, like: Tensor, norm: float = 1.2) -> Tensor:
    """Numbers that depend on the shape alone, in float32 whatever the program's type."""
    numbers = torch.cos(torch.arange(1.0, torch.Size(shape).numel() + 1) ** 2).reshape(shape)
    return (numbers * (norm / numbers.norm())).to(like.dtype)


def rows(a: Tensor) -> Tensor:
    """Vectors."""
    return torch.flatten(a, 1)


def line(a: Tensor) -> Tensor:
    """Images with one axis."""
    return torch.flatten(a, 2)


def volume(a: Tensor) -> Tensor:
    """Images with three axes."""
    return torch.unsqueeze(a, 1)


def statistics(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, variance, weight and bias of a normalisation."""
    mean, variance, weight, bias = (weights(4, like=a, norm=norm) for norm in (1.0, 2.0, 1.5, 0.7))
    return mean, variance.square() + 0.25, weight, bias


def inside(a: Tensor, b: Tensor, c: float) -> Tensor:
    """Pixels outermost, as exported frequency layers have them: matrices in front of the batch and at each pixel."""
    pixels = torch.permute(a, (2, 3, 0, 1)).flatten(0, 1)
    mixed = torch.matmul(weights(16, 16, like=a), torch.reshape(pixels, (16, -1))).unflatten(1, (-1, 4)).contiguous()
    upper = torch.bmm(mixed.narrow(0, 0, 8), weights(8, 4, 4, like=a))
    lower = torch.bmm(aten.slice(mixed, 0, 8, 16), weights(8, 4, 4, like=a, norm=2.0))
    whole = torch.cat([upper + lower, upper - lower + c], 0)
    return torch.permute(torch.reshape(whole, (4, 4, -1, 4)), (2, 3, 0, 1))


def picked_inside(a: Tensor, b: Tensor, c: float) -> Tensor:
    """One place in front of the batch, and the batch back in front."""
    return fitted(torch.permute(torch.select(torch.permute(a, (1, 2, 0, 3)), 0, 2), (1, 0, 2)))


def written_in_place(a: Tensor, b: Tensor, c: float) -> Tensor:
    """A value that is overwritten again and again."""
    y = a.clone()
    y += b
    y -= 0.5
    y *= c
    y /= 1.5
    return y.clamp_(max=3.0)


def nearest(a: Tensor, b: Tensor, c: float) -> Tensor:
    """The larger of two values, by a comparison."""
    return torch.where(torch.gt(a, b), a, b) - torch.where(a <= b, a, b)


TRIANGLE = torch.ones(4, 4).tril().bool()
GRID = torch.stack(torch.meshgrid(torch.linspace(-0.8, 0.9, 5), torch.linspace(-1.1, 0.7, 5), indexing="ij"), -1)[None]


def places(batch: int) -> Tensor:
    """Rows to take entries from, some of them several times."""
    return (torch.arange(64) * 3 % 4).reshape(1, 4, 4, 4).expand(batch, 4, 4, 4)


def cell(a: Tensor, gates: int) -> list[Tensor]:
    """The weights of a recurrent cell with 4 states."""
    return [weights(4 * gates, 64, like=a), weights(4 * gates, 4, like=a), *[weights(4 * gates, like=a)] * 2]


def recurrent(a: Tensor, kind: str, gates: int) -> Tensor:
    """A recurrent layer over four bounded steps."""
    state = torch.zeros(1, len(a), 4, dtype=a.dtype)
    matrices = [weights(4 * gates, 16, like=a), weights(4 * gates, 4, like=a)]
    given: Any = (torch.tanh(line(a)), [state, state] if kind == "lstm" else state, matrices)
    return fitted(getattr(torch, kind)(*given, False, 1, 0.0, False, False, True)[0])


def written(a: Tensor, b: Tensor) -> Tensor:
    """A value with a channel of another, and with numbers."""
    y = a.clone()
    y[:, 1] = b[:, 2]
    y[:, 2, 0] = 0.5
    return y.index_put((torch.arange(len(y))[:, None], torch.arange(2)), b[:, 2:])


STEPS: list[Step] = [
    lambda a, b, c: a + b,
    lambda a, b, c: torch.sub(a, b, alpha=c),
    lambda a, b, c: c - torch.rsub(a, b, alpha=0.5),
    lambda a, b, c: torch.mul(weights(4, 1, 1, like=a), a) * c + torch.mean(b, dim=(2, 3), keepdim=True),
    lambda a, b, c: torch.div(a, 3.0 + weights(4, 1, 1, like=a)) + torch.sum(b, 1, keepdim=True),
    lambda a, b, c: torch.maximum(a, b) - torch.minimum(a, weights(4, 4, like=a)),
    lambda a, b, c: torch.lerp(a, b, 0.3),
    nearest,
    inside,
    picked_inside,
    written_in_place,
    # functions of each entry
    lambda a, b, c: torch.tanh(a) + F.softsign(b),
    lambda a, b, c: F.tanhshrink(a) - torch.sin(b),
    lambda a, b, c: torch.cos(a) + torch.atan(b) + torch.arctan(a),
    lambda a, b, c: torch.asinh(a) + torch.arcsinh(b),
    lambda a, b, c: torch.erf(a) + torch.sigmoid(b) + torch.special.expit(a),
    lambda a, b, c: F.logsigmoid(a) + F.hardsigmoid(b) + aten.log_sigmoid(a),
    lambda a, b, c: F.silu(a) - F.mish(b),
    lambda a, b, c: F.hardswish(a) - F.selu(b),
    lambda a, b, c: torch.relu(a) - torch.abs(b) + torch.neg(torch.positive(a)),
    lambda a, b, c: torch.clamp(a, max=weights(4, 1, 1, like=a).abs()) + torch.clamp_min(b, c),
    lambda a, b, c: torch.clamp_max(a, 0.3) + F.hardtanh(b, -0.7, 0.9) + F.relu6(a),
    lambda a, b, c: F.leaky_relu(a, c) + F.rrelu(b, 0.1, 1.5),
    lambda a, b, c: F.prelu(a, weights(4, like=a, norm=2.0)) + F.elu(b, c),
    lambda a, b, c: F.celu(a, 0.4) + F.gelu(b),
    lambda a, b, c: F.gelu(a, approximate="tanh") + F.softplus(b, 1.5),
    lambda a, b, c: F.softshrink(a, 0.3) + F.threshold(b, 0.2, 0.2) + F.dropout(a, 0.5, training=False),
    # where values are bounded, and what is made of exponentials
    lambda a, b, c: torch.exp(torch.tanh(a)) + torch.expm1(-torch.abs(b)),
    lambda a, b, c: torch.sigmoid(a) ** 3 + torch.square(torch.clamp(b, -2.0, 1.0)),
    lambda a, b, c: torch.sqrt(torch.relu(a) + 0.5) - torch.rsqrt(F.relu6(b) + 1.0),
    lambda a, b, c: torch.log(torch.sigmoid(a) + 0.1) + torch.log1p(torch.abs(b)),
    lambda a, b, c: torch.log2(torch.sigmoid(a) + 0.1) + torch.log10(torch.cos(b) + 1.5) + torch.exp2(torch.tanh(a)),
    lambda a, b, c: c / (1 + torch.abs(a)) + torch.reciprocal(torch.sin(b) - 1.5),
    lambda a, b, c: F.softmax(a, 1) + F.log_softmax(b, -1) + torch.logsumexp(a, (1, 3), keepdim=True),
    lambda a, b, c: torch.cumsum(a, 2),
    # entries that move
    lambda a, b, c: torch.reshape(a, (-1, 8, 8)).unflatten(1, (2, 4)).view_as(b),
    lambda a, b, c: torch.squeeze(torch.unsqueeze(a, 2), 2).contiguous().clone().to(b.dtype),
    lambda a, b, c: a.float() if a.dtype == torch.float32 else a.double(),
    lambda a, b, c: torch.transpose(a, 1, 3) + torch.movedim(b, 1, 2),
    lambda a, b, c: fitted((0.5 - weights(64, 64, like=a) @ rows(a).t()).t()) + a.transpose(0, 1).transpose(1, 0),
    lambda a, b, c: torch.flip(a, (2, 3)) + torch.roll(b, 1, 3),
    lambda a, b, c: fitted(torch.narrow(a, 1, 1, 2)) + fitted(aten.slice(b, 2, 0, 4, 2)),
    lambda a, b, c: fitted(torch.select(a, 1, 2)) + fitted(b[:, (0, 0, 3)]),
    lambda a, b, c: torch.index_select(a, 1, torch.tensor([3, 0, 0, 1])) + b[:, :, [0, 2, 2, 1]],
    lambda a, b, c: torch.cat([*torch.chunk(a, 2, 1)[:1], torch.split(b, [1, 2, 1], 1)[1]], 1),
    lambda a, b, c: torch.stack([torch.tensor_split(a, 4, 1)[1][:, 0], *torch.unbind(b, 1)[:3]], 1),
    lambda a, b, c: a[:, :1].expand(-1, 4, -1, -1) + b[:, :, :1].expand_as(a),
    lambda a, b, c: fitted(a.repeat(1, 2, 1, 1)) + torch.repeat_interleave(b[:, :, ::2], 2, 2),
    lambda a, b, c: F.pixel_unshuffle(F.pixel_shuffle(a, 2), 2) + F.channel_shuffle(b, 2),
    lambda a, b, c: F.pad(a[:, :, 1:], (0, 0, 0, 1), value=0.1) + F.pad(b, (1, 0, 1, 0), mode="reflect")[:, :, :4, :4],
    lambda a, b, c: (
        fitted(F.pad(a, (2, 2, 1, 1), mode="replicate")) + F.pad(b, (1, 1, 1, 1), mode="circular")[:, :, :4, :4]
    ),
    lambda a, b, c: fitted(F.unfold(a, 3, padding=1)),
    lambda a, b, c: a * (1 / aten.sym_size(b, 1)) + torch.transpose(a.mT, -2, -1).adjoint(),
    lambda a, b, c: (
        a + torch.zeros_like(a) + c * torch.ones_like(b) + a.new_zeros(4) + a.new_ones(1) * a.new_tensor([0.3])
    ),
    lambda a, b, c: torch.cat([a, torch.full_like(b, 0.1), torch.arange(4).expand(len(b), 1, 4, 4) + 2**24], 1)[:, 1:5],
    # products
    lambda a, b, c: F.linear(a, weights(4, 4, like=a), weights(4, like=a)) + b @ weights(4, 4, like=a),
    lambda a, b, c: weights(4, 4, like=a) @ a + b.__rmatmul__(weights(4, 4, like=a)),
    lambda a, b, c: fitted(torch.addmm(weights(9, like=a), rows(a), weights(64, 9, like=a))),
    lambda a, b, c: fitted(F.conv1d(line(a), weights(3, 4, 5, like=a), weights(3, like=a), 2, 1)),
    lambda a, b, c: fitted(F.conv2d(a, weights(4, 2, 3, 2, like=a), None, 1, 1, 2, 2)),
    lambda a, b, c: F.conv2d(F.pad(a, (1, 1, 1, 1), mode="circular"), weights(4, 4, 3, 3, like=a)),
    lambda a, b, c: fitted(F.conv3d(volume(a), weights(2, 1, 3, 3, 3, like=a), None, 1, 1)),
    lambda a, b, c: fitted(F.conv_transpose1d(line(a), weights(4, 3, 3, like=a), None, 2)),
    lambda a, b, c: fitted(F.conv_transpose2d(a, weights(4, 2, 3, 3, like=a), weights(2, like=a), 2, 1, 1)),
    lambda a, b, c: fitted(F.conv_transpose3d(volume(a), weights(1, 2, 2, 2, 2, like=a), None, 1, 1)),
    lambda a, b, c: F.batch_norm(a, *statistics(a)),
    lambda a, b, c: torch.batch_norm(a, *statistics(a)[2:], *statistics(a)[:2], False, 0.1, 1e-5, False),
    lambda a, b, c: aten._native_batch_norm_legit_no_training(a, *statistics(a)[2:], *statistics(a)[:2], 0.1, 1e-5)[0],
    lambda a, b, c: aten.batch_norm(a, *statistics(a)[2:], *statistics(a)[:2], False, 0.1, 1e-5, False),
    # other linear maps, with constants
    lambda a, b, c: torch.tril(a) - torch.triu(b, 1) + torch.rot90(a, 1, (2, 3)),
    lambda a, b, c: fitted(torch.diagonal(a, 0, 2, 3)) + fitted(torch.diag_embed(b[:, :, 0])),
    lambda a, b, c: torch.gather(a, 2, places(len(a))) + torch.take_along_dim(b, places(1), 3),
    lambda a, b, c: torch.broadcast_to(a[:, :1], b.shape) + fitted(b.unfold(2, 2, 1)),
    lambda a, b, c: fitted(F.max_unpool1d(line(a)[:, :, :2], torch.tensor([[[1, 0]]]).expand(len(a), 4, 2), [2])),
    lambda a, b, c: fitted(F.max_unpool2d(a[:, :, :1, :2], torch.tensor([[[[5, 0]]]]).expand(len(a), 4, 1, 2), [2, 2])),
    lambda a, b, c: fitted(
        F.max_unpool3d(volume(a)[:, :, :1, :1, :2], torch.tensor([[[[[9, 0]]]]]).expand(len(a), 1, 1, 1, 2), [2, 2, 2])
    ),
    lambda a, b, c: torch.where(TRIANGLE, a, b) + b.masked_fill(TRIANGLE, c) + a.where(TRIANGLE, b),
    lambda a, b, c: torch.index_add(torch.ones_like(a), 2, torch.tensor([0, 0, 3]), b[:, :, 1:], alpha=0.5),
    lambda a, b, c: torch.scatter_add(torch.zeros_like(a), 2, places(len(a)), a),
    lambda a, b, c: a.scatter(2, places(len(a)), 0.5) - b.index_fill(3, torch.tensor([0, 2]), 1.0) + torch.erfc(a),
    lambda a, b, c: fitted(F.fold(F.unfold(a, 3, padding=1), 4, 3, padding=1)) + fitted(torch.diff(b, dim=2)),
    lambda a, b, c: (
        fitted(F.interpolate(a, size=(7, 3), mode="bilinear")) + fitted(F.interpolate(b, 6, mode="bicubic"))
    ),
    lambda a, b, c: fitted(F.grid_sample(a, GRID.to(a.dtype).expand(len(a), -1, -1, -1), align_corners=False)),
    lambda a, b, c: torch.einsum("nchw,dc,hk->ndkw", a, weights(4, 4, like=a), weights(4, 4, like=a, norm=2.0)),
    lambda a, b, c: (
        fitted(torch.tensordot(a, weights(4, 3, like=a), ([1], [0])))  # pyright: ignore[reportArgumentType]
        + b @ weights(4, 4, 4, like=a)
    ),
    lambda a, b, c: fitted(torch.baddbmm(line(b)[:, :, :3], line(a), weights(1, 16, 3, like=a).expand(len(a), 16, 3))),
    lambda a, b, c: (
        fitted(torch.hstack([a, b]))
        - fitted(torch.column_stack([a, b]))
        + fitted(torch.dstack([rows(a), rows(b)]))
        + fitted(written(a, b))
    ),
    # several operations that are one function, and products of bounded values
    lambda a, b, c: a * torch.sigmoid(c * a) + torch.sign(b) * torch.log1p(torch.abs(b)),
    lambda a, b, c: (
        (a - a.mean(1, True)) / torch.sqrt(torch.var(a, 1, keepdim=True) + 0.5) + torch.std(b, 3, keepdim=True)
    ),
    lambda a, b, c: torch.tanh(a) * torch.sigmoid(b) + fitted(torch.tanh(a) @ torch.sin(b)),
    lambda a, b, c: F.scaled_dot_product_attention(torch.tanh(a), torch.tanh(b), torch.sin(a)),
    lambda a, b, c: (
        fitted(torch.rnn_tanh_cell(rows(a), rows(b)[:, :4], *cell(a, 1)))
        + fitted(torch.rnn_relu_cell(rows(a), rows(b)[:, :4], *cell(a, 1)))
    ),
    lambda a, b, c: fitted(torch.gru_cell(torch.tanh(rows(a)), torch.tanh(rows(b)[:, :4]), *cell(a, 3))),
    lambda a, b, c: fitted(
        torch.lstm_cell(torch.tanh(rows(a)), [torch.tanh(rows(b)[:, :4]), torch.tanh(rows(a)[:, :4])], *cell(a, 4))[0]
    ),
    lambda a, b, c: recurrent(a, "rnn_tanh", 1) + recurrent(b, "rnn_relu", 1) + recurrent(a, "gru", 3),
    lambda a, b, c: recurrent(a, "lstm", 4) + fitted(F.glu(torch.tanh(b), 1)),
    lambda a, b, c: torch.addcmul(
        torch.addcdiv(a, torch.sin(a), 2 + torch.sin(b)), torch.tanh(a), torch.sin(b), value=0.5
    ),
    # constants of their own
    lambda a, b, c: (
        F.softmin(a, 1) + torch.nan_to_num(b) + torch.logaddexp(a, b) + torch.logaddexp2(b, a) + torch.hypot(a, b)
    ),
    lambda a, b, c: fitted(torch.cdist(line(a), weights(3, 16, like=a))),
    lambda a, b, c: fitted(F.pairwise_distance(line(a), weights(1, 16, like=a))) + F.normalize(b, eps=0.5),
    lambda a, b, c: F.layer_norm(a, (4, 4), weights(4, 4, like=a), None, 0.5) + F.rms_norm(b, (4,), None, 0.3),
    lambda a, b, c: F.group_norm(a, 2, weights(4, like=a), None, 0.5) + F.instance_norm(b, eps=0.4),
    lambda a, b, c: (
        F.local_response_norm(a, 3, 0.1)
        + fitted(F.fractional_max_pool2d(b, 2, 3, _random_samples=torch.full((len(b), 4, 2), 0.4, dtype=b.dtype)))
    ),
    lambda a, b, c: torch.median(a, 1, keepdim=True).values + torch.kthvalue(b, 2, 2, True).values,
    lambda a, b, c: torch.quantile(a, 0.3, 1, True) + torch.cummax(b, 2).values - torch.cummin(a, 3).values,
    # sums, extremes, norms, sorting
    lambda a, b, c: a - torch.amax(b, (1, 2), keepdim=True) + torch.amin(a, 3, keepdim=True),
    lambda a, b, c: torch.max(a, b) + torch.max(a, 1, keepdim=True).values - torch.min(b, 2, keepdim=True)[0],
    lambda a, b, c: torch.sort(a, 1, descending=True).values + torch.min(a, b),
    lambda a, b, c: fitted(torch.topk(a, 2, 1).values) + torch.sort(b, 3).values,
    lambda a, b, c: (
        a + torch.linalg.vector_norm(b, dim=(1, 2), keepdim=True) - torch.linalg.norm(a, dim=3, keepdim=True)
    ),
    lambda a, b, c: b + torch.norm(a, dim=1, keepdim=True),
    lambda a, b, c: (
        fitted(F.interpolate(a, scale_factor=2)) + F.interpolate(b[:, :, ::2, ::2], size=4, mode="nearest-exact")
    ),
    # windows
    lambda a, b, c: fitted(F.avg_pool1d(line(a), 3, 1, 1)) + fitted(F.max_pool1d(line(b), 3, 2, 1)),
    lambda a, b, c: F.avg_pool2d(a, 3, 1, 1, count_include_pad=False) + F.max_pool2d(b, 2, 1, 1, 2),
    lambda a, b, c: F.avg_pool2d(a, 2).repeat_interleave(2, 2).repeat_interleave(2, 3) + F.max_pool2d(b, 3, 1, 1),
    lambda a, b, c: fitted(F.avg_pool2d(a, 3, 2, 1, ceil_mode=True)) + F.avg_pool2d(b, 3, 1, 1, divisor_override=5),
    lambda a, b, c: fitted(F.avg_pool3d(volume(a), 2, 1)) + fitted(F.max_pool3d(volume(b), 2, 1)),
    lambda a, b, c: fitted(F.adaptive_avg_pool1d(line(a), 5)) + fitted(F.adaptive_max_pool1d(line(b), 5)),
    lambda a, b, c: fitted(F.adaptive_avg_pool2d(a, 3)) + fitted(F.adaptive_max_pool2d(b, 3)),
    lambda a, b, c: fitted(F.adaptive_avg_pool3d(volume(a), 3)) + fitted(F.adaptive_max_pool3d(volume(b), (3, 2, 4))),
    lambda a, b, c: fitted(F.lp_pool1d(line(a), 2, 3, 1)) + fitted(F.lp_pool2d(b, 2, 2, 1)),
    lambda a, b, c: fitted(F.lp_pool3d(volume(a), 2, 2)),
]


def modules() -> list[nn.Module]:
    """onelip's own modules without a method, and torch's, each for images of four channels."""
    return [
        layers.Abs(),
        layers.MaxMin(),
        layers.GroupSort(2),
        layers.Householder(4),
        layers.BatchLipNorm(4),
        layers.LayerCentering(),
        layers.BatchCentering(4),
        layers.FullSort(),
        layers.NActivation(4),
        layers.LipschitzPReLU(4, 0.7),
        Shaped(layers.ScaledAdaptiveAvgPool2d(2)),
        Shaped(layers.ScaledAvgPool2d(2)),
        Shaped(layers.ScaledMaxPool2d(2, 1)),
        Shaped(layers.L2NormPool2d(2)),
        Shaped(layers.AdaptiveL2NormPool2d(2)),
        nn.Sequential(layers.ZeroChannelPad(6), layers.FirstChannels(4)),
        Shaped(layers.ZeroSpatialPad(3)),
        Normalise([0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]),
        Residual(nn.Conv2d(4, 4, 1)),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(4, 4, 3, padding="same", groups=2),
        nn.BatchNorm2d(4),
        nn.Sequential(nn.ELU(0.5), nn.Dropout(), nn.Identity()),
    ]


class Shaped(nn.Module):
    """A module whose output is brought back to the shape of an image."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """The module, then `fitted`."""
        return fitted(self.module(x))
