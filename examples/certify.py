"""Train a small 1-Lipschitz network and certify its predictions.

python examples/certify.py [epochs]
"""

import sys

import torch
from torch import nn

import onelip
from onelip.bench.data import load
from onelip.layers import BCOPConv2d, BCOPLinear, MaxMin

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 4
torch.manual_seed(0)
data = load("cifar10-mini")  # 5,000 images of CIFAR-10 that come with onelip
images, labels = data.train_images / 255 - 0.5, data.train_labels

model = nn.Sequential(
    BCOPConv2d(3, 16, kernel_size=3, stride=2),
    MaxMin(),
    BCOPConv2d(16, 32, kernel_size=3, stride=2),
    MaxMin(),
    BCOPConv2d(32, 64, kernel_size=2, stride=2),
    MaxMin(),
    nn.Flatten(),
    BCOPLinear(64 * 4 * 4, 10),
)
loss = onelip.OffsetCrossEntropy(temperature=0.5)
optimiser = torch.optim.Adam(model.parameters(), 0.01)
for epoch in range(epochs):
    for batch in torch.randperm(len(images)).split(64):
        optimiser.zero_grad()
        loss(model(images[batch]), labels[batch]).backward()
        optimiser.step()
    print(f"epoch {epoch + 1} of {epochs}")

print(f"proven Lipschitz constant: {onelip.lipschitz_bound(model, (3, 32, 32)):.6f}")
certificate = onelip.certify(model, data.test_images / 255 - 0.5, data.test_labels)
for radius in (0, 36 / 255, 72 / 255, 108 / 255):
    print(f"correct and certified at {radius:.3f}: {certificate.certified(radius).double().mean():.1%}")
