"""The programs in examples/ run from start to end, and what they claim is in their output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: str, folder: Path) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout


def test_certify(tmp_path: Path) -> None:
    output = run("certify", "1", folder=tmp_path)
    assert "proven Lipschitz constant: 1.00000" in output
    shares = [float(share) for share in re.findall(r"certified at \S+: ([\d.]+)%", output)]
    assert len(shares) == 4
    assert shares == sorted(shares, reverse=True)
    assert shares[1] > 15  # chance is 10


def test_convert(tmp_path: Path) -> None:
    output = run("convert", "1", folder=tmp_path)
    assert "NOT CONVERTED" not in output
    assert re.search(r"proven Lipschitz constant: 1(\.000000\d)?$", output, re.MULTILINE)
    (share,) = re.findall(r"certified at 36/255 ([\d.]+)%", output)
    assert float(share) > 12


def test_own_data(tmp_path: Path) -> None:
    from PIL import Image

    for number in range(60):
        left = number % 2 == 0
        pixels = torch.randint(0, 120, (20, 28), dtype=torch.uint8)
        pixels[6:14, (2 if left else 18) :][:, :6] += 120
        path = tmp_path / "squares" / ("left" if left else "right") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.numpy()).save(path)
    output = run("own_data", "squares", "1", folder=tmp_path)
    assert "48 training images of 2 classes, 1 x 20 x 28" in output
    assert (tmp_path / "own_data.safetensors").is_file()


def test_critic_proves_a_lower_bound_of_the_distance(tmp_path: Path) -> None:
    (bound,) = re.findall(r"at least ([\d.]+) \(proven", run("critic", "60", folder=tmp_path))
    assert 1.2 < float(bound) <= 2


def test_regression(tmp_path: Path) -> None:
    output = run("regression", "20", folder=tmp_path)
    (value,) = re.findall(r"prediction at .*: (-?[\d.]+)$", output, re.MULTILINE)
    low, high = re.findall(r"between (-?[\d.]+) and (-?[\d.]+)", output)[0]
    assert float(low) < float(value) < float(high)
    assert float(high) - float(low) == pytest.approx(0.1, abs=0.0021)  # 2 x 5 x 0.01, printed to three digits


def test_export_and_serve(tmp_path: Path) -> None:
    output = run("export_and_serve", "--once", folder=tmp_path)
    (radius,) = re.findall(r'"radius": ([\d.e-]+)', output)
    assert 0 < float(radius) < 2


def test_every_example_is_tested_and_short() -> None:
    tested = set(re.findall(r'run\("(\w+)"', Path(__file__).read_text()))
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested
    assert all(len(path.read_text().splitlines()) < 60 for path in EXAMPLES.glob("*.py"))
