"""Draw radius.png: a certified ball around a real image, and what the network answers in a plane through it.

`python docs/images/make_radius.py` trains the network of the README for a few epochs (a minute on two cores), certifies
a test image, looks for the nearest image with another answer by a gradient search along the boundary, and draws both.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Circle
from torch import Tensor, nn

import onelip
from onelip.bench.data import load
from onelip.layers import BCOPConv2d, BCOPLinear, MaxMin

CLASSES = ["aeroplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "lorry"]
GROUNDS = ["#b7cfe8", "#f7c6a3", "#c9e2c0", "#e3d3ea", "#f3e6a8", "#d9d9d9", "#f5c9d6", "#cfe9e9", "#e8ddcb", "#ffffff"]


def trained_network(x: Tensor, labels: Tensor) -> nn.Module:
    """The README's network, trained for margins."""
    torch.manual_seed(0)
    layers = [BCOPConv2d(3, 16, 3, stride=2), MaxMin(), BCOPConv2d(16, 32, 3, stride=2), MaxMin()]
    model = nn.Sequential(*layers, BCOPConv2d(32, 64, 2, stride=2), MaxMin(), nn.Flatten(), BCOPLinear(1024, 10))
    loss, optimiser = onelip.OffsetCrossEntropy(temperature=0.5), torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(4):
        for part in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            loss(model(x[part]), labels[part]).backward()
            optimiser.step()
    return model.eval()


def nearest_change(model: nn.Module, x: Tensor) -> Tensor:
    """The shortest step found that changes the answer: gradients towards each rival, then bisection."""
    answer = int(model(x[None]).argmax())
    best = torch.full_like(x, torch.inf)
    for rival in set(range(10)) - {answer}:
        step = torch.zeros_like(x)
        for _ in range(40):
            at = (x + step).requires_grad_()
            scores = model(at[None])[0]
            gap = scores[rival] - scores[answer]
            [slope] = torch.autograd.grad(gap, at)
            step = ((step * slope).sum() - gap.detach()) / slope.square().sum() * slope  # the nearest zero, if linear
        low, high = 0.0, 4.0
        for _ in range(40):
            middle = (low + high) / 2
            changed = int(model((x + middle * step)[None]).argmax()) != answer
            low, high = (low, middle) if changed else (middle, high)
        if int(model((x + high * step)[None]).argmax()) != answer and (high * step).norm() < best.norm():
            best = high * step
    return best


def draw(model: nn.Module, x: Tensor, change: Tensor, radius: float, path: Path) -> None:
    """Image, change, changed image; and the answers in the plane of the change and a random direction."""
    answer, other = int(model(x[None]).argmax()), int(model((x + change)[None]).argmax())
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.9), width_ratios=[1, 1, 1, 1.2], layout="constrained")
    magnified = (change / change.abs().max() / 2 + 0.5).permute(1, 2, 0)
    pictures = [
        ((x + 0.5).permute(1, 2, 0), f"A {CLASSES[answer]}.\nCertified radius {shown(radius)}"),
        (magnified, f"The smallest change found.\nLength {change.norm():.2f}; contrast raised"),
        ((x + change + 0.5).clamp(0, 1).permute(1, 2, 0), f"With this change,\nthe answer is {CLASSES[other]}"),
    ]
    for axis, (picture, title) in zip(axes, pictures, strict=False):
        axis.imshow(picture.detach().numpy(), interpolation="nearest")
        axis.set_title(title, fontsize=11)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_color("0.8")
    draw_plane(axes[-1], model, x, change, radius)
    figure.savefig(path, dpi=130)


def shown(radius: float) -> str:
    """Two digits, rounded down: a radius that is rounded up is not proven."""
    return f"{math.floor(100 * radius) / 100:.2f}"


def draw_plane(axis: Axes, model: nn.Module, x: Tensor, change: Tensor, radius: float) -> None:
    """Answers in the plane of the change and a random direction, with the certified ball and the change in it."""
    across = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    along, length = change / change.norm(), float(change.norm())
    across -= (across * along).sum() * along
    across /= across.norm()
    side, extent = 161, 2.1 * length
    steps = torch.linspace(-extent, extent, side)
    points = x + steps[None, :, None, None, None] * along + steps[:, None, None, None, None] * across
    with torch.no_grad():
        answers = torch.cat([model(row).argmax(1) for row in points.flatten(0, 1).split(1000)]).reshape(side, side)
    found = answers.unique().tolist()
    ranks = torch.stack([(answers == value).long() * index for index, value in enumerate(found)]).sum(0)
    axis.imshow(
        ranks, origin="lower", extent=(-extent, extent, -extent, extent), cmap=ListedColormap(GROUNDS[: len(found)])
    )
    axis.add_patch(Circle((0, 0), radius, facecolor="white", alpha=0.75, edgecolor="none"))
    axis.add_patch(Circle((0, 0), radius, fill=False, linewidth=2, edgecolor="black"))
    axis.plot([0, radius * math.cos(0.6)], [0, radius * math.sin(0.6)], color="black", linewidth=1)
    axis.plot([0], [0], "o", color="black", markersize=4)
    axis.plot([length], [0], "X", color="black", markersize=8)
    axis.annotate(
        f"certified ball, radius {shown(radius)}", (0, radius), (0, 5), textcoords="offset points", ha="center"
    )
    axis.annotate(f"{length:.2f}", (length, 0), (0, -15), textcoords="offset points", ha="left")
    for value in found:
        places = (answers == value).nonzero().double()
        if len(places) > 0.03 * side**2:  # near the bottom, where nothing else is written
            low = places[places[:, 0] < 0.12 * side] if bool((places[:, 0] < 0.12 * side).any()) else places
            row, column = (low.mean(0) / (side - 1) * 2 - 1) * extent
            axis.text(float(column), float(row), CLASSES[value], ha="center", va="center", style="italic")
    axis.set_title("Answers in a plane\nthrough both images", fontsize=11)
    axis.set_xlabel("distance along the change")
    axis.set_ylabel("distance in a random direction")
    axis.spines[:].set_color("0.8")
    axis.tick_params(color="0.8")


def main() -> None:
    """Train, choose a test image that is certified well, attack, draw."""
    data = load("cifar10-mini")
    model = trained_network(data.train_images / 255 - 0.5, data.train_labels)
    images = data.test_images / 255 - 0.5
    certificate = onelip.certify(model, images, data.test_labels)
    chosen = int((certificate.radii * certificate.correct).argsort(descending=True)[5])
    change, radius = nearest_change(model, images[chosen]), float(certificate.radii[chosen])
    assert float(change.norm()) > radius, "an attack beat the certificate"
    print(f"radius {radius:.4f}, nearest change {float(change.norm()):.4f}")
    draw(model, images[chosen], change.detach(), radius, Path(__file__).with_name("radius.png"))


if __name__ == "__main__":
    main()
