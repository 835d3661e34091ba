"""The examples run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_train_and_certify() -> None:
    command = [sys.executable, str(EXAMPLES / "train_and_certify.py"), "3"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "after 3 steps" in output
    assert "certified at 36/255" in output
    assert "fused: Conv2d, MaxMin" in output
