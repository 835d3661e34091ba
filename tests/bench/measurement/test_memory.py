"""Memory of training and inference by hand calculation, and the prediction against the account of a real run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip.bench.measurement import ReferenceConvNet, memory
from onelip.bench.measurement.memory import NotPredictableError, measure_memory, without_memory
from onelip.layers import list_methods
from onelip.models import ConvNet

METHODS = [method.key for method in list_methods()]


def test_training_of_a_linear_layer_by_hand() -> None:
    n, b = 64, 8
    model = nn.Linear(n, n, bias=False)
    x, labels = torch.zeros(b, n), torch.zeros(b, dtype=torch.long)
    use = measure_memory(model, x, labels)
    weight, activations = 4 * n * n, 4 * n * b
    assert use.parameters == weight
    # weight, gradient, momentum, and no temporary as large as the weight
    assert 3 * weight + activations <= use.training < 3.5 * weight
    assert use.inference == weight + 2 * activations


def _small_network(method: str) -> tuple[nn.Module, Tensor, Tensor]:
    model = ConvNet(method, None, 4, input_size=8, width=8)
    return model, torch.rand(6, 3, 8, 8), torch.randint(4, (6,))


@pytest.mark.parametrize("method", METHODS)
def test_prediction_agrees_with_a_real_run(method: str) -> None:
    model, x, labels = _small_network(method)
    real = measure_memory(model, x, labels)
    with without_memory():
        predicted = measure_memory(*_small_network(method))
    assert predicted.parameters == real.parameters
    # A predicted gradient has no zeros to be found: the last layer of SOC, here a large part, has two temporaries more.
    assert predicted.training == pytest.approx(real.training, rel=0.02 if method == "soc" else 0.01)
    assert predicted.inference == pytest.approx(real.inference, rel=0.01)


def test_prediction_leaves_nothing_behind_that_breaks_real_layers() -> None:
    for method in METHODS:
        with without_memory():
            model, x, _ = _small_network(method)
            model(x)
        model, x, _ = _small_network(method)
        assert model(x).device.type == "cpu"


def test_prediction_of_the_reference_is_exact() -> None:
    def network() -> Any:
        return ReferenceConvNet(4), torch.rand(2, 3, 32, 32), torch.randint(10, (2,))

    real = measure_memory(*network())
    with without_memory():
        assert measure_memory(*network()) == real


def test_predicting_the_largest_network_allocates_nothing() -> None:
    with without_memory():
        model = ReferenceConvNet(128)
        use = measure_memory(model, torch.rand(256, 3, 32, 32), torch.randint(10, (256,)))
    assert use.parameters == 4 * sum(p.numel() for p in model.parameters())
    assert use.training > 1.5 * 2**30
    assert use.parameters * 3 < use.training


def test_operators_that_need_values_are_named() -> None:
    with pytest.raises(NotPredictableError, match="nonzero"), without_memory():
        torch.zeros(3).nonzero()


def test_training_memory_is_affine_in_the_batch_size() -> None:
    def training(batch: int) -> int:
        with without_memory():
            model = ReferenceConvNet(4)
            return measure_memory(model, torch.rand(batch, 3, 32, 32), torch.randint(10, (batch,))).training

    low, middle, high = training(512), training(1024), training(2048)
    assert high - middle == pytest.approx(2 * (middle - low), rel=0.01)


def test_cuda_uses_the_peak_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others have allocated is left out; network and batch, which are there already, count."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 10))
    x, labels = torch.zeros(2, 3, 2, 2), torch.tensor([0, 1])
    own, calls, peaks = 4 * 130 + 4 * 24 + 8 * 2, list[str](), iter([9000, 5000])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 100 + own)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: calls.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: calls.append("peak") or next(peaks))
    assert memory._on_cuda(model, x, labels) == (8900, 4900)
    assert calls == ["reset", "peak", "reset", "peak"]
