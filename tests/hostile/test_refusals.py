"""Refusals by name: each of these once ended in a traceback, a hang, or an executed escape sequence."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile.good_files import TRAIN, make_archives, make_runs, small_data_sets

from onelip.atomic_files import read_end, read_regular
from onelip.bench.cli import run
from onelip.bench.engines.engine_base import JobCommand, start_process
from onelip.bench.terminal import Terminal


@pytest.fixture(scope="module")
def good_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    with small_data_sets():
        make_runs(folder)
    return folder


@pytest.fixture
def sandbox(good_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs").symlink_to(good_runs / "runs")
    (tmp_path / "model.safetensors").symlink_to(next(good_runs.glob("runs/*/model.safetensors")))
    (tmp_path / "file").write_text("a file")
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/study.json").write_text('{"jobs": ' + "[" * 200_000)
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped/study.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((*TRAIN, "--device", "toaster"), "toaster"),
        ((*TRAIN, "--device", "cuda:99"), "cuda:99"),
        ((*TRAIN, "--runs-dir", "x" * 5000), "File name too long"),
        ((*TRAIN, "--runs-dir", "file/below"), "Not a directory"),
        (("compare", "--out", "a/" * 3000, "--dry-run"), "File name too long"),
        (("compare", "--out", "file/below", "--methods", "standard", "--measure", "none"), "file"),
        (("report", "runs", "--no-theory", "--out", "file/below"), "Not a directory"),
        (("check", "model.safetensors", "--dataset", "tiny", "--samples", "1", "--figure", "no/x.svg"), "no/x.svg"),
        (("check", "missing.safetensors"), "a file that save_model wrote, or one of"),
        (("check", "pipe"), "pipe"),
        (("check", "zero"), "zero"),
        (("data", "fetch", "cifar10", "--from", "pipe"), "neither a regular file nor a folder"),
        (("data", "fetch", "cifar10", "--from", "zero"), "neither a regular file nor a folder"),
        (("data", "fetch", "tiny-imagenet", "--from", "encrypted.zip"), "encrypted"),
        (("data", "add", "pipe"), "pipe"),
        (("jobs", "deep"), "nested too deep"),
        (("jobs", "piped"), "not a regular file"),
        (("runs", "show", "\x1b]0;owned\x07"), "no run begins with"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_one_line_and_exit_code_2(
    sandbox: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], words: str
) -> None:
    if "encrypted.zip" in command:
        make_archives(sandbox)
        _encrypt(sandbox / "tiny.zip", sandbox / "encrypted.zip")
    with small_data_sets():
        code = run(list(command))
    shown = capsys.readouterr()
    assert code == 2
    assert shown.err.startswith("onelip: ")
    assert shown.err.count("\n") == 1
    assert shown.err.rstrip("\n").isprintable()
    assert words in shown.err


def _encrypt(good: Path, bad: Path) -> None:
    """Set the flag of encryption in every header of a zip."""
    raw = bytearray(good.read_bytes())
    with zipfile.ZipFile(good) as archive:
        for member in archive.infolist():
            raw[member.header_offset + 6] |= 1
        start = archive.start_dir
        for _ in archive.infolist():
            raw[start + 8] |= 1
            start += 46 + sum(struct.unpack_from("<HHH", raw, start + 28))
    bad.write_bytes(raw)


@pytest.mark.parametrize("make", [Path.symlink_to, lambda path, target: os.mkfifo(path)], ids=["link", "pipe"])
def test_the_output_of_a_job_goes_to_a_regular_file(tmp_path: Path, make: Callable[[Path, Path], None]) -> None:
    """In a study of somebody else output.log may point at any file of mine."""
    mine, output = tmp_path / "mine", tmp_path / "output.log"
    mine.write_text("precious")
    make(output, mine)
    with pytest.raises(OSError):  # noqa: PT011 - a link has another number than a pipe
        start_process(JobCommand(("echo", "evil"), str(output)))
    assert mine.read_text() == "precious"


@pytest.mark.parametrize("most", [9, 10])
def test_files_larger_than_expected_are_not_read(tmp_path: Path, most: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    if most == 10:
        assert read_regular(path, most) == b"0123456789"
    else:
        with pytest.raises(OSError, match="10 bytes"):
            read_regular(path, most)
    assert read_end(path, 3) == b"789"


def test_escapes_and_markup_in_records_are_shown(
    good_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record may hold any text: the terminal gets none of it as a command, rich none as markup."""
    name = next(path.parent.name for path in good_runs.glob("runs/*/record.json") if "lot" in path.parent.name)
    record = json.loads((good_runs / "runs" / name / "record.json").read_text())
    record["reason"] = "\x1b]0;owned\x07 [red]no markup[/red] \x9b2J \u202e"
    record["machine"]["cpu"] = "[/] \ud800"
    (tmp_path / name).mkdir()
    (tmp_path / name / "record.json").write_text(json.dumps(record))
    (tmp_path / name / ".lock").touch()
    assert run(["runs", "show", name, "--runs-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(letter.isprintable() for letter in shown.replace("\n", ""))
    assert r"\x1b]0;owned\x07" in shown
    assert "[red]no" in shown
    assert r"\ud800" in shown


def test_cells_and_titles_of_tables_are_shown_as_they_are() -> None:
    from onelip.bench.terminal import plain_table

    stream = io.StringIO()
    table = plain_table(("\x1b[1mhead",), rows=[("[bold]cell\x07",)], title="\x9btitle")
    Terminal(file=stream, width=80).print(table, "line\none")
    assert r"\x1b[1mhead" in stream.getvalue()
    assert r"[bold]cell\x07" in stream.getvalue()
    assert r"\x9btitle" in stream.getvalue()
    assert "line\none" in stream.getvalue()
