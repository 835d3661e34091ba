"""`onelip data`: what it prints and how it exits."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from onelip.bench.cli import run
from onelip.bench.data import load


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "data"


@pytest.fixture
def small_zip(tmp_path: Path) -> Path:
    """Tiny ImageNet with two training images per class and one test image."""
    stream = io.BytesIO()
    Image.new("RGB", (64, 64), (10, 20, 30)).save(stream, "JPEG")
    ids = [f"n{number:08d}" for number in range(200)]
    names = [f"train/{key}/images/{key}_{number}.JPEG" for key in ids for number in range(2)]
    path = tmp_path / "tiny.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny-imagenet-200/wnids.txt", "\n".join(ids))
        archive.writestr("tiny-imagenet-200/val/val_annotations.txt", f"val_0.JPEG\t{ids[7]}\t0\n")
        for name in [*names, "val/images/val_0.JPEG"]:
            archive.writestr(f"tiny-imagenet-200/{name}", stream.getvalue())
    return path


def test_list_names_every_data_set_within_80_columns(capsys):
    assert run(["data", "list"]) == 0
    out = capsys.readouterr().out
    for name in ("cifar10", "cifar100", "tiny-imagenet", "cifar10-mini"):
        assert f"\n {name} " in out
    assert max(map(len, out.splitlines())) <= 80


def test_fetch_list_and_verify_a_subset(small_zip, capsys, data_folder):
    assert run(["data", "fetch", "tiny-imagenet", "--from", str(small_zip)]) == 0
    out = capsys.readouterr().out
    assert "400 training and 1 test images" in out
    assert "subset: 400 of 100,000 training" in out
    assert load("tiny-imagenet").test_labels.tolist() == [7]
    assert run(["data", "list"]) == 0
    assert "subset" in capsys.readouterr().out
    assert run(["data", "verify"]) == 0
    assert capsys.readouterr().out.count(": good (") == 2
    file = data_folder / "tiny-imagenet.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert run(["data", "verify", "tiny-imagenet"]) == 1
    assert "tiny-imagenet: BAD" in capsys.readouterr().out


def test_verify_of_a_data_set_that_is_not_there(capsys):
    assert run(["data", "verify", "cifar100"]) == 1
    assert "onelip data fetch cifar100" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "imagenet"], "unknown data set 'imagenet'; known: cifar10, "),
        (["verify", "imagenet"], "unknown data set 'imagenet'; known: cifar10, "),
        (["fetch", "cifar10-mini"], "comes with the package"),
        (["fetch", "cifar10", "--from", "/no/such/file"], "/no/such/file: no such file or folder"),
        (["fetch", "tiny-imagenet", "--from", "/no/such/file"], "/no/such/file: no such file or folder"),
        (["fetch", "cifar10", "--from", __file__], "not a tar archive"),
        (["fetch", "cifar100", "--from", str(Path(__file__).parent)], "not a complete CIFAR-100"),
        (["fetch", "tiny-imagenet", "--from", __file__], "not a Tiny ImageNet zip"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys, data_folder):
    assert run(["data", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not data_folder.exists() or {path.name for path in data_folder.iterdir()} <= {".lock"}


@pytest.mark.parametrize("arguments", [["data", "fetch"], ["data", "erase"], ["data", "list", "--bogus"]])
def test_command_lines_that_do_not_parse(arguments, capsys):
    assert run(arguments) == 2
    assert capsys.readouterr().err.startswith("onelip: ")


def test_every_action_has_json(small_zip, tmp_path, capsys, data_folder):
    def printed(*arguments: str) -> tuple[int, Any]:
        code = run(["data", *arguments, "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out)

    fetch = ("fetch", "tiny-imagenet", "--from", str(small_zip))
    facts = {"name": "tiny-imagenet", "train_images": 400, "test_images": 1, "classes": 200, "shape": [3, 64, 64]}
    code, fetched = printed(*fetch)
    assert code == 0
    assert fetched.items() >= {**facts, "here": True, "file": str(data_folder / "tiny-imagenet.safetensors")}.items()
    code, listed = printed("list")
    assert code == 0
    assert {entry["name"]: entry["here"] for entry in listed} == {
        "cifar10": False,
        "cifar100": False,
        "tiny-imagenet": True,
        "cifar10-mini": True,
    }
    for label in ("a", "b"):
        (tmp_path / "own" / label).mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "own" / label / f"{number}.png")
    code, added = printed("add", str(tmp_path / "own"))
    assert (code, added["train_images"], added["test_images"], added["shape"]) == (0, 8, 2, [3, 8, 8])
    (data_folder / "tiny-imagenet.safetensors").write_bytes(b"damaged")
    code, verified = printed("verify")
    assert code == 1
    assert {entry["name"]: entry["good"] for entry in verified} == {
        "tiny-imagenet": False,
        "cifar10-mini": True,
        added["name"]: True,
    }


def test_a_pipe_gets_lines_of_progress_and_quiet_none(small_zip, capsys, monkeypatch):
    fetch = ["data", "fetch", "tiny-imagenet", "--from", str(small_zip)]
    monkeypatch.setattr("onelip.bench.terminal.BETWEEN_LINES", 0.0)
    assert run(fetch) == 0
    assert ": " in capsys.readouterr().err
    assert run([*fetch, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
