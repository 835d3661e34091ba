"""Attacks bound robustness from above; one that beats a certificate is an error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip.bench.cli import run
from onelip.certification import BrokenCertificateError, Certifier
from onelip.certification.attacks import ATTACK_NAMES, attack
from onelip.checkpoints import save_model
from onelip.errors import InvalidInputError
from onelip.layers import FirstChannels, MaxMin, create_conv, create_linear
from onelip.models import ConvNet


def model_and_batches() -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """A small 1-Lipschitz network, and inputs of which it predicts four out of five as labelled."""
    layers = [create_conv("bcop", 4, 4, kernel_size=3), MaxMin(), nn.Flatten(), create_linear("bcop", 64, 64)]
    model = nn.Sequential(*layers, FirstChannels(3)).eval()
    batches = []
    for _ in range(2):
        x = (torch.randn(15, 4, 4, 4) / 4).clamp(-1, 1)
        with torch.no_grad():
            labels = model(x).argmax(1)
        labels[:3] = (labels[:3] + 1) % 3
        batches.append((x, labels))
    return model, batches


def test_empirical_robustness_is_between_certified_and_clean() -> None:
    model, batches = model_and_batches()
    eps = (0.05, 0.3)
    report = attack(model, batches, eps)
    assert report.samples == 30
    assert report.accuracy == pytest.approx(0.8)
    for value in eps:
        shares = report.robust[value]
        assert set(shares) == {*ATTACK_NAMES, "all"}
        assert report.certified[value] <= shares["all"] <= min(shares[name] for name in ATTACK_NAMES)
        assert max(shares.values()) <= report.accuracy
    assert report.robust[0.3]["all"] < report.accuracy, "attacks of this size should succeed at times"
    assert report.certified[0.05] > 0


def test_attacks_are_repeatable() -> None:
    model, batches = model_and_batches()
    first, second = (attack(model, batches, (0.2,), attacks=("pgd", "fmn")) for _ in range(2))
    assert first == second


def test_an_attack_inside_a_wrong_certificate_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Radii ten times too large are refuted, loudly."""
    model, batches = model_and_batches()
    certified = Certifier._certify

    def too_large(self: Certifier, x: Any) -> Any:
        predictions, margins, radii = certified(self, x)
        return predictions, margins, 10 * radii

    monkeypatch.setattr(Certifier, "_certify", too_large)
    with pytest.raises(BrokenCertificateError, match="certificate is wrong"):
        attack(model, batches, (0.3,), attacks=("ddn",))


@pytest.mark.parametrize(
    "options",
    [{"attacks": ("autoattack",)}, {"attacks": ()}, {"eps": (0.0,)}, {"eps": ()}, {"loader": []}, {"loader": 1}],
)
def test_bad_arguments(options: dict[str, Any]) -> None:
    model, batches = model_and_batches()
    with pytest.raises(InvalidInputError):
        attack(model, **{"loader": batches, "eps": (0.1,), **options})


def test_without_foolbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foolbox", None)
    model, batches = model_and_batches()
    with pytest.raises(InvalidInputError, match=r"onelip\[attack\]"):
        attack(model, batches, (0.1,), attacks=("pgd",))


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    save_model(ConvNet("aol", None, 10, width=4), tmp_path / "net.safetensors")
    return str(tmp_path / "net.safetensors")


def test_command_line(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["attack", checkpoint, "--samples", "6", "--attacks", "pgd", "deepfool"]
    assert run([*arguments, "--eps", "36/255", "0.5"]) == 0
    output = capsys.readouterr().out
    assert "36/255" in output
    assert "certified" in output
    assert max(len(line) for line in output.splitlines()) <= 80
    assert run([*arguments, "--eps", "0.1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["robust"]["0.1"]) == {"pgd", "deepfool", "all"}


def test_command_line_fails_loudly(
    checkpoint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise BrokenCertificateError("pgd changed a prediction")

    monkeypatch.setattr("onelip.bench.cli.attack.attack", broken)
    assert run(["attack", checkpoint, "--samples", "2"]) == 1
    assert "CERTIFICATE BROKEN" in capsys.readouterr().err


@pytest.mark.parametrize("eps", ["0", "-1", "x", "1/0"])
def test_bad_radii(checkpoint: str, eps: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["attack", checkpoint, f"--eps={eps}"]) == 2
    assert "eps" in capsys.readouterr().err


def test_inputs_beyond_the_bounds_are_refused() -> None:
    model, batches = model_and_batches()
    with pytest.raises(InvalidInputError, match="wider bounds"):
        attack(model, [(2 * x, labels) for x, labels in batches], bounds=(-0.1, 0.1))
