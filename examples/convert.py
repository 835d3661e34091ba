"""Make an ordinary ResNet 1-Lipschitz, train the result, and see where its constant comes from.

python examples/convert.py [epochs]
"""

import sys

import torch
from torch import Tensor, nn

import onelip
from onelip.bench.data import load


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 4
torch.manual_seed(0)
data = load("cifar10-mini")
images, labels = data.train_images / 255 - 0.5, data.train_labels

ordinary = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), Block(16, 32), Block(32, 64), nn.Flatten(), nn.Linear(1024, 10))
model = onelip.convert(ordinary, "bcop")
print(model.conversion)  # what was replaced, by what, and why

loss = onelip.OffsetCrossEntropy(temperature=0.5)
optimiser = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(epochs):
    for batch in torch.randperm(len(images)).split(64):
        optimiser.zero_grad()
        loss(model(images[batch]), labels[batch]).backward()
        optimiser.step()

print(onelip.explain(model, (3, 32, 32)))
certificate = onelip.certify(model, data.test_images / 255 - 0.5, data.test_labels)
print(f"accuracy {certificate.correct.double().mean():.1%}")
print(f"certified at 36/255 {certificate.certified(36 / 255).double().mean():.1%}")
