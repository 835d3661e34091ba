"""Programs that move the batch behind other dimensions, against the Jacobian of one input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onelip.certification import UnknownLipschitzConstant, certify, lipschitz_bound


class InFrequencies(nn.Module):
    """Rows before the batch: mixed by a matrix, multiplied by complex matrices, shifted, mixed and put back."""

    def __init__(self, pairs: str = "complex") -> None:
        super().__init__()
        self.pairs = pairs
        self.mix = nn.Parameter(torch.randn(6, 6))
        self.real, self.imag, self.first = (nn.Parameter(torch.randn(n, 3, 3)) for n in (2, 2, 2))
        self.shift = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        rows = x.permute(2, 3, 0, 1).reshape(6, batch * 3)
        rows = torch.matmul(self.mix, rows).reshape(6, batch, 3)
        first, rest = rows.narrow(0, 0, 2), rows.narrow(0, 2, 4).unflatten(0, (2, 2))
        one, other = rest.select(0, 0), rest.select(0, 1)
        if self.pairs == "overlapping":
            other = rows.narrow(0, 3, 2)
        parts = [torch.bmm(first, self.first)]
        parts.append(torch.bmm(one, self.real) - torch.bmm(other, self.imag))
        parts.append(torch.bmm(one, self.imag) + torch.bmm(other, self.real))
        rows = torch.cat(parts)
        rows = torch.cat([rows.narrow(0, 0, 1) + self.shift, rows.narrow(0, 1, 5)])
        rows = torch.matmul(self.mix.t(), rows.reshape(6, batch * 3))
        return rows.reshape(2, 3, batch, 3).permute(2, 3, 0, 1).flatten(1)


def norms(model: InFrequencies) -> tuple[float, float]:
    """That of the Jacobian, and the product of those of the three steps."""
    model.requires_grad_(False)
    jacobian = torch.func.jacrev(model.double())(torch.randn(1, 3, 2, 3, dtype=torch.float64)).reshape(18, 18)
    complex_norm = torch.linalg.matrix_norm(torch.complex(model.real, model.imag), 2).amax()
    middle = torch.maximum(complex_norm, torch.linalg.matrix_norm(model.first, 2).amax())
    steps = torch.linalg.matrix_norm(model.mix, 2) ** 2 * middle
    return float(torch.linalg.matrix_norm(jacobian, 2)), float(steps)


@pytest.mark.parametrize("seed", range(3))
def test_blocks_that_meet_have_one_norm(seed: int) -> None:
    torch.manual_seed(seed)
    model = InFrequencies()
    bound = lipschitz_bound(model, (3, 2, 3))
    truth, steps = norms(model)
    assert truth * (1 - 1e-9) <= bound
    assert bound == pytest.approx(steps, rel=1e-5)
    scores = certify(model.float(), torch.rand(3, 3, 2, 3))
    assert (certify(model, torch.rand(3, 3, 2, 3), arithmetic="float32").radii >= 0).all()
    assert scores.switches["autocast"] == "off"
    assert scores.arithmetic == "float64"


@pytest.mark.parametrize("seed", range(3))
def test_rows_in_two_blocks_are_no_block_diagonal_matrix(seed: int) -> None:
    torch.manual_seed(seed)
    model = InFrequencies("overlapping")
    bound = lipschitz_bound(model, (3, 2, 3))
    assert norms(model)[0] * (1 - 1e-9) <= bound < 100 * norms(model)[0]


class Mixing(nn.Module):
    def __init__(self, which: str) -> None:
        super().__init__()
        self.which = which

    def forward(self, x: Tensor) -> Tensor:
        inside = x.permute(1, 0)  # (features, batch)
        if self.which == "returned":
            return inside
        if self.which == "narrow":
            return inside.narrow(1, 0, 1).permute(1, 0)
        if self.which == "matmul":
            return torch.matmul(torch.ones(8, 8), inside.reshape(8)[:, None]).reshape(4, 2).permute(1, 0)
        if self.which == "cat":
            return torch.cat([inside, inside], 1).permute(1, 0)
        return inside.reshape(2, 4).permute(0, 1)


@pytest.mark.parametrize("which", ["returned", "narrow", "matmul", "cat", "reshape"])
def test_what_mixes_inputs_is_refused(which: str) -> None:
    with pytest.raises(UnknownLipschitzConstant):
        lipschitz_bound(Mixing(which), (4,))
