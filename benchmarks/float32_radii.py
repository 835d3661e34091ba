"""What the float32 promise takes off certified radii, method by method.

    python benchmarks/float32_radii.py                      # ConvNet XS, all methods
    python benchmarks/float32_radii.py --size S --methods aol bcop cpl
    python benchmarks/float32_radii.py --runs runs/train-*  # networks that `onelip train` made, on CIFAR-10

Without --runs, networks are trained for a few steps on noisy images of ten patterns, so that margins are those of a
beginning, not of a trained network; what is taken off hardly depends on the image.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip import ConvNet, load_model
from onelip.bench.data import load
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
    parser.add_argument("--runs", nargs="+", type=Path, help="folders of finished runs on cifar10")
    parser.add_argument("--images", type=int, default=200, help="test images, with --runs")
    options = parser.parse_args()
    print("| method | bound | float64 | float32 | lost | certified at 36/255, float64 | float32 |")
    print("|---|---|---|---|---|---|---|")
    if options.runs is None:
        x, labels = patterns(10)
        for method in options.methods:
            print_row(method, trained(method, options.size, options.steps), x, labels)
        return
    data = load("cifar10")
    x, labels = data.test_images[: options.images] / 255, data.test_labels[: options.images]
    for folder in options.runs:
        model = load_model(folder / "model.safetensors")
        print_row(folder.name.split("-")[1], model, x - torch.tensor(data.info.mean)[:, None, None], labels)


def print_row(name: str, model: nn.Module, x: Tensor, labels: Tensor) -> None:
    """The proven constant, mean radii and certified accuracies in either arithmetic."""
    wide, short = Certifier(model), Certifier(model, arithmetic="float32")
    certificates = [certifier(x, labels) for certifier in (wide, short)]
    radii = [certificate.radii.mean().item() for certificate in certificates]
    accuracies = [f"{certificate.certified(36 / 255).double().mean():.1%}" for certificate in certificates]
    columns = [f"`{name}`", f"1 + {wide.lipschitz - 1:.1e}", *(f"{radius:.3f}" for radius in radii)]
    print("| " + " | ".join([*columns, f"{radii[0] - radii[1]:.4f}", *accuracies]) + " |", flush=True)


if __name__ == "__main__":
    main()
