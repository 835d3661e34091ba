"""Archives from anywhere: what they claim is refused before memory is taken for it."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from onelip.bench.data.archive import LARGEST_MEMBER, MOST_MEMBERS, read_members
from onelip.errors import InvalidInputError


def _member(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info, content


def _tar(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w:gz", form: int = 1) -> Path:
    with tarfile.open(path, mode, format=form) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_wanted_files_are_found_in_any_tar(tmp_path: Path, compression: str) -> None:
    link = tarfile.TarInfo("a/train")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members = [(link, b""), _member("b/test", b"two"), _member("b/other", b"three")]
    path = _tar(tmp_path / "archive", members, f"w:{compression}")
    assert read_members(path, {"train", "test"}) == {"test": b"two"}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_long_name_takes_no_memory(tmp_path: Path, form: int) -> None:
    """64 MB of name are 64 kB of archive; tarfile alone would read and keep all of it."""
    path = _tar(tmp_path / "bomb.tgz", [_member("a" * 2**26)], form=form)
    tracemalloc.start()
    with pytest.raises(InvalidInputError, match="far more than any"):
        read_members(path, {"train"})
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_a_member_that_claims_too_much(tmp_path: Path) -> None:
    info, _ = _member("train")
    info.size = LARGEST_MEMBER + 1
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(info.tobuf() + bytes(512)))
    with pytest.raises(InvalidInputError, match="far more than any file"):
        read_members(path, {"train"})
    info.name, info.size = "other", 2**40
    path.write_bytes(gzip.compress(info.tobuf() + bytes(512)))
    with pytest.raises(InvalidInputError, match="far more than"):
        read_members(path, {"train"})


def test_too_many_members(tmp_path: Path) -> None:
    path = _tar(tmp_path / "a.tgz", [_member(str(number), b"") for number in range(MOST_MEMBERS + 1)])
    with pytest.raises(InvalidInputError, match="members"):
        read_members(path, {"train"})


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="neither a regular file nor a folder"):
        read_members(tmp_path / "pipe", {"train"})
