"""The published setting: paddings, starts and layer arguments of the comparison paper's code."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from onelip.bench.paper.settings import PUBLISHED_SETTINGS
from onelip.errors import InvalidInputError
from onelip.layers import BCOPConv2d, SLLConv2d, SOCConv2d
from onelip.models import ConvNet

PUBLISHED = [key for key, setting in PUBLISHED_SETTINGS.items() if setting.conv is None]


def network(method: str, **options: Any) -> ConvNet:
    torch.manual_seed(0)
    return ConvNet(method, None, 5, 8, width=16, setting="published", **options)


def weight(model: ConvNet, name: str) -> Tensor:
    return model.get_parameter(f"{name}.weight").detach()


def test_the_seven_methods_of_the_paper_have_one() -> None:
    assert PUBLISHED == ["aol", "bcop", "cayley", "cpl", "lot", "sll", "soc"]


@pytest.mark.parametrize("method", PUBLISHED)
def test_padding_and_start_can_be_set_by_hand(method: str) -> None:
    zeros = {"cpl", "lot", "sll", "soc"}
    config = network(method).config
    assert (config.padding_mode, config.init) == ("zeros" if method in zeros else "circular", "published")
    assert network(method, padding_mode="circular", init="orthogonal").config.padding_mode == "circular"
    assert ConvNet(method, None, 5, 8, width=4).config.padding_mode == "circular"


def test_a_method_without_one_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="oni has no published setting"):
        ConvNet("oni", "XS", 10, setting="published")
    with pytest.raises(InvalidInputError, match="use one of own, published"):
        ConvNet("aol", "XS", 10, setting="magic")


@pytest.mark.parametrize("method", ["aol", "lot"])
def test_identity_starts(method: str) -> None:
    model = network(method)
    kernel = weight(model, "block1.conv3")
    assert torch.equal(kernel[:, :, 1, 1], torch.eye(16))
    assert float(kernel.abs().sum()) == 16
    for name in ("stem", "linear"):
        matrix = weight(model, name).flatten(1)
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(len(matrix)), rtol=0, atol=1e-5)
        assert torch.equal(matrix, torch.eye(len(matrix))) == (method == "lot")
        assert not model.get_parameter(f"{name}.bias").any()


def test_bcop_starts_with_small_orthogonal_matrices() -> None:
    conv = network("bcop").get_submodule("block1.conv2")
    assert isinstance(conv, BCOPConv2d)
    assert conv.factors is not None
    torch.testing.assert_close(conv.weight @ conv.weight.T, torch.eye(16) / 16, rtol=0, atol=1e-6)
    torch.testing.assert_close(conv.factors.mT @ conv.factors, (torch.eye(8) / 8).expand(4, 8, 8), rtol=0, atol=1e-6)
    assert conv.bias is not None
    assert 0.5 / 4 < float(conv.bias.detach().abs().max()) <= 1 / 4


@pytest.mark.parametrize("method", ["cayley", "cpl", "sll", "soc"])
def test_random_starts(method: str) -> None:
    """Deviation of the weights and bound of the biases, for 16 channels and 3 x 3 kernels."""
    fan_in = 16 * 9
    deviation = {"cayley": math.sqrt(1 / 3 / fan_in), "soc": 0.25}.get(method, math.sqrt(1 / fan_in))
    bound = 0.25 if method == "soc" else fan_in**-0.5
    model = network(method)
    assert float(weight(model, "block1.conv1").std()) == pytest.approx(deviation, rel=0.1)
    biases = torch.cat([model.get_parameter(f"block1.conv{i}.bias").detach() for i in range(1, 6)])
    assert 0.9 * bound < float(biases.abs().max()) <= bound


def test_sll_starts_with_normal_q() -> None:
    convs = [module for module in network("sll").modules() if isinstance(module, SLLConv2d)]
    published = torch.cat([torch.exp(-conv.q.detach()) for conv in convs])
    assert float(published.square().mean()) == pytest.approx(1, rel=0.15)


def test_soc_turns_further_and_trains_with_five_terms() -> None:
    model = network("soc")
    conv, last = model.get_submodule("block1.conv1"), model.get_submodule("block3.conv1")
    assert isinstance(conv, SOCConv2d)
    assert isinstance(last, SOCConv2d)
    assert (conv.train_terms, conv.eval_terms, conv.algorithm) == (5, 12, "series")
    assert (float(conv.angle), float(last.angle)) == (pytest.approx(2.1), 1.0)
    assert conv.eval().lipschitz_bound((8, 8)) <= 1 + 1e-5
