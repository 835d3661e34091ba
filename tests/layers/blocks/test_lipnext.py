"""Shifts, partial modulus and the block of LipNeXt."""

from __future__ import annotations

import pytest
import torch
from jacobians import distance_from_isometry, jacobian

import onelip
from onelip.errors import InvalidInputError
from onelip.layers.blocks.lipnext import LipNeXtBlock, PartialAbs, SpatialShift


def test_a_shift_moves_each_group_its_own_way() -> None:
    image = torch.zeros(1, 5, 3, 3)
    image[:, :, 1, 1] = 1
    shifted = SpatialShift(share=0.8)(image)
    places = [tuple(torch.nonzero(channel)[0].tolist()) for channel in shifted[0]]
    assert places == [(2, 1), (0, 1), (1, 2), (1, 0), (1, 1)]


def test_shift_and_modulus_are_isometries() -> None:
    point = torch.randn(8, 3, 4, dtype=torch.float64)
    for module in (SpatialShift(), SpatialShift(1.0), PartialAbs(), PartialAbs(0.0), PartialAbs(1.0)):
        if isinstance(module, SpatialShift) and module.share < 0.5:
            continue  # a quarter of 8 channels is no channel per direction
        assert distance_from_isometry(jacobian(module, point)) <= 1e-12


def test_the_block_is_an_isometry_that_mixes_neighbours() -> None:
    torch.manual_seed(0)
    block = LipNeXtBlock(16, shift=0.5).double().eval()
    point = torch.randn(16, 4, 4, dtype=torch.float64)
    matrix = jacobian(block, point)
    assert distance_from_isometry(matrix) <= 1e-5
    by_pixel = matrix.unflatten(0, (16, 16)).unflatten(2, (16, 16)).abs().sum((0, 2))
    assert int((by_pixel[5] > 1e-9).sum()) == 5  # the pixel itself and its four neighbours
    assert onelip.lipschitz_bound(block, (16, 4, 4)) <= 1 + 1e-7


def test_what_they_refuse() -> None:
    with pytest.raises(InvalidInputError, match="share=0"):
        SpatialShift(0)
    with pytest.raises(InvalidInputError, match=r"share=1\.5"):
        PartialAbs(1.5)
    with pytest.raises(InvalidInputError, match="needs more channels"):
        SpatialShift(0.25)(torch.zeros(1, 8, 2, 2))
