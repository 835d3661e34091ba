"""A Ray cluster of two nodes on this machine for as long as a `with` block lasts, one of which can be lost.

As a script it brings the cluster up and waits:

    python tests/ray_cluster.py        # prints what to export and its address; Ctrl-C ends it
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


class RayNode:
    """`ray start --block`, whose children are the processes of the node: raylet, workers, and the jobs of these."""

    def __init__(self, options: list[str], environment: Mapping[str, str]) -> None:
        program = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        self._command = [*program, "--num-cpus=1", f"--object-store-memory={100 * 2**20}", *options]
        self._environment = environment
        while not self._joins():  # Ray gives itself 30 seconds, which a busy machine may not keep
            self.lose()

    def _joins(self) -> bool:
        """Start it; whether it is part of its cluster."""
        with tempfile.NamedTemporaryFile() as log:
            self._process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)
            while self._process.poll() is None:
                if "--block" in Path(log.name).read_text():  # "... will now block"
                    return True
                time.sleep(0.05)
            printed = Path(log.name).read_text()
        assert "timed out" in printed, printed
        return False

    def processes(self) -> list[int]:
        """The node's processes, parents first."""
        found = [self._process.pid]
        for number in found:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for task in Path(f"/proc/{number}/task").iterdir():
                    found += map(int, (task / "children").read_text().split())
        return found

    def lose(self) -> None:
        """All of its processes at once, as a machine loses its power."""
        for number in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self._process.wait()


@dataclass(frozen=True)
class RayCluster:
    """Two nodes with one CPU each, where the cluster is found, and the environment that it lets in."""

    address: str
    environment: dict[str, str]
    head: RayNode
    second: RayNode


@contextlib.contextmanager
def ray_cluster(environment: Mapping[str, str]) -> Iterator[RayCluster]:
    """Bring it up; jobs have this environment."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets need a short path
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    environment = {**environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    head_options = ["--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"]
    nodes: list[RayNode] = []
    try:
        for options in (head_options, [f"--address=localhost:{port}"]):
            nodes.append(RayNode(options, environment))
        yield RayCluster(f"localhost:{port}", environment, *nodes)
    finally:
        for node in reversed(nodes):
            node.lose()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with ray_cluster(os.environ) as found, contextlib.suppress(KeyboardInterrupt):
        shown = " ".join(f"{name}={found.environment[name]}" for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"))
        print(f"export {shown}\nonelip compare --engine ray --address {found.address} ...", flush=True)
        while True:
            time.sleep(1)
