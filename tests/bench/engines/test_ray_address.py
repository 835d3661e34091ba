"""Addresses at which no Ray cluster answers are told at once; Ray would try them for minutes."""

from __future__ import annotations

import contextlib
import socket
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from onelip.bench.cli import run as run_command
from onelip.bench.engines import ray_engine
from onelip.bench.engines.ray_engine import cluster_address
from onelip.errors import InvalidInputError

RAY = types.SimpleNamespace(
    _private=types.SimpleNamespace(services=types.SimpleNamespace(canonicalize_bootstrap_address=lambda given: given))
)
"""Ray, as far as an address is concerned."""

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@contextlib.contextmanager
def _server(answer: bytes | None) -> Iterator[str]:
    """Listens, reads a greeting, answers and hangs up; with None it keeps silent. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                if answer is None:
                    connection.recv(1000)  # until the other side gives up
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_head_of_ray_answers_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with _server(SETTINGS) as address:
        assert cluster_address(RAY, address) == address
    assert cluster_address(RAY, None) is None, "Ray is to start one"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "not the head"), (b"", "not the head"), (None, "timed out")],
    ids=["web", "hangs-up", "silent"],
)
def test_other_servers_are_no_heads(answer: bytes | None, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "_TIMEOUT_SECONDS", 0.05 if answer is None else 600.0)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with _server(answer) as address, pytest.raises(InvalidInputError, match=problem):
        cluster_address(RAY, address)


@pytest.mark.parametrize("given", ["head", "head:", ":6379", "head:port", "head:99999", "ray://head:10001", ""])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(InvalidInputError, match="auto or host:port"):
        cluster_address(RAY, given)


@pytest.mark.ray
@pytest.mark.parametrize("given", ["CLOSED", "head.invalid:6379", "auto"])
def test_the_command_line_says_so_in_one_line(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ray._private import services

    # No cluster of this machine is to be found.
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(services, "find_gcs_addresses", set)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: None)
    with socket.socket() as closed:
        closed.bind(("", 0))
        address = given.replace("CLOSED", f"localhost:{closed.getsockname()[1]}")
        words = f"compare --engine ray --address {address} --out {tmp_path}/study --device cpu"
        assert run_command(words.split()) == 2
    message = capsys.readouterr().err
    assert message.startswith("onelip: no Ray cluster")
    assert message.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing is written"
