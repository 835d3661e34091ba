"""Folders of the form that the Hugging Face Hub has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import onelip
from onelip.errors import InvalidInputError
from onelip.models import FastNet

hub = pytest.importorskip("onelip.hub")


def test_a_network_comes_back_from_a_folder(tmp_path: Path) -> None:
    network = FastNet(width=8, num_classes=3, input_shape=(3, 16, 16), depth=1).eval()
    hub.HubNetwork(network).save_pretrained(tmp_path / "net")
    again = hub.HubNetwork.from_pretrained(str(tmp_path / "net")).eval()
    images = torch.rand(2, 3, 16, 16)
    assert type(again.network) is FastNet
    assert torch.equal(again(images), network(images))
    assert torch.equal(onelip.certify(again, images).radii, onelip.certify(network, images).radii)
    assert "onelip" in (tmp_path / "net" / "README.md").read_text()


def test_a_model_that_no_file_can_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"only networks of onelip\.models"):
        hub.HubNetwork(nn.Linear(2, 2)).save_pretrained(tmp_path / "net")


def test_a_folder_with_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"not a network")
    with pytest.raises(InvalidInputError, match="safetensors"):
        hub.HubNetwork.from_pretrained(str(tmp_path))
