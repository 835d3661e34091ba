"""What XLA lacks or gets wrong, by operations that it has.

Seen with torch_xla 2.9: QR, `cholesky_ex`, `solve_triangular`, `torch.complex` and FFTs are computed by the host, each
a transfer per step; the host receives wrong numbers of complex128 tensors; inverses of complex matrices are wrong, and
a complex tensor divided by a number is real. The older operators that torch has deprecated for its own devices are the
ones that XLA computes itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelip.linalg.devices import is_xla

_PASSES = 3


def inverse(matrix: Tensor) -> Tensor:
    """A^(-1); of B + i C by the real matrix [[B, -C], [C, B]], whose inverse has the same form."""
    if not matrix.is_complex():
        return torch.linalg.inv_ex(matrix).inverse
    side, (real, imag) = matrix.shape[-1], torch.view_as_real(matrix.resolve_conj()).unbind(-1)
    pair = torch.cat([torch.cat([real, -imag], -1), torch.cat([imag, real], -1)], -2)
    found = torch.linalg.inv_ex(pair).inverse[..., :side]
    return complex_matrix(found[..., :side, :], found[..., side:, :])


def cholesky(positive: Tensor) -> Tensor:
    """Lower triangular L with L L^H = A."""
    return torch.ops.aten.cholesky(positive)


def solve_triangular(factor: Tensor, right: Tensor, upper: bool) -> Tensor:
    """X with L X = B, or U X = B."""
    return torch.ops.aten.triangular_solve(right, factor, upper, False, False)[0]


def orthonormal_columns(matrix: Tensor) -> Tensor:
    """Q of V = Q R, for V of norm at most 1, by V L^(-H) with V^H V + r I = L L^H, thrice.

    A ridge r of the size of the rounding errors keeps every factor finite. Each pass multiplies small singular values
    by r^(-1/2) and ends at most r / 2 below 1, which a cubic step squares.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    ridge = sum(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps
    for _ in range(_PASSES):
        factor = cholesky(matrix.mH @ matrix + ridge * identity)
        matrix = solve_triangular(factor, matrix.mH, upper=False).mH
    return 1.5 * matrix - 0.5 * matrix @ (matrix.mH @ matrix)


def complex_matrix(real: Tensor, imag: Tensor) -> Tensor:
    """`torch.complex`, which XLA leaves to the host."""
    if not is_xla(real.device):
        return torch.complex(real, imag)
    return torch.view_as_complex(torch.stack([real, imag], dim=-1))


def divided(matrix: Tensor, number: float) -> Tensor:
    """Quotient of a matrix and a number."""
    return matrix * (1 / number) if is_xla(matrix.device) else matrix / number
