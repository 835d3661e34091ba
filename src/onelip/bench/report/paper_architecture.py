"""The paper's network in its tables and as it is built here: layers, block, parameters."""

from __future__ import annotations

import torch
from torch import nn

from onelip.bench.report.report_table import Column, ReportTable, words
from onelip.models import ConvNet
from onelip.protocol import SIZES, WIDTHS

_ARCHITECTURE = (
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
_BLOCK = (
    ("5 x Conv (k x k), Activation", "s x s x t"),
    ("First Channels", "s x s x t/2"),
    ("Pixel Unshuffle", "s/2 x s/2 x 2t"),
)
_PARAMETERS = {
    "XS": "1 < p < 2 (1.57)",
    "S": "4 < p < 8 (6.28)",
    "M": "16 < p < 32 (25.12)",
    "L": "64 < p < 128 (100.46)",
}
"""Millions of parameters in the table of sizes and, in brackets, in that of epochs."""

_LAYER, _OUTPUT = words("Layer"), words("Output")


def architecture_tables() -> tuple[list[ReportTable], list[ReportTable]]:
    """The paper's three tables, and ours from the network itself."""
    network = ConvNet("standard", "XS", 10, device="meta")
    printed = [
        ReportTable("architecture-published", "", "Architecture", "Width w.", (_LAYER, _OUTPUT), _ARCHITECTURE),
        ReportTable("block-published", "", "Downsize Block(k)", "Input s x s x t.", (_LAYER, _OUTPUT), _BLOCK),
        ReportTable("sizes-published", "", "Sizes", "", (words("Size"), words("M parameters"), Column("w")), _sizes()),
    ]
    inside = network.get_submodule("block1")
    assert isinstance(inside, nn.Sequential)
    ours = [
        ReportTable(
            "architecture-ours", "", "ConvNet XS, w = 16", "10 classes.", (_LAYER, _OUTPUT), _outputs(network, 3, 32)
        ),
        ReportTable(
            "block-ours", "", "Its first block", "s = 32, t = 16.", (_LAYER, _OUTPUT), _outputs(inside, 16, 32)
        ),
        _own_sizes(),
    ]
    return printed, ours


def _sizes() -> list[tuple[str, str, int]]:
    return [(size, _PARAMETERS[size], WIDTHS[size]) for size in SIZES]


def _outputs(network: nn.Sequential, channels: int, side: int) -> list[tuple[str, str]]:
    rows = []
    x = torch.empty(1, channels, side, side, device="meta")
    for name, module in network.named_children():
        x = module(x)
        shape = x.shape[1:] if x.dim() == 2 else (*x.shape[2:], x.shape[1])
        rows.append((f"{name}: {type(module).__name__}", " x ".join(map(str, shape))))
    return rows


def _own_sizes() -> ReportTable:
    methods = ("aol", "bcop", "sandwich")
    rows = []
    for size in SIZES:
        counts = [
            sum(p.numel() for p in ConvNet(method, size, 10, device="meta").parameters()) / 1e6 for method in methods
        ]
        rows.append((size, *counts, WIDTHS[size]))
    columns = [Column(method, "M parameters", show="{:.2f}".format) for method in methods]
    caption = "BCOP has fewer parameters and Sandwich twice as many, as the paper remarks; the others as many as AOL."
    return ReportTable("sizes-ours", "", "Sizes", caption, (words("Size"), *columns, Column("w")), rows)
