"""A regression with intervals: how far can the prediction move if the input is off by a little?

python examples/regression.py [steps]
"""

import sys

import torch
from torch import nn

import onelip
from onelip.layers import FullSort, create_linear

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
torch.manual_seed(0)

# Two sensors measure a position; the quantity of interest is a wave over it.
positions = torch.rand(2000, 2)
target = torch.sin(4 * positions[:, :1]) + 0.5 * torch.cos(3 * positions[:, 1:]) + 0.02 * torch.randn(2000, 1)

model = nn.Sequential(
    create_linear("bjorck", 2, 64, lipschitz=5.0),  # gives the whole model the constant 5
    FullSort(),
    create_linear("bjorck", 64, 64),
    FullSort(),
    create_linear("bjorck", 64, 1),
)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(steps):
    batch = torch.randint(len(positions), (256,))
    optimiser.zero_grad()
    nn.functional.mse_loss(model(positions[batch]), target[batch]).backward()
    optimiser.step()

model.eval()
constant = onelip.lipschitz_bound(model, (2,))
with torch.no_grad():
    error = (model(positions) - target).abs().mean()
    value = model(torch.tensor([[0.3, 0.7]])).item()
off = 0.01  # Euclidean distance between the measured and the true position
print(f"mean error {error:.3f}, proven Lipschitz constant {constant:.4f}")
print(f"prediction at (0.3, 0.7): {value:.3f}")
print(f"if the position is off by {off}: between {value - constant * off:.3f} and {value + constant * off:.3f}")
print(f"to be within 0.1, the position may be off by at most {0.1 / constant:.3f}")
