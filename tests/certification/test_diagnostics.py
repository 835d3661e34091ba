"""The sanity checks find what they look for, in Python, in figures and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from onelip.bench.cli import run
from onelip.bench.records.views import diagnosed_layers
from onelip.bench.report.figures.layer_lines import draw_layers, save_diagnostics
from onelip.certification import lipschitz_bound
from onelip.certification.diagnostics import batch_variance, diagnose
from onelip.checkpoints import save_model
from onelip.errors import InvalidInputError
from onelip.layers import list_methods
from onelip.models import ConvNet

METHODS = [method.key for method in list_methods()]


def small(method: str = "bcop") -> ConvNet:
    return ConvNet(method, None, 4, input_size=8, width=4)


def batch(count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, 3, 8, 8), torch.arange(count) % 4


def test_batch_variance_is_the_papers() -> None:
    x = torch.randn(5, 2, 3)
    flat = x.double().reshape(5, 6)
    expected = sum(float((flat[i] - flat.mean(0)).square().sum()) for i in range(5)) / 5
    assert batch_variance(x) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_networks_of_all_methods(method: str) -> None:
    model = small(method)
    if method == "standard":  # its start is the identity, which does not expand yet
        with torch.no_grad():
            model.get_parameter("stem.weight").mul_(2)
    x, labels = batch()
    found = diagnose(model, x, labels, iterations=15)
    layers = found.layers
    assert (found.failures() == []) == (method != "standard")
    assert model.training
    assert layers[-1].bound_product == pytest.approx(lipschitz_bound(model), rel=1e-9)
    for layer in layers:
        assert layer.gradient_norm is not None
        assert layer.norm_estimate is None or layer.norm_estimate <= layer.bound * (1 + 1e-12)
        assert (layer.norm_estimate is None) == (not any(k in layer.kind for k in ("Conv2d", "Linear")))
    assert layers[0].variance == pytest.approx(found.input_variance)  # zero channels are appended


def test_norm_estimates_converge_to_singular_values() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(75, 4)).eval()
    found = diagnose(model, torch.randn(4, 2, 5, 5), iterations=300)
    for layer in (found.layers[0], found.layers[2]):
        assert layer.norm_estimate == pytest.approx(layer.bound, rel=1e-4)
        assert layer.gradient_norm is None


def test_gradient_norms_against_autograd() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).eval().double()
    x, labels = torch.randn(6, 5, dtype=torch.float64), torch.arange(6) % 3
    found = diagnose(model, x, labels)
    hidden = model[0](x).detach().requires_grad_()
    loss = nn.functional.cross_entropy(model[2](model[1](hidden)), labels)
    expected = torch.autograd.grad(loss, hidden)[0].norm()
    assert found.layers[0].gradient_norm == pytest.approx(float(expected), rel=1e-9)


def test_labels_that_are_no_classes_are_refused() -> None:
    model, x = nn.Linear(5, 3), torch.randn(2, 5)
    with pytest.raises(InvalidInputError, match="from 0 to 2, got 3"):
        diagnose(model, x, torch.tensor([0, 3]))
    with pytest.raises(InvalidInputError, match="maps an input to scores"):
        diagnose(nn.Conv2d(1, 1, 1), torch.randn(2, 1, 3, 3), torch.tensor([0, 0]))


def test_vanishing_gradients_of_a_random_sandwich_are_shown() -> None:
    """The paper's table: with a random start, gradients shrink by orders of magnitude towards the input."""
    x, labels = batch(32)
    vanishing = diagnose(ConvNet("sandwich", None, 4, input_size=8, width=4, init="normal"), x, labels, iterations=1)
    kept = diagnose(small("bcop"), x, labels, iterations=1)
    first, last = (vanishing.layers[i].gradient_norm for i in (1, -1))
    assert first is not None
    assert last is not None
    assert first < 1e-2 * last
    reference = kept.layers[1].gradient_norm
    assert reference is not None
    assert reference > 10 * first


def test_expanding_layers_are_named() -> None:
    model = small("standard")
    model.block1.conv2.weight.data *= 30  # pyright: ignore
    failures = diagnose(model, *batch(), iterations=5).failures()
    assert any("block1.conv2" in failure and "bound" in failure for failure in failures)
    assert any("block1.conv2" in failure and "variance" in failure for failure in failures)
    assert any("the network" in failure for failure in failures)


def test_variance_is_checked_apart_from_bounds() -> None:
    found = diagnose(small(), *batch(), iterations=2)
    smaller = type(found)(found.input_variance / 2, found.layers)
    assert len(smaller.failures()) == 1
    assert "variance grows" in smaller.failures()[0]


def test_figures_are_drawn_from_plain_records(tmp_path: Path) -> None:
    found = diagnose(small(), *batch(), iterations=2)
    records = json.loads(json.dumps(found.as_records()))
    figure = draw_layers({"aol": diagnosed_layers(records)}, gradients=True)
    assert [axes.get_yscale() for axes in figure.axes if axes.get_visible()] == ["log"] * 3
    assert len(figure.axes[0].lines[0].get_ydata()) == len(records)  # pyright: ignore
    without = [{**record, "gradient_norm": None} for record in records]
    assert sum(a.get_visible() for a in draw_layers({"aol": diagnosed_layers(without)}, gradients=True).axes) == 2
    save_diagnostics(records, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    model = ConvNet("aol", None, 10, width=4)
    save_model(model, tmp_path / "good.safetensors")
    return tmp_path / "good.safetensors"


def test_check_passes(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", str(checkpoint), "--samples", "8", "--figure", str(tmp_path / "f.png")]
    assert run(arguments) == 0
    output = capsys.readouterr().out
    assert "passed" in output
    assert "block5.conv5" in output
    assert max(len(line) for line in output.splitlines()) <= 80
    assert (tmp_path / "f.png").exists()


def test_check_fails_on_an_expanding_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ConvNet("standard", None, 10, width=4)
    model.stem.weight.data.mul_(100)  # pyright: ignore
    save_model(model, tmp_path / "bad.safetensors")
    assert run(["check", str(tmp_path / "bad.safetensors"), "--samples", "4", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert any("stem" in failure for failure in report["failures"])
    assert report["layers"][0]["path"] == "input"


def test_check_of_bad_input(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(tmp_path / "missing.safetensors")]) == 2
    assert run(["check", str(checkpoint), "--dataset", "cifar100"]) == 2
    assert run(["check", str(checkpoint), "--samples", "0"]) == 2
    errors = capsys.readouterr().err
    assert "cannot be read" in errors
    assert "choose another --dataset" in errors
    assert "--samples must be 1 or more, not 0" in errors
