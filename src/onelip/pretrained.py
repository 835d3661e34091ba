"""Trained networks that come with onelip, by name: weights, and a card that says what is proven about them.

    model = onelip.load_model("cifar10-fast-2m")
    onelip.pretrained.card("cifar10-fast-2m")["certified_accuracy"]

A card is JSON: proven constant and the arithmetic it holds for, accuracy and certified accuracy on all test images at
four radii, the command line, core-seconds, commit, seed and data of the training, and the SHA-256 of the weights.
"""

from __future__ import annotations

import json
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from onelip.errors import InvalidInputError


def names() -> list[str]:
    """Networks that come with onelip."""
    if not _folder().is_dir():
        return []
    return sorted(entry.name.removesuffix(".json") for entry in _folder().iterdir() if entry.name.endswith(".json"))


def card(name: str) -> dict[str, Any]:
    """What is known about a network."""
    if name not in names():
        raise InvalidInputError(f"there is no network {name!r}, use one of {', '.join(names())}, or a file")
    return json.loads((_folder() / f"{name}.json").read_text(encoding="utf-8"))


def weights(name: str) -> bytes:
    """The content of its safetensors file."""
    return (_folder() / f"{name}.safetensors").read_bytes()


def _folder() -> Traversable:
    return resources.files("onelip") / "trained"
