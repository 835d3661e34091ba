"""Networks that come with onelip: names, cards, and weights that are what the card says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

import onelip
from onelip import pretrained
from onelip.errors import InvalidInputError
from onelip.models import FastNet

CARD = {
    *("name", "sha256", "data", "command", "commit", "seed", "core_seconds", "accuracy", "certified_accuracy"),
    *("lipschitz_bound", "arithmetic", "images"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of trained networks with one of our own."""
    network = FastNet(width=8, num_classes=3, input_shape=(3, 16, 16), depth=1)
    digest = onelip.save_model(network, tmp_path / "tiny-fast.safetensors")
    (tmp_path / "tiny-fast.json").write_text(json.dumps({"name": "tiny-fast", "sha256": digest}))
    monkeypatch.setattr(pretrained, "_folder", lambda: tmp_path)
    return tmp_path


def test_a_network_is_loaded_by_its_name(folder: Path) -> None:
    assert pretrained.names() == ["tiny-fast"]
    model, file = onelip.load_model("tiny-fast"), onelip.load_model(folder / "tiny-fast.safetensors")
    assert isinstance(model, FastNet)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), file.parameters(), strict=True))


def test_weights_that_are_not_those_of_the_card_are_refused(folder: Path) -> None:
    onelip.save_model(FastNet(width=8, num_classes=3, input_shape=(3, 16, 16)), folder / "tiny-fast.safetensors")
    with pytest.raises(InvalidInputError, match="its SHA-256 is not the recorded one"):
        onelip.load_model("tiny-fast")


def test_an_unknown_name_says_which_there_are(folder: Path) -> None:
    for call in (lambda: onelip.load_model("tiny-slow"), lambda: pretrained.card("tiny-slow")):
        with pytest.raises(InvalidInputError, match="tiny-fast"):
            call()


@pytest.mark.parametrize("name", pretrained.names())
def test_shipped_networks_are_what_their_cards_say(name: str) -> None:
    card, weights = pretrained.card(name), pretrained.weights(name)
    assert card.keys() >= CARD
    assert hashlib.sha256(weights).hexdigest() == card["sha256"]
    assert len(weights) < 10_000_000
    assert card["images"] == 10_000
    assert list(card["certified_accuracy"]) == ["36", "72", "108", "255"]
    model = onelip.load_model(name).eval()
    assert onelip.lipschitz_bound(model, (3, 32, 32)) == pytest.approx(card["lipschitz_bound"], abs=1e-6)
