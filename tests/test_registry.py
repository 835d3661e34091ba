"""Discovery of methods: the twelve that ship, and a new file dropped into the folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import onelip
from onelip import layers
from onelip.layers import create_conv, create_linear, get_method, list_methods
from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear

ROOT = Path(__file__).parents[1]
KEYS = ["aol", "bcop", "bjorck", "cayley", "cpl", "eco", "lot", "oni", "sandwich", "sll", "soc", "standard"]


def test_twelve_methods() -> None:
    assert [method.key for method in list_methods()] == KEYS


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


def test_layers_by_key() -> None:
    assert type(create_conv("soc", 3, 4, 3)) is get_method("SOC").conv
    assert type(create_linear("aol", 3, 4)) is get_method("aol").linear_layer
    with pytest.raises(ValueError, match="use one of aol, bcop"):
        get_method("nope")


@pytest.fixture(scope="module")
def package_with_example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the example of CONTRIBUTING.md dropped into layers/."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(
        Path(onelip.__file__).parent, folder / "onelip", ignore=shutil.ignore_patterns("__pycache__", "*.webp")
    )
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    (folder / "onelip" / "layers" / "gramnorm.py").write_text(example)
    return folder


def run(package: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYTEST", "COV_"))}
    finished = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    return finished.stdout


def test_a_new_file_is_listed(package_with_example: Path) -> None:
    program = "from onelip.cli import main; main(['methods', '--json'])"
    rows = json.loads(run(package_with_example, sys.executable, "-c", program))
    assert sorted([*KEYS, "gramnorm"]) == sorted(row["key"] for row in rows)


@pytest.mark.slow
def test_a_new_file_passes_the_contract(package_with_example: Path) -> None:
    suite = ["tests/test_layer_contract.py", "tests/test_traps.py", "-k", "gramnorm", "-q", "-p", "no:cacheprovider"]
    report = run(package_with_example, sys.executable, "-m", "pytest", *suite)
    passed = re.search(r"(\d+) passed", report)
    assert passed is not None
    assert int(passed.group(1)) > 80, report
