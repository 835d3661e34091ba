"""The one check of `--device`, for every command."""

from __future__ import annotations

import torch

from onelip.errors import InvalidInputError


def usable_device(name: str | None = None) -> str:
    """The device of this name; None and "auto" are a GPU where there is one; refuses what is not here."""
    if name in (None, "auto"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidInputError(f"there is no device {name!r}, use auto, cpu, cuda or cuda:<number>") from None
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < found):
        return name
    cards = ", ".join(f"cuda:{index}" for index in range(found)) or "no GPU was found"
    raise InvalidInputError(f"the device {name!r} cannot be used here, use cpu or auto ({cards})")
