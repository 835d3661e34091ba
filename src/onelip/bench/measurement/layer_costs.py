"""Counted costs of a single layer, in the terms of the paper's table: the measured side of `onelip theory`."""

from __future__ import annotations

from typing import Any

import torch

from onelip.bench.measurement.macs import count_layer
from onelip.bench.measurement.memory import LiveTensors, without_memory
from onelip.bench.paper.complexity import CountedCosts, LayerShape, TheoryRow, costs_in_use, theory_table
from onelip.errors import InvalidInputError
from onelip.layers import create_conv
from onelip.layers.convolutions import LipschitzConv2d

_BYTES_PER_NUMBER = 4


def count_layer_costs(method: str, shape: LayerShape, **options: Any) -> CountedCosts:
    """Count a square convolution in training mode on meta tensors, in the form in which it runs for this shape.

    `options` go to the layer; with padding_mode="zeros" every kernel is applied as such.
    """
    if shape.k % 2 == 0:
        raise InvalidInputError(f"layers have odd kernel sizes, not {shape.k}")
    with without_memory():
        layer = create_conv(method, shape.c, shape.c, shape.k, **options)
        x = torch.rand(shape.b, shape.c, shape.s, shape.s, requires_grad=True)
        macs = count_layer(layer, x)
        with LiveTensors() as live:  # numbers alive after each of the two transformations, beyond those before it
            live.add([*layer.parameters(), *layer.buffers()])
            transformed = layer.transform((shape.s, shape.s))
            parameters = live.current
            live.add([x])
            before = live.current
            y = layer.apply_to(x, transformed)
            inputs = live.current - before
            del y
    by_frequency = isinstance(layer, LipschitzConv2d) and layer.acts_on_frequencies((shape.s, shape.s))
    return CountedCosts(
        input_macs=macs.input,
        input_memory=inputs // _BYTES_PER_NUMBER,
        parameter_macs=macs.parameters,
        parameter_memory=parameters // _BYTES_PER_NUMBER,
        by_frequency=by_frequency,
    )


CountedRow = tuple[TheoryRow, CountedCosts | None]


def counted_rows(shape: LayerShape, counted: bool = True) -> list[CountedRow]:
    """The paper's table, with counted figures beside the row that describes what onelip runs."""
    return [
        (row, count_layer_costs(row.method, shape) if counted and row == costs_in_use(row.method) else None)
        for row in theory_table()
    ]
