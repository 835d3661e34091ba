"""Inverses by blocks against LAPACK in float64."""

import pytest
import torch

from onelip.fast.block_inverse import block_inverse


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (3, 16, 16), (2, 3, 36, 36), (50, 50), (2, 128, 128), (0, 40, 40)])
def test_it_is_the_inverse(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """I + A with ||A|| up to 60, the largest that a Cayley transform has: as accurate as LAPACK's."""
    torch.manual_seed(0)
    side = shape[-1]
    for size in (0.5, 60.0):
        skew = torch.randn(shape, dtype=dtype)
        skew = skew - skew.mH
        skew = skew * size / torch.linalg.matrix_norm(skew, 2)[..., None, None].clamp(min=1e-30)
        low = torch.randn(*shape[:-1], 2, dtype=dtype) / side**0.5
        matrix = torch.eye(side, dtype=dtype) + skew + low @ low.mH
        exact = torch.linalg.inv(matrix.to(torch.complex128))
        allowed = 8 * side**0.5 * torch.finfo(dtype).eps * (1 + size)
        found = block_inverse(matrix)
        assert found.shape == matrix.shape
        assert (torch.linalg.matrix_norm(found - exact) <= allowed * torch.linalg.matrix_norm(exact)).all()
