"""`onelip export`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import onelip
from onelip.bench.cli import run


def test_a_saved_network_becomes_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onelip.ConvNet("aol", None, 4, input_size=8, width=4)
    onelip.save_model(model, tmp_path / "model.safetensors")
    assert run(["export", str(tmp_path / "model.safetensors"), "--torch-export", str(tmp_path / "model.pt2")]) == 0
    assert "3x8x8" in capsys.readouterr().out
    program = torch.export.load(str(tmp_path / "model.pt2")).module()
    x = torch.rand(2, 3, 8, 8)
    assert torch.allclose(program(x), model.eval()(x), atol=1e-5)


def test_nothing_to_write_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", str(tmp_path / "model.safetensors")]) == 2
    assert "--onnx" in capsys.readouterr().err
