"""Ten steps of every published setting, from a seed: a change of starts, layers or loss shows here.

In float64, whose random numbers, QR signs and sums are the same on every processor up to rounding, far below the five
digits that are compared: they hold with `ATEN_CPU_CAPABILITY=default` too.
"""

from __future__ import annotations

import pytest
import torch

from onelip.losses import OffsetCrossEntropy
from onelip.models import ConvNet

LOSSES = {
    "aol": (0.77875, 0.6251),
    "bcop": (0.86189, 0.65063),
    "cayley": (0.90689, 0.65101),
    "cpl": (0.75531, 0.74906),
    "lot": (0.80466, 0.50279),
    "sll": (0.74191, 0.73586),
    "soc": (1.06486, 0.72715),
}
"""First and last loss of ten steps."""


def losses(method: str) -> tuple[float, float]:
    torch.manual_seed(0)
    model = ConvNet(method, None, 5, 8, width=8, setting="published", dtype=torch.float64)
    images, labels = torch.rand(32, 3, 8, 8, dtype=torch.float64) - 0.5, torch.arange(32) % 5
    images[:, 0] += labels[:, None, None] / 4
    optimiser, loss = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), OffsetCrossEntropy()
    found = []
    for _ in range(10):
        value = loss(model(images), labels)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        found.append(float(value.detach()))
    return found[0], found[-1]


@pytest.mark.parametrize("method", LOSSES)
def test_ten_steps(method: str) -> None:
    # AOL's last layer starts orthogonal: entries of P^T P are rounding noise there, whose signs are its gradient.
    assert losses(method) == pytest.approx(LOSSES[method], abs=2e-4 if method == "aol" else 1.5e-5)
