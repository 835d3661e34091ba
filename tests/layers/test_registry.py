"""Discovery of methods: those that ship, and a new file dropped into the folder."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import layer_contract
import pytest
from shipped_methods import SHIPPED

import onelip
from onelip import layers
from onelip.layers import LipschitzLayer, create_conv, create_linear, get_method, list_methods, methods
from onelip.layers.contract import Traits
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.linear import LipschitzLinear
from onelip.layers.registry import find_methods

ROOT = Path(__file__).parents[2]
KEY = "reflection"


def test_the_shipped_methods_are_found_in_alphabetical_order() -> None:
    keys = [method.key for method in list_methods()]
    assert set(SHIPPED) <= set(keys)
    assert keys == sorted(keys)


def test_names_and_classes_agree() -> None:
    for method in list_methods():
        assert issubclass(method.conv, LipschitzConv2d)
        assert issubclass(method.linear_layer, LipschitzLinear)
        assert method.conv.__name__.lower() == f"{method.key}conv2d"
        assert method.linear_layer.__name__.lower() == f"{method.key}linear"
        assert getattr(layers, method.conv.__name__) is method.conv
        assert {method.conv.__name__, method.linear_layer.__name__} <= set(layers.__all__)
        assert method.link.startswith("https://")


def test_exported_names_exist() -> None:
    for name in layers.__all__:
        assert hasattr(layers, name), name


def test_the_static_names_are_those_of_the_shipped_methods() -> None:
    """What type checkers see: the names in the file, which no new method has to join."""
    source = ast.parse(Path(str(layers.__file__)).read_text())
    (static,) = (statement.body for statement in source.body if isinstance(statement, ast.If))
    listed = [alias.name for node in static if isinstance(node, ast.ImportFrom) for alias in node.names]
    listed += [ast.unparse(node.targets[0]) for node in static if isinstance(node, ast.Assign)]
    exported = {name: getattr(layers, name) for name in listed if not name.startswith("Lipschitz")}
    classes = {name for name, each in exported.items() if isinstance(each, type) and issubclass(each, LipschitzLayer)}
    classes = {name for name in classes if exported[name].__name__ == name}  # the others are names of other packages
    names = {get_method(key).conv.__name__.removesuffix("Conv2d") for key in SHIPPED}
    kinds = ("Conv1d", "Conv2d", "ConvTranspose2d", "Linear")
    volumes = {name + "Conv3d" for name in names if hasattr(layers, name + "Conv3d")}
    assert classes == {name + kind for name in names for kind in kinds} | volumes


def test_layers_by_key() -> None:
    assert type(create_conv("soc", 3, 4, 3)) is get_method("SOC").conv
    assert type(create_linear("aol", 3, 4)) is get_method("aol").linear_layer
    assert type(layers.create_conv_transpose("aol", 3, 4, 3)) is layers.__dict__["AOLConvTranspose2d"]
    assert type(layers.create_conv1d("AOL", 3, 4, 3)) is layers.__dict__["AOLConv1d"]
    with pytest.raises(ValueError, match="use one of aoc, aol, bcop"):
        get_method("nope")


def example() -> str:
    """The method of CONTRIBUTING.md."""
    (found,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    return found


def test_contributing_lists_every_flag() -> None:
    bases = (LipschitzLayer, LipschitzConv2d)
    flags = {n: v for base in bases for n, v in vars(base).items() if type(v) is bool}
    flags |= {trait.name: trait.default for trait in dataclasses.fields(Traits) if type(trait.default) is bool}
    listed = re.findall(r"^\| `(\w+)` \| `(True|False)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert dict(listed) == {name: str(value) for name, value in flags.items()}


def test_a_new_file_is_listed_and_exported(tmp_path: Path) -> None:
    """In a copy of the package with the file dropped into layers/methods/."""
    shutil.copytree(
        Path(onelip.__file__).parent, tmp_path / "onelip", ignore=shutil.ignore_patterns("__pycache__", "*.webp")
    )
    (tmp_path / "onelip" / "layers" / "methods" / f"{KEY}.py").write_text(example())
    program = (
        "from onelip.layers import *; import sys; print(ReflectionConv2d(2, 3, 3), SOCLinear(2, 3), file=sys.stderr)\n"
        "from onelip.bench.cli import run; run(['methods', '--json']); sys.stdout = sys.stderr; run(['theory'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYTEST", "COV_"))}
    command = [sys.executable, "-c", program]
    finished = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert "ReflectionConv2d(2, 3, kernel_size=(3, 3)" in finished.stderr
    assert re.search(rf"{KEY} +published +not given", finished.stderr)
    assert {*SHIPPED, KEY} <= {row["key"] for row in json.loads(finished.stdout)}


def test_a_file_that_cannot_be_imported_is_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("import torch\n\nMETHOD = torch.nothing\n")
    (tmp_path / "nameless.py").write_text("method = 1\n")
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    with pytest.warns(UserWarning, match="is no method") as warned:
        found = find_methods()
    assert set(found) == {method.key for method in list_methods()}
    texts = sorted(str(warning.message) for warning in warned)
    assert ["broken is no method: Attr" in texts[0], "nameless is no method: Attr" in texts[1]] == [True, True]


@pytest.mark.parametrize("case", ["circular", "zeros", "strided", "linear"])
def test_a_new_file_passes_the_contract(tmp_path: Path, case: str) -> None:
    """In this process: the file alone, as a module of its own."""
    path = tmp_path / f"{KEY}.py"
    path.write_text(example())
    assert len(path.read_text().splitlines()) <= 120
    spec = importlib.util.spec_from_file_location(f"onelip.layers.methods.{KEY}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        layer_contract.check_all(module.METHOD, case)
