"""Certified radii are what they were: bit by bit where they were written down, up to rounding on other processors.

Products of matrices are rounded differently by each processor (and torch, which has other kernels for each), so bits
can be compared on the processor that wrote the file only. Weights in float32 are rounded results of a float64
transformation, one unit of which another processor may decide differently.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from frozen_models import BUILDERS, FILE, processor, radii
from shipped_methods import SHIPPED

FROZEN: dict[str, Any] = json.loads(FILE.read_text())
ELSEWHERE = {"float64": 1e-9, "float32": 1e-5}
"""Relative tolerance on other processors."""


@pytest.mark.parametrize("name", BUILDERS)
def test_radii_are_those_that_were_written_down(name: str) -> None:
    same_processor = FROZEN["processor"] == processor()
    for kind, found in radii(name).items():
        expected = [float.fromhex(text) for text in FROZEN["radii"][name][kind]]
        if same_processor:
            assert found == expected, kind
        else:
            assert found == pytest.approx(expected, rel=ELSEWHERE[kind], abs=0), kind


def test_every_method_has_radii_that_say_something() -> None:
    assert FROZEN["radii"].keys() == BUILDERS.keys()
    for name, kinds in FROZEN["radii"].items():
        for kind, texts in kinds.items():
            assert min(float.fromhex(text) for text in texts) > 0, (name, kind)
    assert all(f"circular {method}" in BUILDERS for method in SHIPPED)
