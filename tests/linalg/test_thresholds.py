"""Thresholds of speed: where they are read from, when, and what refuses to be read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from onelip.errors import InvalidInputError
from onelip.layers import StandardConv2d
from onelip.linalg import thresholds as module
from onelip.linalg.thresholds import (
    DEFAULTS,
    VARIABLE,
    Thresholds,
    forced_thresholds,
    forget_thresholds,
    keep_thresholds,
    kept_thresholds,
    read_thresholds,
    thresholds,
    thresholds_file,
)

TUNED = Thresholds(whole_share=0.01, frequency_share=0.02, bytes_at_once=2**20)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a machine on which nothing was measured; the process decides anew."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "cache"))
    kept_thresholds.cache_clear()
    yield tmp_path / "cache" / "thresholds.json"
    kept_thresholds.cache_clear()


def test_without_a_file_the_built_in_values_are_in_use(file: Path) -> None:
    assert thresholds_file() == file
    assert thresholds() == DEFAULTS == Thresholds(0.7, 0.35, 2**22)
    assert DEFAULTS.changed() == {}
    assert not file.parent.exists()


@pytest.mark.parametrize("change", ["processor_name", "threads", "torch"])
def test_values_belong_to_a_processor_its_threads_and_torch(
    file: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    assert keep_thresholds(TUNED) == file
    assert read_thresholds() == TUNED
    if change == "processor_name":
        monkeypatch.setattr(module, "processor_name", lambda: "another")
    elif change == "threads":
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    else:
        monkeypatch.setattr(torch, "__version__", "0.0")
    assert read_thresholds() == DEFAULTS
    other = TUNED._replace(whole_share=0.5)
    keep_thresholds(other)
    assert read_thresholds() == other
    monkeypatch.undo()
    assert TUNED in module._read_file(file).values()


def test_a_process_keeps_what_it_found_at_its_first_decision(file: Path) -> None:
    """Also in layers that have not evaluated yet: none of them changes its form when the machine is tuned."""
    layer, x = StandardConv2d(32, 32, 3, padding_mode="circular").eval(), torch.randn(2, 32, 8, 8)
    layer(x)
    assert layer.acts_on_frequencies((8, 8))
    keep_thresholds(TUNED)
    assert read_thresholds() == TUNED
    assert thresholds() == DEFAULTS
    assert layer.acts_on_frequencies((8, 8))
    code = "from onelip.linalg.thresholds import thresholds; print(*thresholds())"
    torch_threads = f"import torch; torch.set_num_threads({torch.get_num_threads()}); "
    done = subprocess.run([sys.executable, "-c", torch_threads + code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(value) for value in TUNED]


def test_the_variable_names_another_file_or_switches_off(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_thresholds(TUNED)
    monkeypatch.setenv(VARIABLE, "off")
    assert (thresholds_file(), read_thresholds()) == (None, DEFAULTS)
    with pytest.raises(InvalidInputError, match=VARIABLE):
        keep_thresholds(TUNED)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.json"))
    with pytest.raises(InvalidInputError, match=r"there is no .*mine\.json"):
        read_thresholds()
    keep_thresholds(TUNED)
    assert read_thresholds() == TUNED
    assert (tmp_path / "mine.json").is_file()


def test_a_user_without_a_home_has_the_built_in_values(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(module, "cache_folder", homeless)
    assert thresholds() == DEFAULTS
    with pytest.raises(InvalidInputError, match=VARIABLE):
        keep_thresholds(TUNED)


def _changed(**values: Any) -> str:
    machine = {"processor": "p", "torch": "t", "threads": 1}
    machine |= {name: values.pop(name) for name in machine if name in values}
    return json.dumps({"format_version": 1, "machines": [machine | {"thresholds": TUNED._asdict() | values}]})


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format_version": 2, "machines": []}', '{"format_version": 1, "machines": 3}', "[" * 9999]
    + [_changed(whole_share=value) for value in (-1, float("nan"), float("inf"), "0.7", None, True, 11)]
    + [_changed(bytes_at_once=value) for value in (0, 4.5, 2**50, "4", True)]
    + [_changed(other=3), _changed(threads="2"), _changed(processor=None)],
)
def test_a_file_that_cannot_be_trusted_is_an_error_in_one_line(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    for act in (thresholds, lambda: keep_thresholds(TUNED)):
        with pytest.raises(InvalidInputError, match="onelip tune --reset") as error:
            act()
        assert str(file) in str(error.value)
        assert "\n" not in str(error.value)
    assert file.read_text() == content
    assert forget_thresholds() == file.with_name("thresholds.json.old")
    assert thresholds() == DEFAULTS
    assert file.with_name("thresholds.json.old").read_text() == content
    assert forget_thresholds() is None


def test_compilers_see_constants(file: Path) -> None:
    """Also when the file is read while they look."""
    layer, x = StandardConv2d(32, 32, 3, padding_mode="circular").eval(), torch.randn(2, 32, 8, 8)
    keep_thresholds(TUNED)
    with torch.no_grad():
        compiled = torch.compile(layer, fullgraph=True, backend="eager")(x)
        assert kept_thresholds.cache_info().currsize == 1
        torch.testing.assert_close(compiled, layer(x))
    assert not layer.acts_on_frequencies((8, 8))
    for strict in (True, False):
        kept_thresholds.cache_clear()
        exported = torch.export.export(layer, (x,), strict=strict).module()
        torch.testing.assert_close(exported(x), layer(x))


def test_tensors_without_numbers_are_decided_upon_as_others() -> None:
    for values in (DEFAULTS, TUNED, Thresholds(10, 10)):
        with forced_thresholds(values):
            decisions = [
                StandardConv2d(24, 24, 3, padding_mode="circular", device=device).acts_on_frequencies((8, 8))
                for device in ("cpu", "meta")
            ]
            assert decisions[0] == decisions[1] == (values.whole_share > 1)
