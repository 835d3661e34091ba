"""Layers of other packages in our network: with a stand-in always, with the real packages where they are installed."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch import nn

from onelip.bench.cli import run
from onelip.bench.measurement import PREDICTED, Measurement, Rounds, measure, peers
from onelip.bench.measurement.networks import build_network, for_inference
from onelip.bench.measurement.peers import PEERS, PeerLayers, installed_peers, peer_versions
from onelip.bench.records import NetworkSpec
from onelip.errors import InvalidInputError
from onelip.layers import LipschitzConv2d, LipschitzLayer, LipschitzLinear, MaxMin

STANDARD = NetworkSpec(method="standard", width=4)
STAND_IN = NetworkSpec(method="torch:plain", width=4)


def _real() -> list[object]:
    """All real peers; those that are not installed are skipped, with the reason."""
    marked: list[object] = []
    for peer in PEERS:
        try:
            peer_versions(peer)
            marked.append(peer)
        except InvalidInputError as error:
            marked.append(pytest.param(peer, marks=pytest.mark.skip(reason=str(error))))
    return marked


def _plain() -> PeerLayers:
    """Layers of torch in the place of another package's."""
    return PeerLayers(
        conv=lambda channels, size: nn.Conv2d(channels, channels, size, padding="same"),
        linear=lambda features: nn.Linear(features, features),
    )


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, STAND_IN.method, _plain)


def test_all_layers_are_replaced_and_nothing_else() -> None:
    model, ours = build_network(STAND_IN), build_network(STANDARD)
    modules, originals = dict(model.named_modules()), dict(ours.named_modules())
    for path, original in originals.items():
        replaced = modules[path]
        if isinstance(original, LipschitzConv2d):
            assert isinstance(replaced, nn.Conv2d)
            assert (replaced.in_channels, replaced.kernel_size) == (original.in_channels, original.kernel_size)
        elif isinstance(original, LipschitzLinear):
            assert isinstance(replaced, nn.Linear)
            assert replaced.in_features == original.in_features
        else:
            assert type(replaced) is type(original)
    assert not any(isinstance(module, LipschitzLayer) for module in modules.values())
    assert sum(isinstance(module, nn.Conv2d) for module in modules.values()) == 26
    assert sum(isinstance(module, MaxMin) for module in modules.values()) == 26
    assert model.training
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_memory_of_peers_is_counted_in_a_real_run() -> None:
    """Where the layers do not look at values, it is that of a prediction."""
    real, predicted = (measure(Measurement("memory", STAND_IN, 2, device)) for device in ("cpu", PREDICTED))
    assert real["training"] == pytest.approx(predicted["training"], rel=0.01)


def test_a_peer_takes_the_place_of_a_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--methods", "torch:plain", "--width", "4", "--batch-size", "2", "--runs-dir", str(tmp_path)]
    figure = tmp_path / "costs.svg"
    assert run(["measure", "time", "--device", "cpu", "--rounds", "1", "--figure", str(figure), *common]) == 0
    assert "torch:plain" in capsys.readouterr().out
    assert "torch:plain" in figure.read_text()
    for quantity in ("macs", "certify"):
        assert run(["measure", quantity, *common]) == 2
        assert quantity in capsys.readouterr().err


def test_without_the_extra_one_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(peers.metadata, "version", missing)
    monkeypatch.delitem(PEERS, STAND_IN.method)
    for arguments, source in (
        (["--peers"], "onelip[peers]"),
        (["--methods", "orthogonium:aol"], "onelip[peers]"),
        (["--methods", "lipnn:aol"], "1LipschitzLayersCompared"),
    ):
        assert run(["measure", "time", *arguments, "--runs-dir", str(tmp_path)]) == 2
        assert source in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_all_peers_are_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in ("orthogonium", "einops"):
            return "1.0"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(peers.metadata, "version", version)
    assert installed_peers() == [name for name in PEERS if name.startswith("orthogonium:")] + [STAND_IN.method]


@pytest.mark.filterwarnings("ignore")  # the packages' own
@pytest.mark.parametrize("peer", _real())
def test_real_peers_are_measured(peer: str) -> None:
    network, rounds = NetworkSpec(method=peer, width=4), Rounds(warm_up=1, least=2, most=2)
    metrics = measure(Measurement("time", network, 2, rounds=rounds))
    assert metrics["training"]["ratio"]["count"] == metrics["inference"]["ratio"]["count"] == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", _real())
def test_real_peers_keep_the_size_of_images_and_their_values_at_inference(peer: str) -> None:
    torch.manual_seed(0)
    layers, x = PEERS[peer](), torch.rand(2, 8, 8, 8)
    for size in (1, 3):
        layer = layers.conv(8, size)
        assert layer(x).shape == x.shape
        expected = layer.eval()(x)
        torch.testing.assert_close(for_inference(layer)(x), expected)
    assert layers.linear(8)(x[:, :, 0, 0]).shape == (2, 8)
