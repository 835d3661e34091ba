"""Downloads from a local server that misbehaves in the ways that servers do."""

import errno
import hashlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from onelip.bench.data import fetch as fetch_module
from onelip.bench.data.catalogue import RemoteFile
from onelip.bench.data.dataset import DataError
from onelip.bench.data.fetch import SourceError, download

CONTENT = np.random.default_rng(0).bytes(1_000_000)


class Server(ThreadingHTTPServer):
    """Serves CONTENT at any address; the attributes say how badly."""

    content = CONTENT
    ranges = True
    status: int | None = None
    cut_after: list[int]
    """The connection ends after so many bytes, one entry per request; without entries it does not."""
    requests: list[str | None]
    """The Range header of each request so far."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.cut_after, self.requests = [], []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/folder/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server  # type: ignore[assignment]

    def do_GET(self) -> None:
        server = self.server
        asked = self.headers.get("Range")
        server.requests.append(asked)
        if server.status is not None:
            self.send_error(server.status)
            return
        match = re.fullmatch(r"bytes=(\d+)-", asked or "")
        start = int(match[1]) if match and server.ranges else 0
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cut_after.pop(0)] if server.cut_after else body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetch_module, "RETRY_PAUSE_SECONDS", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(server: Server) -> RemoteFile:
    return RemoteFile(server.url, hashlib.md5(CONTENT).hexdigest(), len(CONTENT))


def test_whole_file_with_progress(server, tmp_path):
    seen: list[tuple[int, int | None]] = []
    path = download(remote(server), tmp_path, lambda _, done, total: seen.append((done, total)))
    assert path == tmp_path / "file.bin"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert os.listdir(tmp_path) == ["file.bin"]


def test_lost_connections_are_resumed_with_ranges(server, tmp_path):
    server.cut_after = [300_000, 200_000]
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=300000-", "bytes=500000-"]


def test_a_later_call_continues_what_an_earlier_one_left(server, tmp_path):
    server.cut_after = [100_000] * 4
    with pytest.raises(SourceError, match="ended too early"):
        download(remote(server), tmp_path)
    assert (tmp_path / "file.bin.part").stat().st_size == 400_000
    server.requests.clear()
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == ["bytes=400000-"]


def test_complete_file_of_a_killed_process_is_used_if_it_is_right(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(CONTENT)
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == []
    (tmp_path / "file.bin").write_bytes(CONTENT[::-1])
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == [None]


def test_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:123_456])
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requests == ["bytes=123456-"]


@pytest.mark.parametrize("beginning", [b"bad" * 1000, b"bad" * 1_000_000], ids=["short", "longer than the file"])
def test_bad_beginning_is_thrown_away_and_fetched_anew(server, tmp_path, beginning):
    (tmp_path / "file.bin.part").write_bytes(beginning)
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] is None


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"?", CONTENT[:-1], b"<html>log in first</html>", CONTENT * 2])
def test_other_content_is_refused_and_deleted(server, tmp_path, content):
    server.content = content
    with pytest.raises(SourceError, match="checksum differs"):
        download(remote(server), tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (503, 4)])
def test_http_errors(server, tmp_path, status, requests):
    server.status = status
    with pytest.raises(SourceError, match=f"HTTP {status}"):
        download(remote(server), tmp_path)
    assert len(server.requests) == requests
    assert os.listdir(tmp_path) == []


def test_nobody_listens(server, tmp_path):
    gone = RemoteFile("http://127.0.0.1:9/file.bin", "", 1)
    with pytest.raises(SourceError, match="refused"):
        download(gone, tmp_path)
    assert os.listdir(tmp_path) == []


def test_full_disk_leaves_nothing(server, tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetch_module.os, "fsync", full)
    with pytest.raises(DataError, match="No space left") as caught:
        download(remote(server), tmp_path)
    assert not isinstance(caught.value, SourceError), "the server is not at fault"
    assert os.listdir(tmp_path) == []


def test_really_full_disk(server, small_disk):
    with pytest.raises(DataError, match="No space left"):
        download(remote(server), small_disk)
    assert os.listdir(small_disk) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
