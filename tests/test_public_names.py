"""What `import onelip` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import onelip

BENCH_ONLY = ("pandas", "matplotlib", "optuna", "tyro", "rich", "PIL", "foolbox", "kornia")


def test_the_library_imports_nothing_of_the_benchmark() -> None:
    code = "import sys, onelip; print('\\n'.join(sys.modules))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "torch" in loaded
    assert not loaded & {*BENCH_ONLY, "onelip.bench"}


@pytest.mark.parametrize("name", onelip.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(onelip, name) is not None


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert set(dir(onelip)) == set(onelip.__all__)
