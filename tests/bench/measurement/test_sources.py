"""What a figure depends on: followed by import, through packages that pass names on, and hashed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onelip.bench.measurement import macs, networks, throughput
from onelip.bench.measurement import sources as module
from onelip.bench.measurement.sources import PACKAGE, import_closure, source_hash
from onelip.layers import get_method

FILES = {
    "__init__.py": "from pack.unused import nothing\n",
    "start.py": "import math\n\nfrom pack.parts import wheel, Axle\n\ndef late():\n    import pack.hidden as h\n",
    "parts/__init__.py": "from pack.parts.axles import LongAxle as Axle\nfrom pack.parts.rope import Rope\n",
    "parts/wheel.py": "from . import spokes\nfrom ..tools import hammer\n",
    "parts/spokes.py": "",
    "parts/axles.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.unused import Type\n",
    "parts/rope.py": "",
    "tools.py": "hammer = 1\n",
    "hidden.py": "from pack.start import late\n",
    "unused.py": "",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, source in FILES.items():
        path = tmp_path / "pack" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path / "pack"


def test_names_are_followed_to_where_they_are_defined(package: Path) -> None:
    found = import_closure(["pack.start"], package)
    assert set(found) == {
        *("pack.start", "pack.parts.wheel", "pack.parts.spokes", "pack.parts.axles", "pack.tools", "pack.hidden"),
    }
    assert found["pack.parts.axles"] == package / "parts" / "axles.py"


def test_a_package_that_defines_a_name_itself_counts_with_all_it_imports(package: Path) -> None:
    (package / "tools.py").write_text("from pack.parts import count\n")
    assert {"pack.parts", "pack.parts.axles", "pack.parts.rope"} <= set(import_closure(["pack.tools"], package))


@pytest.mark.parametrize("name", [*FILES])
def test_the_hash_changes_with_the_files_that_are_used_and_with_no_others(name: str, package: Path) -> None:
    used = {path.relative_to(package).as_posix() for path in import_closure(["pack.start"], package).values()}
    before = source_hash(["pack.start"], package)
    with (package / name).open("a") as file:
        file.write("# a comment\n")
    assert source_hash(["pack.start"], package) == before
    with (package / name).open("a") as file:
        file.write("a = 'change'\n")
    assert (source_hash(["pack.start"], package) != before) == (name in used)


@pytest.mark.parametrize(
    ("source", "is_equal"),
    [
        ('"""A."""\n\ndef f(x):  # b\n    """C."""\n    return (x + 1)\n', True),
        ('def f(x):\n    """\n    Another.\n    """\n    return x + 1\n', True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\ndef f(x):\n    return x + 1\n", False),
        ("def f(x):\n    return x + 1.0\n", False),
        ("def f(x):\n    return x - 1\n", False),
        ("def f(y):\n    return y + 1\n", False),
        ("def f(x):\n    return None\n", False),
        ("def f(x):\n    'x'\n    return\n", False),
        ("async def f(x):\n    return x + 1\n", False),
    ],
)
def test_sentences_change_nothing_and_statements_do(source: str, is_equal: bool, package: Path) -> None:
    (package / "start.py").write_text("def f(x):\n    return x + 1\n")
    before = source_hash(["pack.start"], package)
    (package / "start.py").write_text(source)
    assert (source_hash(["pack.start"], package) == before) is is_equal


def test_the_hash_is_the_same_under_all_versions_of_python(package: Path) -> None:
    """Taken under 3.11, 3.12 and 3.13, whose trees differ in their empty fields."""
    source = """
import a.b as c
from .d import *

@c.e(f=1.5, **g)
class A(B, metaclass=M):
    h: int = 0x10

    async def i(self, j, /, k=None, *l, m: "n" = b"o", **p) -> None:
        async with q as r, s:
            yield [t async for t in u if not v], {**w}, {1, 2j}, f"{x!r:>{y}} z", ...
        try:
            a, (b, *c) = (lambda: 0 if d else e)(), f[1:, ::2]
        except* g:
            raise h from None
        match i:
            case [J(k=1), *_] | {"l": None, **m} if n:
                global o
        return (p := q) @ ~r < s is not t
"""
    (package / "start.py").write_text(source)
    assert source_hash(["pack.start"], package) == "e7cf5dba183d"


def test_what_is_not_of_the_package_is_left_out(package: Path) -> None:
    assert import_closure(["torch", "pack.nothing"], package) == {}


LOT = get_method("lot").conv.__module__


def _files(*modules: str) -> set[str]:
    return {path.relative_to(PACKAGE).as_posix() for path in import_closure(modules).values()}


def test_the_time_of_a_network_depends_on_its_method_and_not_on_others_or_on_tables() -> None:
    files = _files(throughput.__name__, networks.__name__, LOT)
    assert {
        "layers/methods/lot.py",
        "layers/layer.py",
        "linalg/polar.py",
        "models/convnet.py",
        "models/batch_parts.py",
    } <= files
    assert {"bench/measurement/throughput.py", "bench/measurement/reference.py"} <= files
    assert not files & {"layers/methods/soc.py", "bench/terminal.py", "bench/measurement/macs.py"}
    assert not any(name.startswith(("bench/cli", "bench/report", "bench/data", "bench/training")) for name in files)
    assert "bench/measurement/operator_macs.py" in _files(macs.__name__)


def test_a_change_of_any_imported_module_changes_the_hash_and_one_of_a_table_does_not(tmp_path: Path) -> None:
    copied = Path(shutil.copytree(PACKAGE, tmp_path / "onelip", ignore=shutil.ignore_patterns("*.npy", "__pycache__")))
    measured = (throughput.__name__, networks.__name__, LOT)
    before = source_hash(measured, copied)
    assert before == source_hash(measured)
    imported = set(import_closure(measured, copied).values())
    tables = {copied / "bench" / "cli" / "outcome_tables.py", copied / "bench" / "terminal.py"}
    assert len(imported) > 20
    assert all(path.is_file() for path in tables)
    for path in imported | tables:
        content = path.read_text()
        path.write_text(content + "a = 'change'\n")
        assert (source_hash(measured, copied) != before) is (path in imported), path
        path.write_text(content)
    assert module.__name__ not in import_closure(measured)
