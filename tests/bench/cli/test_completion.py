from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onelip.bench import cli
from onelip.bench.paper.complexity import method_keys
from onelip.layers import list_methods


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run(["completion", shell]) == 0
    return capsys.readouterr().out


CASES = {
    "command": (["onelip", "tra"], "train"),
    "sub-command": (["onelip", "measure", "ti"], "time"),
    "option": (["onelip", "train", "--bud"], "--budget"),
    "option of a sub-command": (["onelip", "measure", "time", "--roun"], "--rounds"),
    "method": (["onelip", "train", "--method", "bco"], "bcop"),
    "data set": (["onelip", "compare", "--datasets", "tiny"], "tiny-imagenet"),
}


def test_bash_completes_commands_options_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [script("bash", capsys)]
    for words, _ in CASES.values():
        lines.append(f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _onelip; echo ${{COMPREPLY[@]}}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the script asks `onelip` for methods and data sets
    environment = os.environ | {"PATH": path}
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [expected for _, expected in CASES.values()]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_are_read(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert "__complete" in text
    assert "budget" in text
    if shutil.which(shell):
        subprocess.run([shell, "-n", "-c", text], check=True)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_options_and_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "onelip.fish").write_text(script("fish", capsys))
    asked = "\n".join(f"complete -C '{' '.join(words)}'" for words, _ in CASES.values())
    environment = {"HOME": str(tmp_path), "PATH": str(Path(sys.executable).parent)}
    command = ["fish", "-c", f"source {tmp_path / 'onelip.fish'}\n{asked}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [expected for _, expected in CASES.values()]


def test_methods_are_found_by_the_source_as_the_registry_finds_them() -> None:
    assert list(method_keys()) == [method.key for method in list_methods()]
