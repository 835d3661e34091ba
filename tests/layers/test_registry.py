"""Discovery of methods: the twelve that ship, and a new file dropped into the folder."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shipped_methods import SHIPPED

import onelip
from onelip import layers
from onelip.layers import create_conv, create_linear, get_method, list_methods
from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear

ROOT = Path(__file__).parents[2]
KEY = "gramnorm"


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
    """What type checkers see: the list of names in the file, which no new method has to join."""
    source = ast.parse(Path(str(layers.__file__)).read_text())
    (listed,) = (
        ast.literal_eval(statement.value)
        for statement in source.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
    )
    classes = {name for name in listed if name.endswith(("Conv2d", "Linear")) and not name.startswith("Lipschitz")}
    assert classes == {c.__name__ for key in SHIPPED for c in (get_method(key).conv, get_method(key).linear_layer)}


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
    (folder / "onelip" / "layers" / f"{KEY}.py").write_text(example)
    return folder


def run(package: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYTEST", "COV_"))}
    finished = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    return finished.stdout


def test_a_new_file_is_listed(package_with_example: Path) -> None:
    program = "from onelip.bench.cli import main; main(['methods', '--json'])"
    rows = json.loads(run(package_with_example, sys.executable, "-c", program))
    assert {*SHIPPED, KEY} <= {row["key"] for row in rows}


def test_a_new_file_is_exported(package_with_example: Path) -> None:
    program = "from onelip.layers import *; print(GramNormConv2d(2, 3, 3), SOCLinear(2, 3))"
    assert "GramNormConv2d(2, 3, kernel_size=(3, 3)" in run(package_with_example, sys.executable, "-c", program)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "words", "least"),
    [
        (["test_layer_contract.py", "test_layer_arguments.py", "test_layer_stacking.py", "test_traps.py"], KEY, 120),
        (["test_registry.py", "test_readme.py", "test_cli_methods.py"], "not new_file", 10),
    ],
    ids=["contract", "lists"],
)
def test_a_new_file_passes_the_tests(package_with_example: Path, files: list[str], words: str, least: int) -> None:
    suite = [*(f"tests/{name}" for name in files), "-k", words, "-q", "-p", "no:cacheprovider"]
    report = run(package_with_example, sys.executable, "-m", "pytest", *suite)
    passed = re.search(r"(\d+) passed", report)
    assert passed is not None
    assert int(passed.group(1)) >= least, report
