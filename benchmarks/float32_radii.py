"""What the float32 promise takes off certified radii, method by method.

    python benchmarks/float32_radii.py                      # ConvNet XS, all methods
    python benchmarks/float32_radii.py --size S --methods aol bcop cpl

Networks are trained for a few steps on noisy images of ten patterns, so that margins are those of a beginning, not of a
trained network; what is taken off hardly depends on the image.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip import ConvNet
from onelip.certification import Certifier
from onelip.layers import list_methods

CLASSES = 10


def patterns(count: int) -> tuple[Tensor, Tensor]:
    """Noisy images of ten patterns."""
    generator = torch.Generator().manual_seed(1)
    prototypes = torch.rand(CLASSES, 3, 32, 32, generator=generator)
    labels = torch.arange(count) % CLASSES
    return prototypes[labels] + 0.1 * torch.randn(count, 3, 32, 32, generator=generator), labels


def trained(method: str, size: str, steps: int) -> ConvNet:
    """A network after some steps of Adam."""
    torch.manual_seed(0)
    model = ConvNet(method, size, CLASSES)
    x, labels = patterns(20)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(8 * model(x), labels).backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    """Print one line of a table per method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    keys = [method.key for method in list_methods() if method.key != "standard"]
    parser.add_argument("--methods", nargs="+", default=keys)
    parser.add_argument("--size", default="XS", help="of ConvNet: XS, S, M, L")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    print("| method | bound | float64 | float32 | lost |\n|---|---|---|---|---|")
    for method in options.methods:
        model = trained(method, options.size, options.steps)
        x = patterns(10)[0]
        double = Certifier(model)
        wide, short = (c(x).radii.mean().item() for c in (double, Certifier(model, arithmetic="float32")))
        excess = double.lipschitz - 1
        print(f"| `{method}` | 1 + {excess:.1e} | {wide:.3f} | {short:.3f} | {wide - short:.4f} |", flush=True)


if __name__ == "__main__":
    main()
