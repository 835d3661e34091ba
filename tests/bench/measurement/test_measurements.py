"""One measurement is one record: read again, continued, refused where it does not fit, named where it fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from onelip.bench.measurement import (
    PREDICTED,
    PREDICTED_ON_GPU,
    Measurement,
    Rounds,
    measure,
    measurements,
    run_measurement,
)
from onelip.bench.measurement.memory import GIB, MemoryUse, measure_memory
from onelip.bench.measurement.networks import build_network, random_batch
from onelip.bench.records import NetworkSpec, RunStatus, read_record
from onelip.errors import InvalidInputError
from onelip.linalg.devices import pretend_device

NETWORK = NetworkSpec(method="standard", width=4)
PREDICTION = Measurement("memory", NETWORK, 2, PREDICTED)
USE = MemoryUse(1, 3, 2)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A memory account that counts its calls and takes no time."""
    calls: list[Any] = []
    monkeypatch.setattr(measurements, "measure_memory", lambda *work: calls.append(work) or USE)
    measurements._predicted_training.cache_clear()
    return calls


def _predict(monkeypatch: pytest.MonkeyPatch, training: int, available: int) -> None:
    monkeypatch.setattr(measurements, "_predicted_training", lambda network, batch_size, forms: training)
    monkeypatch.setattr(measurements, "available_memory", lambda device: available)


def test_a_finished_measurement_is_read_not_repeated(tmp_path: Path, calls: list[Any]) -> None:
    first, second = run_measurement(PREDICTION, tmp_path), run_measurement(PREDICTION, tmp_path)
    assert len(calls) == 1
    assert (first.is_new, second.is_new) == (True, False)
    assert first.metrics == second.metrics == {
        "fits": True, "parameters": 1, "training": 3, "inference": 2, "smallest_card_gib": 8,
    }  # fmt: skip
    record = read_record(first.folder)
    assert (record.kind, record.status, record.config["network"]) == ("measure", RunStatus.FINISHED, NETWORK.as_dict())
    assert run_measurement(PREDICTION, tmp_path, again=True).is_new
    assert len(calls) == 2


