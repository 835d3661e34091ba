"""ECO and Sandwich as published: equal to the public code, defective as the comparison paper says, never certified.

The file in `public/` holds weights, inputs and outputs of one layer each, made with that code.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import onelip
from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.layers import create_conv, create_linear
from onelip.models import ConvNet

FIXTURE = Path(__file__).parent / "public" / "eco_sandwich_layers.npz"


def stored(name: str) -> Tensor:
    return torch.from_numpy(np.load(FIXTURE)[name])


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@torch.no_grad()
def test_eco_computes_what_the_public_code_does() -> None:
    layer = create_conv("eco", 4, 4, 3, variant="published").eval()
    layer.weight.copy_(stored("eco/weight").permute(2, 0, 1))
    assert layer.bias is not None
    layer.bias.copy_(stored("eco/bias"))
    assert relative(layer(stored("eco/x")), stored("eco/y")) < 2e-3  # it computes in half precision: 2^-10


@torch.no_grad()
def test_sandwich_computes_what_the_public_code_does() -> None:
    """Its kernels are stored flipped, and alpha is the norm that the weight started with."""
    layer = create_conv("sandwich", 4, 4, 3, variant="published").eval()
    weight = stored("sandwich/weight")
    tensors = {"weight": weight.transpose(0, 1).flip(2, 3), "alpha": weight.norm() / 1.7}
    layer.load_state_dict(tensors | {name: stored(f"sandwich/{name}") for name in ("bias", "psi")})
    assert relative(layer(stored("sandwich/x")), stored("sandwich/y")) < 1e-5


def norms(layer: torch.nn.Module, side: int) -> Tensor:
    """Singular values of the exact Jacobian of a layer of 4 channels at 0."""
    zeros = torch.zeros(4, side, side, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x[None])[0], zeros)
    assert isinstance(jacobian, Tensor)
    return torch.linalg.svdvals(jacobian.reshape(zeros.numel(), -1))


@pytest.mark.parametrize(("side", "expands"), [(6, False), (8, True)])
def test_eco_expands_where_3_does_not_divide_the_image(side: int, expands: bool) -> None:
    torch.manual_seed(0)
    published = create_conv("eco", 4, 4, 3, bias=False, variant="published", dtype=torch.float64).eval()
    own = create_conv("eco", 4, 4, 3, bias=False, init="orthogonal", dtype=torch.float64).eval()
    largest = float(norms(published, side)[0])
    assert largest > 1.5 if expands else largest < 1 + 1e-6
    assert float(norms(own, side)[0]) < 1 + 1e-9


@pytest.mark.parametrize("method", ["eco", "sandwich"])
def test_certificates_refuse_in_one_line(method: str) -> None:
    model = ConvNet(method, None, 5, 8, width=4, setting="published").eval()
    for ask in (
        lambda: onelip.certify(model, torch.rand(1, 3, 8, 8)),
        lambda: onelip.lipschitz_bound(model, (3, 8, 8)),
    ):
        with pytest.raises(UnknownLipschitzConstant, match=r'the published .*; use variant="own"') as refused:
            ask()
        assert "\n" not in str(refused.value)


def test_a_layer_alone_is_refused_too() -> None:
    with pytest.raises(UnknownLipschitzConstant, match="published ECO"):
        create_conv("eco", 4, 4, 3, variant="published").lipschitz_bound((8, 8))
    with pytest.raises(UnknownLipschitzConstant, match="published Sandwich"):
        create_linear("sandwich", 4, 4, variant="published").lipschitz_bound()
    with pytest.raises(InvalidInputError, match='"published" of eco, sandwich'):
        create_conv("aol", 4, 4, 3, variant="published")
    with pytest.raises(InvalidInputError, match="3 x 3 and 1 x 1"):
        create_conv("eco", 4, 4, 5, variant="published")
    with pytest.raises(InvalidInputError, match="it guarantees no constant"):
        create_conv("eco", 4, 4, 3, variant="published", lipschitz=2.0)


def test_psi_of_the_published_sandwich_overflows() -> None:
    layer = create_conv("sandwich", 4, 4, 3, variant="published").eval()
    with torch.no_grad():
        layer.get_parameter("psi").fill_(-100.0)
        assert not torch.isfinite(layer(torch.rand(1, 4, 8, 8))).all()


def gradient_at_the_stem(setting: str) -> float:
    """Norm of the gradient at the first layer's output, relative to that at the scores; 16 layers."""
    torch.manual_seed(0)
    model = ConvNet("sandwich", None, 5, 8, width=8, setting=setting, dtype=torch.float64).eval()
    first = model.get_submodule("stem")(model.get_submodule("pad")(torch.rand(8, 3, 8, 8, dtype=torch.float64)))
    first.retain_grad()
    scores = model[2:](first)
    torch.nn.functional.cross_entropy(scores, torch.arange(8) % 5).backward()
    assert first.grad is not None
    at_scores = torch.softmax(scores.detach(), 1) - torch.nn.functional.one_hot(torch.arange(8) % 5)
    return float(first.grad.norm() / (at_scores.norm() / 8))


def test_gradients_of_the_published_sandwich_vanish_and_ours_do_not() -> None:
    """Each published layer keeps a bit more than half of the gradient's norm: 0.6^16 = 3e-4."""
    assert gradient_at_the_stem("published") < 2e-3
    assert gradient_at_the_stem("own") > 0.1


def test_published_layers_train() -> None:
    for method in ("eco", "sandwich"):
        model = ConvNet(method, None, 5, 8, width=4, setting="published")
        model(torch.rand(2, 3, 8, 8)).square().sum().backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
