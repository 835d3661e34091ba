"""`onelip certify`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import onelip
import onelip_check
from onelip.bench.cli import run


def test_a_saved_network_gets_a_proof_that_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onelip.ConvNet("aol", None, 10, input_size=32, width=4)
    onelip.save_model(model, tmp_path / "model.safetensors")
    proof = tmp_path / "images.cert"
    command = ["certify", str(tmp_path / "model.safetensors"), "--samples", "3", "--proof", str(proof)]
    assert run(command) == 0
    assert f"onelip-check {proof}" in capsys.readouterr().out
    check = onelip_check.Check(proof.read_bytes())
    assert check.images == 3
    check.check_images(0, 1)
    assert run([*command, "--json", "--quiet"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["predictions"] == check.predictions
    assert all(
        proven <= radius * onelip_check.ONE + 1 for proven, radius in zip(check.radii, said["radii"], strict=True)
    )


def test_what_cannot_be_written_is_said_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certify", "cifar10-fast-2m", "--proof", str(tmp_path / "missing" / "images.cert")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert run(["certify", "cifar10-fast-2m", "--samples", "0"]) == 2
    assert "--samples must be 1 or more, not 0" in capsys.readouterr().err
