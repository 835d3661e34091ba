"""The account of live tensors against hand calculation, and the prediction against the account."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip.bench.measurement import LiveTensors, MemoryUse, ReferenceConvNet, Workload, predict_memory, smallest_card
from onelip.bench.measurement import memory as memory_module
from onelip.bench.measurement.memory import CARD_OVERHEAD, GIB, account, available_memory, measure_memory
from onelip.bench.measurement.meta import NotPredictableError, without_memory
from onelip.errors import InvalidInputError
from onelip.layers import list_methods
from onelip.models import ConvNet

METHODS = [method.key for method in list_methods()]


def test_a_storage_counts_while_it_lives() -> None:
    with LiveTensors() as live:
        a = torch.zeros(1000)
        assert live.current == 4000
        b = a + a
        assert live.current == 8000
        del a
        assert live.current == 4000
        del b
        assert live.current == 0
        assert live.peak == 8000


def test_views_and_in_place_writes_count_nothing() -> None:
    with LiveTensors() as live:
        a = torch.zeros(10, 100, dtype=torch.float64)
        views = [a.T, a[3:], a.reshape(-1), a.add_(1)]
        assert live.current == live.peak == 8000
        del a
        assert live.current == 8000, "the views keep the storage"
        views.clear()
        assert live.current == 0


def test_earlier_tensors_count_when_added_or_used() -> None:
    added, used, unknown = torch.zeros(10), torch.zeros(20), torch.zeros(40)
    with LiveTensors() as live:
        live.add([added, added[2:], [used[:3]]])
        assert live.current == 40 + 80
        torch.sum(unknown)
        assert live.current == 40 + 80 + 160


def test_autograd_keeps_what_it_saves() -> None:
    with LiveTensors() as live:
        x = torch.ones(1000, requires_grad=True)
        y = x.exp()  # saves its result
        z = y * 2  # saves nothing but the number
        del y
        assert live.current == 3 * 4000
        z.sum().backward()
        del z
        assert live.current == 2 * 4000, "x and its gradient"


def test_reset_peak_starts_from_the_present() -> None:
    with LiveTensors() as live:
        a = torch.zeros(1000)
        del a
        kept = torch.zeros(10)
        live.reset_peak()
        assert live.peak == 40 == kept.untyped_storage().nbytes()


def test_training_of_a_linear_layer_by_hand() -> None:
    n, b = 64, 8
    model = nn.Linear(n, n, bias=False)
    x, labels = torch.zeros(b, n), torch.zeros(b, dtype=torch.long)
    use = account(model, x, labels)
    weight, activations = 4 * n * n, 4 * n * b
    assert use.parameters == weight
    # weight, gradient, momentum, and no temporary as large as the weight
    assert 3 * weight + activations <= use.training < 3.5 * weight
    assert use.inference == weight + 2 * activations


def _small_network(method: str) -> tuple[nn.Module, Tensor, Tensor]:
    model = ConvNet(method, None, 4, input_size=8, width=8)
    return model, torch.rand(6, 3, 8, 8), torch.randint(4, (6,))


@pytest.mark.parametrize("method", METHODS)
def test_prediction_agrees_with_the_account(method: str) -> None:
    real = account(*_small_network(method))
    with without_memory():
        predicted = account(*_small_network(method))
    assert predicted.parameters == real.parameters
    assert predicted.training == pytest.approx(real.training, rel=0.01)
    assert predicted.inference == pytest.approx(real.inference, rel=0.01)
    assert real.inference < real.training


def test_prediction_leaves_nothing_behind_that_breaks_real_layers() -> None:
    for method in METHODS:
        with without_memory():
            model, x, _ = _small_network(method)
            model(x)
        model, x, _ = _small_network(method)
        assert model(x).device.type == "cpu"


def test_prediction_of_the_reference_is_exact() -> None:
    def network() -> Any:
        return ReferenceConvNet("XS", width=4), torch.rand(2, 3, 32, 32), torch.randint(10, (2,))

    real = account(*network())
    with without_memory():
        assert account(*network()) == real


def test_predicting_the_largest_network_allocates_nothing() -> None:
    use = predict_memory(Workload("standard", "L"))
    assert use.parameters == 4 * sum(p.numel() for p in ConvNet("standard", "L", 10, device="meta").parameters())
    assert use.training > 1.5 * GIB
    assert use.parameters * 3 < use.training


def test_operators_that_need_values_are_named() -> None:
    with pytest.raises(NotPredictableError, match="nonzero"), without_memory():
        torch.zeros(3).nonzero()


def test_training_memory_is_affine_in_the_batch_size() -> None:
    def training(batch: int) -> int:
        return predict_memory(Workload("standard", "XS", batch_size=batch)).training

    low, middle, high = training(512), training(1024), training(2048)
    assert high - middle == pytest.approx(2 * (middle - low), rel=0.01)


@pytest.mark.parametrize(
    ("needed", "card"),
    [(0, 8), (7 * GIB, 8), (7 * GIB + 1, 12), (23 * GIB, 24), (39 * GIB + 1, 80), (79 * GIB, 80), (79 * GIB + 1, None)],
)
def test_smallest_card_leaves_room_for_the_overhead(needed: int, card: int | None) -> None:
    assert CARD_OVERHEAD == GIB
    assert smallest_card(needed) == card


def test_cuda_uses_the_peak_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    peaks = iter([900, 500])

    def build(workload: Workload, device: torch.device) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))

    monkeypatch.setattr(memory_module, "build_network", build)
    monkeypatch.setattr(memory_module, "random_batch", lambda *_: (torch.zeros(2, 3, 32, 32), torch.tensor([0, 1])))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 100)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: calls.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: calls.append("peak") or next(peaks))
    use = measure_memory(Workload("standard"), torch.device("cuda"))
    assert calls == ["reset", "peak", "reset", "peak"]
    assert use == MemoryUse(4 * (3 * 32 * 32 * 10 + 10), 800, 400)


def test_available_memory_is_positive_and_finite() -> None:
    gc.collect()
    assert 2**20 < available_memory() < 2**50


def test_workloads_refuse_unknown_names() -> None:
    for arguments in ({"size": "XXL"}, {"dataset": "mnist"}, {"batch_size": 0}):
        with pytest.raises(InvalidInputError):
            Workload("aol", **arguments)  # pyright: ignore[reportArgumentType]
