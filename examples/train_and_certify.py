"""Train a small 1-Lipschitz network by hand, certify it, and save it fused: the library without the command line.

python examples/train_and_certify.py [steps]
"""

from __future__ import annotations

import sys

import torch
from torch import nn

from onelip import OffsetCrossEntropy, certified_accuracy, fuse, lipschitz_bound
from onelip.bench.data import BatchStream, evaluation_batches, load, make_splits
from onelip.layers import BCOPConv2d, BCOPLinear, MaxMin


def build() -> nn.Module:
    return nn.Sequential(
        BCOPConv2d(3, 16, kernel_size=3, stride=2),
        MaxMin(),
        BCOPConv2d(16, 32, kernel_size=3, stride=2),
        MaxMin(),
        BCOPConv2d(32, 64, kernel_size=3, stride=2),
        MaxMin(),
        nn.Flatten(),
        BCOPLinear(64 * 4 * 4, 10),
    )


def main(steps: int) -> None:
    torch.manual_seed(0)
    train, _, test = make_splits(load("cifar10-mini"))
    model, loss = build(), OffsetCrossEntropy()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    stream = BatchStream(train, batch_size=64, seed=0)
    for step in range(steps):
        stream.seek(step)
        images, labels = next(iter(stream))
        optimiser.zero_grad()
        loss(model(images), labels).backward()
        optimiser.step()
    print(f"proven Lipschitz bound after {steps} steps: {lipschitz_bound(model.eval(), (3, 32, 32)):.8f}")
    result = certified_accuracy(model, evaluation_batches(test, 250), eps=(36 / 255,))
    print(f"accuracy {result.accuracy:.1%}, certified at 36/255: {result.certified[36 / 255]:.1%}")
    deployed = fuse(model, (3, 32, 32))
    print("fused:", ", ".join(type(module).__name__ for module in deployed.children()))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
