"""FastNet and what all named networks share: shapes, files, certificates, stacked training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from jacobians import jacobian

import onelip
from onelip.checkpoints import load_model, save_model
from onelip.errors import InvalidInputError
from onelip.models import NETWORKS, FastNet


def _small(**changes: Any) -> FastNet:
    torch.manual_seed(0)
    return FastNet(**({"width": 8, "num_classes": 4, "input_shape": (3, 16, 16), "depth": 1} | changes))


@pytest.mark.parametrize("patch", [2, 4])
@pytest.mark.parametrize("method", ["stiefel", "aol", "bcop", "cpl", "bro"])
def test_it_is_1_lipschitz_with_every_method(method: str, patch: int) -> None:
    net = _small(method=method, patch=patch).double().eval()
    exact = torch.linalg.matrix_norm(jacobian(net, torch.rand(3, 16, 16, dtype=torch.float64)), 2)
    assert exact <= onelip.lipschitz_bound(net, (3, 16, 16)) <= 1 + 1e-7


def test_no_layer_shrinks_the_gradient_of_a_margin_at_size_xs() -> None:
    net = FastNet(width=FastNet.info.widths["XS"]).double().eval()
    images = torch.rand(4, 3, 32, 32, dtype=torch.float64, requires_grad=True)
    scores = net(images)
    (gradient,) = torch.autograd.grad((scores[:, 0] - scores[:, 1]).sum(), images)
    norms = gradient.flatten(1).norm(dim=1)  # to float32, in which the matrices were drawn
    torch.testing.assert_close(norms, torch.full_like(norms, 2**0.5), rtol=1e-4, atol=0)


def test_a_file_from_before_patches_is_the_network_it_was(tmp_path: Path) -> None:
    net = _small(patch=2, padding_mode="zeros").eval()
    del net.arguments["patch"]
    save_model(net, tmp_path / "net.safetensors")
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(load_model(tmp_path / "net.safetensors").eval()(images), net(images))


@pytest.mark.parametrize(("shape", "classes"), [((3, 32, 32), 10), ((1, 8, 24), 3), ((3, 64, 64), 200)])
def test_shapes(shape: tuple[int, int, int], classes: int) -> None:
    net = FastNet(width=16, num_classes=classes, input_shape=shape, depth=1)
    assert net(torch.rand(2, *shape)).shape == (2, classes)
    assert net.input_shape == shape


def test_training_stacked_computes_the_same_as_layer_by_layer() -> None:
    net, images = _small(depth=3), torch.rand(5, 3, 16, 16)
    together = net(images)
    alone = torch.nn.Sequential(*net)(images)
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_a_named_network_is_saved_and_loaded_without_a_factory(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = NETWORKS[name](width=16, num_classes=4, input_shape=(3, 32, 32)).eval()
    digest = save_model(net, tmp_path / "net.safetensors")
    loaded = load_model(tmp_path / "net.safetensors", sha256=digest).eval()
    assert type(loaded) is type(net)
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(loaded(images), net(images))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 6}, "width=6 is not supported, use a multiple of 4"),
        ({"width": 0}, "width=0 must be a positive integer"),
        ({"patch": 3}, "patch=3 is not supported, use 2 or 4"),
        ({"depth": 1.5}, "depth=1.5 must be a positive integer"),
        ({"input_shape": (3, 20, 16)}, "20 x 16 are not supported, their sides must be multiples of 8"),
        ({"input_shape": (3, 16)}, "must be channels, height and width"),
        ({"method": "magic"}, "magic"),
    ],
)
def test_what_it_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        _small(**changes)


def test_a_slice_is_a_plain_sequence() -> None:
    assert type(_small()[:3]) is torch.nn.Sequential
