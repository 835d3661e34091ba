"""The tree itself: where imports stand, what files are called, where their tests are."""

from __future__ import annotations

import ast
import collections
from pathlib import Path

import onelip

SOURCE = Path(onelip.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

OPTIONAL = {"cloudpickle", "foolbox", "kornia", "onnx", "onnxruntime", "ray", "submitit"}
"""Packages of extras, which are imported where they are needed."""
ALLOWED = {
    ("command.py", "onelip.bench.cli"),  # after a look at whether the extra is there
    ("certification/accuracy.py", "rich"),  # the library shows progress where rich happens to be installed
    # torch takes seconds to import, and records are read and reported without it.
    ("factories.py", "torch"),
    ("bench/records/machine.py", "torch"),
    # `onelip train --help` does without it.
    ("bench/cli/train.py", "onelip.bench"),
    ("bench/cli/options.py", "onelip"),
    ("bench/records/resume_file.py", "torch"),
}


def test_imports_stand_at_the_top_unless_they_are_optional() -> None:
    """No import is hidden in a function from those who look for what depends on what."""
    hidden = [(path.relative_to(SOURCE).as_posix(), module) for path in FILES for module in _in_functions(path)]
    assert [
        (path, module)
        for path, module in hidden
        if not OPTIONAL & set(module.split("."))
        and not any(module.startswith(one) for at, one in ALLOWED if at == path)
    ] == []


def _in_functions(path: Path) -> list[str]:
    functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
    inner = [node for function in functions for node in ast.walk(function)]
    plain = [alias.name for node in inner if isinstance(node, ast.Import) for alias in node.names]
    return plain + [node.module or "" for node in inner if isinstance(node, ast.ImportFrom)]


def test_no_two_modules_share_a_name() -> None:
    """Commands are called as they are typed, and so may share a name with what they call."""
    modules = [path for path in FILES if path.name != "__init__.py" and path.parent.name != "cli"]
    counts = collections.Counter(path.name for path in modules)
    assert {name for name, count in counts.items() if count > 1} == set()
    assert "utils.py" not in counts


def test_tests_have_the_folders_of_the_source() -> None:
    tests = Path(__file__).parent
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    folders -= {Path("hostile"), Path("accelerator")}  # bad files for all readers, and a second device for all layers
    assert [folder for folder in folders if not (SOURCE / folder).is_dir()] == []