def test_other_code_is_another_measurement(tmp_path: Path, calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run_measurement(PREDICTION, tmp_path)
    monkeypatch.setattr(measurements, "fingerprint", lambda *_: "other")
    assert run_measurement(PREDICTION, tmp_path).is_new
    assert len(calls) == 2


def test_the_fingerprint_is_that_of_method_quantity_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {measurements.fingerprint(quantity, key) for quantity in ("time", "macs") for key in ("aol", "lot")}
    assert len(known) == 4
    monkeypatch.setattr(torch, "__version__", "0.0")
    measurements.fingerprint.cache_clear()
    assert measurements.fingerprint("time", "aol") not in known
    measurements.fingerprint.cache_clear()


def test_what_runs_on_a_device_belongs_to_its_hardware() -> None:
    for quantity in ("time", "memory", "certify"):
        config = Measurement(quantity, NETWORK).config()
        assert config["device"] == "cpu"
        assert "threads" in config["hardware"]
    for predicted in (Measurement("macs", NETWORK), PREDICTION):
        config = predicted.config()
        assert (config["device"], config["hardware"]) == (PREDICTED, None)
    assert Measurement("time", NETWORK, rounds=Rounds(seconds=5)).config()["rounds"]["seconds"] == 5
    assert Measurement("certify", NETWORK, arithmetic="float32").config()["arithmetic"] == "float32"


def test_what_does_not_fit_is_a_result_until_it_fits(
    tmp_path: Path, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    measurement = replace(PREDICTION, device="cpu")
    _predict(monkeypatch, training=94 * GIB, available=24 * GIB)
    expected = {"fits": False, "needed_bytes": 94 * GIB, "available_bytes": 24 * GIB}
    assert run_measurement(measurement, tmp_path).metrics == expected
    outcome = run_measurement(measurement, tmp_path)
    assert (outcome.is_new, outcome.fits, outcome.metrics) == (False, False, expected)
    assert not calls
    monkeypatch.setattr(measurements, "available_memory", lambda device: 200 * GIB)
    monkeypatch.setattr(measurements, "measure_memory", lambda *work: MemoryUse(1, 93 * GIB, 2))
    outcome = run_measurement(measurement, tmp_path)
    assert outcome.is_new
    assert (outcome.metrics["training"], outcome.metrics["smallest_card_gib"]) == (93 * GIB, None)


def test_running_out_of_memory_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _predict(monkeypatch, training=GIB, available=3 * GIB)

    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measurements, "measure_throughput", fail)
    metrics = run_measurement(Measurement("time", NETWORK, 2), tmp_path).metrics
    assert metrics == {"fits": False, "needed_bytes": 2 * GIB, "available_bytes": 3 * GIB}, "with the reference"


def test_a_failure_is_recorded_and_tried_again(
    tmp_path: Path, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("something\nis wrong")

    with monkeypatch.context() as broken:
        broken.setattr(measurements, "measure_memory", fail)
        outcome = run_measurement(PREDICTION, tmp_path)
    assert outcome.failure == "RuntimeError: something is wrong"
    assert read_record(outcome.folder).status is RunStatus.FAILED
    assert run_measurement(PREDICTION, tmp_path).fits
    assert len(calls) == 1


def test_the_same_network_and_images_are_measured_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(
        measurements, "measure_memory", lambda model, x, labels: seen.extend((*model.parameters(), x, labels)) or USE
    )
    monkeypatch.setattr(measurements, "_predicted_training", lambda network, batch_size, forms: 0)
    for _ in range(2):
        measure(replace(PREDICTION, device="cpu"))
    half = len(seen) // 2
    assert all(torch.equal(a, b) for a, b in zip(seen[:half], seen[half:], strict=True))


@pytest.mark.parametrize("quantity", ["time", "memory", "macs", "certify"])
def test_models_of_ones_own_are_measured(quantity: Any) -> None:
    network = NetworkSpec(model="model_factories:sequential", dataset="cifar10-mini")
    once = Rounds(warm_up=0, least=1, most=1)
    device = PREDICTED if quantity == "memory" else "cpu"
    metrics = measure(Measurement(quantity, network, 2, device, once))
    assert metrics["fits"]
    if quantity == "certify":
        assert 0.1 < metrics["lipschitz"] <= 1 + 1e-5


def test_the_fingerprint_of_a_model_of_ones_own_follows_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without running it: the jobs of a study are listed before anyone has to trust its code."""
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "somebodys"
    folder.mkdir()
    for name in ("__init__", "network"):
        (folder / f"{name}.py").write_text("raise AssertionError('executed')")
    first = measurements.fingerprint("macs", "own", "somebodys.network:make")
    (folder / "network.py").write_text("raise AssertionError('executed, too')")
    measurements.fingerprint.cache_clear()
    assert measurements.fingerprint("macs", "own", "somebodys.network:make") != first


def test_the_width_of_a_size_costs_what_the_size_costs() -> None:
    named, given = NetworkSpec(method="reference", size="XS"), NetworkSpec(method="reference", width=16)
    assert measure(replace(PREDICTION, network=named)) == measure(replace(PREDICTION, network=given))


@pytest.mark.parametrize(
    "changes",
    [{"method": "nope"}, {"width": 7}, {"width": 2}, {"width": 0}, {"dataset": "mnist"}, {"model": "transformer"}],
)
def test_networks_that_do_not_exist_are_refused(changes: dict[str, Any]) -> None:
    for method in ("aol", "reference"):
        with pytest.raises(InvalidInputError):
            Measurement("macs", replace(NETWORK, **({"method": method} | changes)))


def test_sizes_and_devices_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="batch"):
        Measurement("macs", NETWORK, 0)
    with pytest.raises(InvalidInputError, match="time"):
        Measurement("time", NETWORK, device=PREDICTED)


def test_memory_for_a_gpu_is_predicted_in_its_own_forms() -> None:
    """The layers of LOT keep other tensors there: complex matrices, and the steps of an iteration."""
    network = NetworkSpec(method="lot", width=4)
    cpu = measure(Measurement("memory", network, 4, PREDICTED))["training"]
    accelerator = measure(Measurement("memory", network, 4, PREDICTED_ON_GPU))["training"]
    device = torch.device("cpu")
    with pretend_device("accelerator"):
        real = measure_memory(build_network(network, device), *random_batch(network, 4, device)).training
    assert abs(accelerator - real) <= 0.01 * real, (accelerator, real)
    assert abs(accelerator - cpu) >= 0.02 * cpu, (accelerator, cpu)
