"""Which Ray cluster a driver joins, and whether it answers.

Ray itself tries an address that nobody listens at for minutes, deaf to Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from onelip.errors import InvalidInputError

_TIMEOUT_SECONDS = 5.0

# Heads of Ray speak gRPC, which is HTTP/2: a client's first words and empty settings, answered by settings.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_SETTINGS_FRAME, _TYPE_OF_FRAME = 4, 3


def cluster_address(ray: Any, given: str | None) -> str | None:
    """host:port of the cluster that answers for an address of a user, or None where Ray is to start one.

    Without an address, and for "auto", Ray knows: RAY_ADDRESS, or the cluster that this machine belongs to.
    """
    try:
        found = ray._private.services.canonicalize_bootstrap_address(given)
    except ConnectionError as error:
        raise InvalidInputError("no Ray cluster runs on this machine: `ray start --head` starts one") from error
    except ValueError:
        found = given
    if found is None:
        return None
    host, _, port = found.rpartition(":")
    if not (host and port.isdigit() and int(port) < 2**16) or "/" in host:
        raise InvalidInputError(f"the address of a Ray cluster is auto or host:port, got {found!r}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_SECONDS) as connection:
            answer = None if os.environ.get("RAY_USE_TLS") == "1" else _answer(connection)
    except OSError as error:
        raise InvalidInputError(
            f"no Ray cluster answers at {found}: {error.strerror or error}; `ray start --head` starts one, "
            "`ray stop` forgets one that has ended"
        ) from error
    if answer is not None and answer[_TYPE_OF_FRAME : _TYPE_OF_FRAME + 1] != bytes([_SETTINGS_FRAME]):
        raise InvalidInputError(
            f"what listens at {found} is not the head of a Ray cluster; its port is 6379 by default"
        )
    return found


def _answer(connection: socket.socket) -> bytes:
    """The beginning of the first frame, or of whatever comes; fewer bytes where the other side hangs up."""
    connection.sendall(_GREETING)
    answer = b""
    while len(answer) <= _TYPE_OF_FRAME and (more := connection.recv(64)):
        answer += more
    return answer
