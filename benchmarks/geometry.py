"""The grid of geometries: is every layer 1-Lipschitz after training, and orthogonal where its method is?

    python benchmarks/geometry.py [--methods aol bcop lot soc]

768 layers: four methods, six kernels, 8 and 16 channels, one to as many groups as channels, plain, strided, dilated and
transposed. Each is built, trained for five steps in float32, and its exact Jacobian taken from its outputs for all unit
images. It passes with no singular value above 1 + 1e-5 and, for orthogonal methods, none of the min(inputs, outputs)
largest below 1 - 1e-4. Prints what fails, and how many pass.
"""

from __future__ import annotations

import argparse
import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn

from onelip.errors import OnelipError
from onelip.layers import create_conv, create_conv_transpose, get_method

METHODS = ("aol", "bcop", "lot", "soc")
KERNELS = (1, 2, 3, 4, 5, (1, 3))
CHANNELS = (8, 16)
GROUPS = (1, 2, 4, "depthwise")
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"stride": 2},
    "dilated": {"dilation": 2},
    "transposed": {"stride": 2},
}
SIZE = (6, 6)

Layer = tuple[str, Any, int, Any, str]
GRID: list[Layer] = list(itertools.product(METHODS, KERNELS, CHANNELS, GROUPS, SHAPES))


def built(method: str, kernel: Any, channels: int, groups: Any, shape: str) -> nn.Module:
    """The layer of one place of the grid."""
    create = create_conv_transpose if shape == "transposed" else create_conv
    count = channels if groups == "depthwise" else groups
    return create(method, channels, channels, kernel, groups=count, **SHAPES[shape])


def train(layer: nn.Module, channels: int) -> None:
    """Five steps of gradient descent towards random images."""
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        y = layer(torch.randn(8, channels, *SIZE))
        optimiser.zero_grad()
        (y - torch.randn_like(y)).square().mean().backward()
        optimiser.step()


def singular_values(layer: nn.Module, channels: int) -> Tensor:
    """All min(inputs, outputs) of them, of the linear part of the layer as it is deployed."""
    inputs = channels * math.prod(SIZE)
    with torch.no_grad():
        units = torch.eye(inputs).reshape(inputs, channels, *SIZE)
        jacobian = (layer(units) - layer(torch.zeros_like(units[:1]))).flatten(1).double()
    gram = jacobian @ jacobian.mT if jacobian.shape[0] <= jacobian.shape[1] else jacobian.mT @ jacobian
    return torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()


def failure(place: Layer) -> str:
    """What is wrong with the layer of one place, or nothing."""
    method, _, channels, _, _ = place
    torch.manual_seed(0)
    try:
        layer = built(*place)
        train(layer, channels)
        values = singular_values(layer.eval(), channels)
    except (OnelipError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    if values.max() > 1 + 1e-5:
        return f"norm {float(values.max()):.7f}"
    if get_method(method).guarantee == "orthogonal" and values.min() < 1 - 1e-4:
        return f"smallest singular value {float(values.min()):.6f}"
    return ""


def main() -> None:
    """Walk the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    methods = parser.parse_args().methods
    places = [place for place in GRID if place[0] in methods]
    failures = 0
    for place in places:
        problem = failure(place)
        if problem:
            failures += 1
            print(*place, problem, flush=True)
    print(f"{len(places) - failures} of {len(places)} pass")


if __name__ == "__main__":
    main()
