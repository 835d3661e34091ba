"""The paper's tables of its network and of Sandwich's gradients, and the same of the network that onelip builds."""

from __future__ import annotations

import torch

from onelip.models import ConvNet
from onelip.protocol import SIZES, WIDTHS

SANDWICH_GRADIENTS = (
    ("stem", "First Conv", 3.36e-7),
    ("stem_activation", "Activation", 3.36e-7),
    ("block1", "Downsize Block(3)", 3.79e-6),
    ("block2", "Downsize Block(3)", 5.56e-5),
    ("block3", "Downsize Block(3)", 7.83e-4),
    ("block4", "Downsize Block(3)", 8.15e-3),
    ("block5", "Downsize Block(1)", 1.04e-1),
    ("linear", "Linear", 1.82e-1),
)
"""Name here, name and gradient norm in the paper's table of ConvNet XS with Sandwich layers, 32 images."""

ARCHITECTURE = (
    ("Zero Channel Padding", "32 x 32 x w"),
    ("Conv (1 x 1)", "32 x 32 x w"),
    ("Activation", "32 x 32 x w"),
    ("Downsize Block(k)", "16 x 16 x 2w"),
    ("Downsize Block(k)", "8 x 8 x 4w"),
    ("Downsize Block(k)", "4 x 4 x 8w"),
    ("Downsize Block(k)", "2 x 2 x 16w"),
    ("Downsize Block(1)", "1 x 1 x 32w"),
    ("Flatten", "32w"),
    ("Linear", "32w"),
    ("First Channels(c)", "c"),
)
BLOCK = (
    ("5 x Conv (k x k), Activation", "s x s x t"),
    ("First Channels", "s x s x t/2"),
    ("Pixel Unshuffle", "s/2 x s/2 x 2t"),
)
PARAMETERS = {
    "XS": "1 < p < 2 (1.57)",
    "S": "4 < p < 8 (6.28)",
    "M": "16 < p < 32 (25.12)",
    "L": "64 < p < 128 (100.46)",
}
"""Millions of parameters in the table of sizes and, in brackets, in that of epochs."""

COUNTED = ("aol", "bcop", "sandwich")
"""Methods whose numbers of parameters differ; the others have as many as AOL."""


def built_sizes() -> list[tuple[str | float | int, ...]]:
    """Size, millions of parameters of the methods in `COUNTED`, and width."""
    rows: list[tuple[str | float | int, ...]] = []
    for size in SIZES:
        networks = (ConvNet(method, size, 10, device="meta") for method in COUNTED)
        counts = [sum(p.numel() for p in network.parameters()) / 1e6 for network in networks]
        rows.append((size, *counts, WIDTHS[size]))
    return rows


def built_layers(part: str = "", channels: int = 3) -> list[tuple[str, str]]:
    """Name and output of each layer of the ConvNet XS that onelip builds, or of a part of it with so many channels."""
    rows = []
    x = torch.empty(1, channels, 32, 32, device="meta")
    for name, module in ConvNet("standard", "XS", 10, device="meta").get_submodule(part).named_children():
        x = module(x)
        shape = x.shape[1:] if x.dim() == 2 else (*x.shape[2:], x.shape[1])
        rows.append((f"{name}: {type(module).__name__}", " x ".join(map(str, shape))))
    return rows
