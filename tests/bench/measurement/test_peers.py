"""Layers of other packages in our network: with a stand-in always, with the real packages where they are installed."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

from onelip.bench.cli import run
from onelip.bench.measurement import REFERENCE, Rounds, Workload, peers, predict_memory
from onelip.bench.measurement.peers import PEERS, Peer, PeerLayers, build_peer_network, for_inference, peer_versions
from onelip.bench.measurement.workload import build_network
from onelip.bench.speed import Suite, choose_contestants, measure_contestant
from onelip.bench.speed import measure as measure_module
from onelip.errors import InvalidInputError
from onelip.layers import LipschitzConv2d, LipschitzLayer, LipschitzLinear, MaxMin

SMALL = Workload(REFERENCE, batch_size=2, width=4)
CPU = torch.device("cpu")


def _missing() -> str:
    try:
        peer_versions()
    except InvalidInputError as error:
        return str(error)
    return ""


needs_peers = pytest.mark.skipif(bool(_missing()), reason=_missing() or "installed")


def _plain() -> PeerLayers:
    """Spectrally normalised convolutions of torch in the place of another package's layers."""
    return PeerLayers(
        conv=lambda channels, size: spectral_norm(nn.Conv2d(channels, channels, size, padding="same")),
        linear=lambda features: spectral_norm(nn.Linear(features, features)),
    )


FAKE = Peer("fake-spectral", "torch", _plain)


def test_all_layers_are_replaced_and_nothing_else() -> None:
    model, ours = build_peer_network(FAKE, SMALL), build_network(Workload("standard", width=4))
    modules, originals = dict(model.named_modules()), dict(ours.named_modules())
    for path, original in originals.items():
        if isinstance(original, LipschitzConv2d):
            replaced = modules[path]
            assert isinstance(replaced, nn.Conv2d)
            assert (replaced.in_channels, replaced.kernel_size) == (original.in_channels, original.kernel_size)
        elif isinstance(original, LipschitzLinear):
            replaced = modules[path]
            assert isinstance(replaced, nn.Linear)
            assert replaced.in_features == original.in_features
        else:
            assert type(modules[path]) is type(original)
    assert not any(isinstance(module, LipschitzLayer) for module in modules.values())
    assert sum(isinstance(module, nn.Conv2d) for module in modules.values()) == 26
    assert sum(isinstance(module, MaxMin) for module in modules.values()) == 26
    assert model.training
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_inference_has_the_values_of_the_parametrised_network() -> None:
    torch.manual_seed(0)
    model, x = build_peer_network(FAKE, SMALL), torch.rand(2, 3, 32, 32)
    model(x).sum().backward()
    expected = model.eval()(x)
    ready = for_inference(model.train())
    assert not ready.training
    assert not any(parametrize.is_parametrized(module) for module in ready.modules())
    assert torch.equal(ready(x), expected)


def test_memory_of_peers_is_counted_as_a_prediction_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account of a real run and that on tensors without data agree for the same network."""
    same = Peer("fake-standard", "torch", _standard)
    monkeypatch.setattr(peers, "PEERS", (same,))
    monkeypatch.setattr(peers, "peer_versions", lambda: {"torch": "1"})
    contestant = choose_contestants(["fake-standard"], False, SMALL)[0]
    predicted = predict_memory(Workload("standard", batch_size=2, width=4))
    assert contestant.memory().training == pytest.approx(predicted.training, rel=0.01)


def _standard() -> PeerLayers:
    from onelip.layers import StandardConv2d, StandardLinear

    return PeerLayers(
        conv=lambda channels, size: StandardConv2d(channels, channels, size),
        linear=lambda features: StandardLinear(features, features),
    )


def test_peers_are_added_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PEERS", (FAKE, Peer("fake-other", "torch", _plain)))
    monkeypatch.setattr(peers, "peer_versions", lambda: {"torch": "1"})
    chosen = choose_contestants(["aol"], True, SMALL)
    assert [c.key for c in chosen] == ["aol", "fake-spectral", "fake-other"]
    assert [c.package for c in chosen] == ["onelip", "torch", "torch"]
    assert [c.key for c in choose_contestants(["fake-other"], False, SMALL)] == ["fake-other"]


def test_peers_have_their_own_table_and_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "PEERS", (FAKE,))
    monkeypatch.setattr(peers, "peer_versions", lambda: {"torch": "1"})
    monkeypatch.setattr(measure_module, "default_rounds", lambda device: Rounds(warm_up=1, least=6, most=6))
    common = ["bench", "speed", "--methods", "standard", "--peers", "--width", "4", "--batch", "2", "--device", "cpu"]
    assert run([*common, "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.count("method") == 2
    assert output.index("standard") < output.index("fake-spectral")
    assert json.loads((tmp_path / "speed.json").read_text())["peers"] == {"torch": "1"}


def test_without_the_extra_one_line_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(peers.metadata, "version", missing)
    for arguments in (["--peers"], ["--methods", "orthogonium-aol"]):
        assert run(["bench", "speed", *arguments]) == 2
        assert capsys.readouterr().err == (
            "onelip: orthogonium is not installed: peers need `pip install 'onelip[peers]'`\n"
        )


@needs_peers
@pytest.mark.filterwarnings("ignore")  # the packages' own
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.key)
def test_real_peers_are_measured(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "default_rounds", lambda device: Rounds(warm_up=1, least=6, most=6))
    contestant = choose_contestants([peer.key], False, SMALL)[0]
    result = measure_contestant(contestant, Suite(SMALL, CPU))
    assert all(ratio > 0 for ratio in result.ratios.values())
    assert contestant.package in peer_versions()


@needs_peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.key)
def test_real_peers_keep_the_size_of_images_and_their_values_at_inference(peer: Peer) -> None:
    torch.manual_seed(0)
    layers, x = peer.load(), torch.rand(2, 8, 8, 8)
    for size in (1, 3):
        layer = layers.conv(8, size)
        assert layer(x).shape == x.shape
        expected = layer.eval()(x)
        torch.testing.assert_close(for_inference(layer)(x), expected)
    linear = layers.linear(8)
    assert linear(x[:, :, 0, 0]).shape == (2, 8)
