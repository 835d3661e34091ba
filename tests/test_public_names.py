from __future__ import annotations

import subprocess
import sys

import pytest

import onelip

HEAVY = ("pandas", "matplotlib", "optuna", "tyro", "rich", "jinja2", "PIL", "foolbox", "kornia")


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return set(output.split())


def test_import_is_light() -> None:
    """Not even torch is imported before a name is used."""
    assert not modules_after("import onelip") & {*HEAVY, "torch", "numpy"}


def test_all_public_names_bring_torch_but_nothing_heavy() -> None:
    loaded = modules_after("from onelip import *")
    assert "torch" in loaded
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize("name", onelip.__all__)
def test_every_name_is_there(name: str) -> None:
    value = getattr(onelip, name)
    assert name in dir(onelip)
    assert getattr(onelip, name) is value


def test_names_are_sorted_and_complete() -> None:
    assert onelip.__all__ == sorted(onelip.__all__, key=lambda n: (not n[0].isupper(), n))
    assert set(onelip.__all__) == {*onelip._HOMES, *onelip._SUBMODULES, "__version__"}


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="module 'onelip' has no attribute 'nothing'"):
        onelip.nothing  # noqa: B018
