"""How much code lies between a layer's `forward` and its formula, and how much is read to understand a method.

The numbers are limits with some room, so that what was taken away does not grow back.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import onelip
from onelip.layers import create_conv, list_methods
from onelip.layers.methods.bcop import BCOPConv2d

ROOT = Path(onelip.__file__).parent
FILES, LINES = 47, 6500


def _file_of(module: str) -> Path | None:
    place = ROOT.parent.joinpath(*module.split("."))
    found = (place.with_suffix(".py"), place / "__init__.py")
    return next((path for path in found if path.exists()), None)


def _imports(path: Path) -> set[Path]:
    """Files of onelip that importing this one imports, its packages left out."""
    found: set[Path | None] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onelip"):
            found |= {_file_of(f"{node.module}.{name.name}") or _file_of(str(node.module)) for name in node.names}
    return {path for path in found if path is not None}


@pytest.mark.parametrize("method", [method.key for method in list_methods()])
def test_files_that_a_method_needs(method: str) -> None:
    waiting, closure = [ROOT / "layers" / "methods" / f"{method}.py"], set[Path]()
    while waiting:
        path = waiting.pop()
        if path not in closure:
            closure.add(path)
            waiting.extend(_imports(path))
    assert len(closure) <= FILES
    assert sum(len(path.read_text().splitlines()) for path in closure) <= LINES


def test_a_training_pass_comes_to_the_formula_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of onelip's layers around one transformation of BCOP, and frames from `forward` to its formula."""
    depths: list[int] = []
    formula = BCOPConv2d.transform_tensors

    def noted(self: BCOPConv2d, *arguments: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        depth = 1
        while frame is not None and frame.f_code is not forward:
            frame, depth = frame.f_back, depth + 1
        depths.append(depth)
        return formula(self, *arguments)

    monkeypatch.setattr(BCOPConv2d, "transform_tensors", noted)
    layer, x = create_conv("bcop", 8, 8, 3), torch.randn(2, 8, 8, 8)
    forward = BCOPConv2d.forward.__code__
    layer(x)
    assert calls_of(lambda: layer(x), "layers") <= 75
    assert max(depths) <= 6


@pytest.mark.parametrize(
    ("method", "most"), [("aol", 25), ("bcop", 25), ("standard", 25), ("lot", 55), ("cpl", 55), ("soc", 55)]
)
def test_a_pass_with_cached_parameters_is_short(method: str, most: int) -> None:
    layer, x = create_conv(method, 8, 8, 3).eval(), torch.randn(2, 8, 8, 8)
    with torch.no_grad():
        layer(x)
        assert calls_of(lambda: layer(x)) <= most


def calls_of(function: Callable[[], object], folder: str = "") -> int:
    """Calls of functions in the files of onelip, or of one of its folders."""
    count, place = 0, str(ROOT / folder)

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(place)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
