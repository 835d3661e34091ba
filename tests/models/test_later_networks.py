"""LiResNet, BRONet and LipNeXt: published parameter counts, constants, estimates."""

from __future__ import annotations

import pytest
import torch
from jacobians import jacobian

import onelip
from onelip.errors import InvalidInputError
from onelip.models import NETWORKS, BRONet, LipNeXt, LiResNet, NamedNetwork


def _parameters(net: NamedNetwork) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


@pytest.mark.parametrize(("network", "published"), [(LiResNet, 82_944_010), (BRONet, 68_788_234)])
def test_published_parameter_counts(network: type[LiResNet], published: int) -> None:
    assert _parameters(network(device="meta")) == published


def _small(name: str) -> NamedNetwork:
    torch.manual_seed(0)
    options = {"depth": 2} if name == "lipnext" else {"depth": 2, "dense": 1, "dense_width": 12}
    width = 16 if name == "lipnext" else 8
    return NETWORKS[name](width=width, num_classes=3, input_shape=(3, 16, 16), **options)


@pytest.mark.parametrize("name", ["liresnet", "bronet", "lipnext"])
def test_features_are_1_lipschitz_and_pairs_of_scores_as_said(name: str) -> None:
    net = _small(name)
    net(torch.rand(4, 3, 16, 16))  # centering has seen a batch
    net = net.double().eval()
    point = torch.rand(3, 16, 16, dtype=torch.float64)
    features = jacobian(net[:-1], point)
    assert torch.linalg.matrix_norm(features, 2) <= onelip.lipschitz_bound(net[:-1], (3, 16, 16)) <= 1 + 1e-6
    pairs, rows = net.pair_constants(), jacobian(net, point)
    assert pairs is not None
    for i in range(3):
        for j in range(3):
            assert torch.linalg.vector_norm(rows[i] - rows[j]) <= pairs[i, j] + 1e-6
    certificate = onelip.certify(net, torch.rand(2, 3, 16, 16, dtype=torch.float64))
    assert bool((certificate.radii >= 0).all())


@pytest.mark.parametrize("name", ["liresnet", "bronet", "lipnext"])
def test_a_step_of_training_changes_every_parameter(name: str) -> None:
    net = _small(name)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    torch.nn.functional.cross_entropy(net(torch.rand(6, 3, 16, 16)), torch.arange(6) % 3).backward()
    optimiser.step()
    assert not any(torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))


def test_liresnet_takes_any_method() -> None:
    net = LiResNet("aol", 8, 3, (3, 16, 16), depth=1, dense=1, dense_width=8)
    assert net(torch.rand(2, 3, 16, 16)).shape == (2, 3)


def test_what_they_refuse() -> None:
    with pytest.raises(InvalidInputError, match="must be even"):
        LiResNet(width=7)
    with pytest.raises(InvalidInputError, match="its mixers are stiefel"):
        LipNeXt("aol")
    with pytest.raises(InvalidInputError, match="use 16 or more"):
        LipNeXt(width=8)
