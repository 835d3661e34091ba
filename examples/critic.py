"""Estimate a Wasserstein distance with a critic, a 1-Lipschitz function that separates two samples.

python examples/critic.py [steps]
"""

import sys

import torch
from torch import nn

import onelip
from onelip.layers import FullSort, create_linear
from onelip.losses import KR

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
torch.manual_seed(0)

# Two rings around the same centre: every point of the small one is 2 away from the nearest point of the large one.
angle = 2 * torch.pi * torch.rand(1024)
circle = torch.stack([angle.cos(), angle.sin()], dim=1)
points, is_outer = torch.cat([3 * circle, circle]), torch.arange(2048) < 1024

critic = nn.Sequential(
    create_linear("bjorck", 2, 64),
    FullSort(),
    create_linear("bjorck", 64, 64),
    FullSort(),
    create_linear("bjorck", 64, 1),
)
loss = KR()  # minus the difference of the mean scores; its minimum over 1-Lipschitz functions is minus the distance
optimiser = torch.optim.Adam(critic.parameters(), lr=0.01)
for step in range(steps):
    optimiser.zero_grad()
    value = loss(critic(points), is_outer)
    value.backward()
    optimiser.step()
    if step % 100 == 0:
        print(f"step {step}: {-value.item():.3f}")

# Every 1-Lipschitz function gives a lower bound; dividing by the proven constant accounts for rounding in the weights.
constant = onelip.lipschitz_bound(critic, (2,))
with torch.no_grad():
    scores = critic.eval()(points).flatten()
bound = (scores[is_outer].mean() - scores[~is_outer].mean()) / constant
print(f"the distance is 2, and the critic shows that it is at least {bound:.3f} (proven constant {constant:.6f})")
