"""The layers of every method are one graph to torch.compile, in training and in evaluation: no break between."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from onelip.layers import MaxMin, create_conv, create_linear, list_methods


@pytest.mark.slow
@pytest.mark.parametrize("method", [method.key for method in list_methods()])
@pytest.mark.filterwarnings("ignore:.*parameters in place of")
def test_a_network_compiles_without_a_graph_break(method: str) -> None:
    """The backend "eager" runs the graph as it was recorded: what compilers make of it is tested by operators."""
    torch.manual_seed(0)
    layers = create_conv(method, 2, 4, 3, stride=2), MaxMin(), create_conv(method, 4, 4, 3), nn.Flatten()
    model = nn.Sequential(*layers, create_linear(method, 16, 3)).double()
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    for training in (True, False):
        model.train(training)
        twin = copy.deepcopy(model)
        torch.compiler.reset()
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), twin(x), rtol=1e-10, atol=1e-12)
