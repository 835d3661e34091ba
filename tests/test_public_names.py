"""What `import onelip` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import onelip

BENCH_ONLY = ("matplotlib", "cyclopts", "rich", "PIL", "foolbox", "kornia")


def loaded_by(statements: str) -> set[str]:
    """Modules that a fresh process has after these statements."""
    code = f"{statements}; import sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_library_imports_nothing_of_the_benchmark() -> None:
    loaded = loaded_by("import onelip; onelip.certify")
    assert "torch" in loaded
    assert not loaded & {*BENCH_ONLY, "onelip.bench"}


def test_the_library_is_imported_when_it_is_used() -> None:
    assert not loaded_by("import onelip; onelip.__version__; from onelip import bench") & {"torch", "onelip.layers"}


@pytest.mark.parametrize("module", ["checkpoints", "export", "hub", "layers", "certification"])
def test_modules_can_be_imported_without_the_names_of_the_root(module: str) -> None:
    assert "onelip.public" not in loaded_by(f"import onelip.{module}")


def test_a_star_gives_the_public_names() -> None:
    found: dict[str, object] = {}
    exec("from onelip import *", found)
    assert found.keys() - {"__builtins__"} == set(onelip.__all__)


def test_what_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'onelip' has no attribute 'certfy'"):
        _ = onelip.certfy  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", onelip.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(onelip, name) is not None


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert set(dir(onelip)) == set(onelip.__all__)
