"""About forty small models whose certified radii are written down, bit by bit, in `frozen_radii.json`.

Weights and inputs are integers over a power of two, so that every processor has the same ones. A change of the library
that means to keep its results keeps these radii; one that means to change them says so, and writes the file anew:

    OMP_NUM_THREADS=1 PYTHONPATH=tests python tests/frozen_models.py
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from plain_models import VGG, ResNet
from shipped_methods import SHIPPED
from torch import Tensor, nn

import onelip
from onelip import layers, models
from onelip.certification import certify

FILE = Path(__file__).with_name("frozen_radii.json")
IMAGE = (3, 8, 8)
SAMPLES = 3


class OwnForward(nn.Module):
    """A forward pass in Python: branches that are averaged, functions of torch, a slice, a shared layer."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.first = layers.create_conv(method, 3, 6, 3, padding_mode="zeros")
        self.left = layers.create_conv(method, 6, 6, 3)
        self.right = layers.create_conv(method, 6, 6, 1)
        self.scores = layers.create_linear(method, 6 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = 0.5 * self.left(x) + 0.5 * self.right(self.right(x).abs())
        x = nn.functional.avg_pool2d(x, 2)
        return self.scores(x.flatten(1)).clamp(-4, 4)[:, :4]


def circular(method: str) -> nn.Module:
    """Circular padding, a stride, more channels than before and fewer."""
    conv = partial(layers.create_conv, method)
    body = [conv(3, 6, 3), layers.MaxMin(), conv(6, 8, 3, stride=2), layers.MaxMin(), conv(8, 4, 1), layers.Abs()]
    return nn.Sequential(*body, nn.Flatten(), layers.create_linear(method, 64, 4))


def surrounded(method: str) -> nn.Module:
    """Zero padding, an even kernel, groups, a dilation, a padding of torch's, a transposed convolution."""
    conv = partial(layers.create_conv, method, padding_mode="zeros")
    wider = layers.create_conv_transpose(method, 6, 3, 2, stride=2)
    body = [conv(3, 6, (3, 2), padding=1), layers.GroupSort(3), conv(6, 6, 3, dilation=2, groups=2), nn.ReLU(), wider]
    return nn.Sequential(*body, nn.AvgPool2d(4), nn.Flatten(), layers.create_linear(method, 3 * 4 * 4, 4))


def signals() -> nn.Module:
    """Convolutions of signals."""
    body = [layers.create_conv1d("soc", 3, 4, 3), layers.MaxMin(), layers.create_conv1d("bcop", 4, 4, 5, stride=2)]
    return nn.Sequential(nn.Flatten(2), *body, nn.Flatten(), layers.create_linear("cayley", 128, 4))


def volumes() -> nn.Module:
    """Convolutions of volumes."""
    body = [layers.create_conv3d("aol", 1, 4, 3), layers.MaxMin(), layers.create_conv3d("cpl", 4, 4, 3)]
    return nn.Sequential(nn.Unflatten(1, (1, 3)), *body, nn.Flatten(), layers.create_linear("bjorck", 768, 4))


def parts() -> nn.Module:
    """What stands between layers: centering, sorting, pooling, residual connections."""
    residual = layers.LipschitzResidual(nn.Sequential(layers.create_conv("lot", 4, 4, 3), layers.MaxMin()))
    body = [layers.create_conv("aol", 3, 4, 3), layers.LayerCentering(), layers.FullSort(), residual]
    ends = [layers.ScaledAvgPool2d(2), layers.Householder(4), layers.L2NormPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, *ends, layers.UnitRowsLinear(16, 4))


def _convnet(method: str, **options: Any) -> nn.Module:
    return models.ConvNet(method, None, 4, input_size=32, width=4, **options)


_SMALL: dict[str, Any] = {"num_classes": 4, "input_shape": IMAGE}
BUILDERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **{f"circular {method}": (partial(circular, method), IMAGE) for method in SHIPPED},
    **{f"surrounded {method}": (partial(surrounded, method), IMAGE) for method in SHIPPED},
    "own forward bcop": (partial(OwnForward, "bcop"), IMAGE),
    "own forward sandwich": (partial(OwnForward, "sandwich"), IMAGE),
    "signals": (signals, IMAGE),
    "volumes": (volumes, IMAGE),
    "parts": (parts, IMAGE),
    "convnet soc": (partial(_convnet, "soc"), (3, 32, 32)),
    "fastnet": (partial(models.FastNet, width=8, depth=1, patch=2, padding_mode="zeros", **_SMALL), IMAGE),
    "liresnet": (partial(models.LiResNet, width=8, depth=2, dense=1, dense_width=16, **_SMALL), IMAGE),
    "lipnext": (partial(models.LipNeXt, width=16, depth=2, patch=2, **_SMALL), IMAGE),
    "plain resnet": (partial(ResNet, width=2, num_classes=4, blocks=(1, 1)), (3, 16, 16)),
    "converted vgg": (lambda: onelip.convert(VGG(width=4, num_classes=4), method="aol"), (3, 32, 32)),
}


def dyadic(generator: torch.Generator, *shape: int) -> Tensor:
    """Multiples of 2^-12 between -1 and 1, uniform."""
    return torch.randint(-(2**12), 2**12 + 1, shape, generator=generator).double() / 2**12


def model_of(name: str, dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    """A model with weights of its own, in evaluation mode, and its inputs."""
    build, shape = BUILDERS[name]
    generator = torch.Generator().manual_seed(sum(name.encode()))
    model = build().to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = max(1, parameter[0].numel()) if parameter.dim() > 1 else 4
            gain = 2.0 ** -(int(fan_in).bit_length() // 2)
            parameter.copy_(gain * dyadic(generator, *parameter.shape))
    return model, dyadic(generator, SAMPLES, *shape).to(dtype)


def radii(name: str) -> dict[str, list[float]]:
    """Certified radii of the float64 model, and of the float32 one in float32 arithmetic."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        exact = certify(*model_of(name, torch.float64))
        deployed = certify(*model_of(name, torch.float32), arithmetic="float32")
    finally:
        torch.set_num_threads(threads)
    return {"float64": exact.radii.tolist(), "float32": deployed.radii.tolist()}


def processor() -> str:
    """What decides about the rounding of products: torch, its instructions, the processor, a person's choice."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    kind = [told.get(name, "") for name in ("model name", "cpu family", "model")]
    chosen = [os.environ[name] for name in ("OPENBLAS_CORETYPE", "MKL_CBWR") if name in os.environ]
    return " ".join([torch.__version__, torch.backends.cpu.get_cpu_capability(), platform.machine(), *kind, *chosen])


def main() -> None:
    """Write the file."""
    found = {name: {kind: [r.hex() for r in row] for kind, row in radii(name).items()} for name in BUILDERS}
    FILE.write_text(json.dumps({"processor": processor(), "radii": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
