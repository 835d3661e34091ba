"""A real Slurm on this machine for as long as a `with` block lasts: munged, slurmctld and nodes in a folder.

Needs root and Debian's packages slurm-wlm and munge. As a script it brings Slurm up and waits:

    python tests/slurm_cluster.py [nodes]        # prints the SLURM_CONF to export; Ctrl-C ends it
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
from collections.abc import Callable, Iterator
from pathlib import Path

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
_PATIENCE_SECONDS = 60.0
_SECONDS_UNTIL_LOST = 15  # that a node is silent; Slurm's default is 300


class SlurmUnavailable(Exception):  # noqa: N818 - what it is
    """Why there is no Slurm here."""


def why_not() -> str | None:
    """What is missing; None if Slurm can be brought up."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"needs Slurm: apt-get install slurm-wlm munge ({', '.join(missing)} missing)"
    return None if os.geteuid() == 0 else "slurmd needs root"


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


class SlurmCluster:
    """Nodes n1, n2, ... on this machine, each of which can be lost and come back; share the cores evenly.

    `environment` is the one in which `sbatch` finds the cluster.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def bring_up(self) -> None:
        """munged, slurmctld and the nodes; returns when Slurm calls them idle."""
        folder = self._folder
        _configure(folder, self.names)
        key, munge_socket = folder / "munge.key", folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        files = [f"--{name}-file={folder / f'munge.{name}'}" for name in ("log", "pid", "seed")]
        self._run(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge_socket}", *files
        )
        self._wait(munge_socket.exists)
        self._run("slurmctld", "slurmctld", "-D", "-i")
        for name in self.names:
            self.start(name)
        self._wait(self._is_idle)

    def start(self, name: str) -> None:
        """The node's slurmd, at first or again."""
        self._run(name, "slurmd", "-D", "-N", name)

    def lose(self, name: str) -> None:
        """All processes of a node and of its jobs at once, as a machine loses its power."""
        for process in (self._processes[name].pid, *self.processes(name)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._processes.pop(name).wait()

    def processes(self, name: str) -> list[int]:
        """Those of the jobs on a node, slurmstepd included, which leave slurmd's family; all carry the node's name."""
        wanted = {f"SLURM_CONF={self.environment['SLURM_CONF']}".encode(), f"SLURMD_NODENAME={name}".encode()}
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if wanted <= set(path.read_bytes().split(b"\0")):
                    found.append(int(path.parent.name))
        return found

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        answer = subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True)
        return answer.stdout.strip()

    def _is_idle(self) -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):  # slurmctld does not answer yet
            return self.ask("sinfo", "--noheader", "--format=%D %T") == f"{len(self.names)} idle"
        return False

    def shut_down(self) -> None:
        """Cancel all jobs and end all processes."""
        command = ["scancel", "--user=root", "--full"]
        subprocess.run(command, env=self.environment, check=False, capture_output=True)
        processes = list(self._processes.values())
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def _run(self, name: str, *command: str) -> None:
        node = {"SLURMD_NODENAME": name} if name in self.names else {}  # which slurmstepd inherits
        with (self._folder / f"{name}.out").open("wb") as log:
            environment = self.environment | node
            self._processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def _wait(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not happened():
            if time.monotonic() > deadline or any(one.poll() is not None for one in self._processes.values()):
                logs = {path.name: path.read_text(errors="replace")[-500:] for path in self._folder.glob("*.out")}
                raise SlurmUnavailable(f"Slurm did not come up: {logs}")
            time.sleep(0.2)


@contextlib.contextmanager
def slurm_cluster(nodes: int = 1) -> Iterator[SlurmCluster]:
    """Bring it up, and shut it down at the end."""
    if (reason := why_not()) is not None:
        raise SlurmUnavailable(reason)
    folder = Path(tempfile.mkdtemp(prefix="onelip-slurm-"))
    cluster = SlurmCluster(folder, nodes)
    try:
        cluster.bring_up()
        yield cluster
    finally:
        cluster.shut_down()
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path, names: list[str]) -> None:
    controller, *ports = _free_ports(1 + len(names))
    host, cores = socket.gethostname(), max(1, (os.cpu_count() or 1) // len(names))
    memory = (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20 - 500) // len(names)
    size = f"CPUs={cores} RealMemory={memory} State=UNKNOWN"
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} {size}"
        for name, port in zip(names, ports, strict=True)
    )
    (folder / "slurm.conf").write_text(
        f"""ClusterName=onelip
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdTimeout={_SECONDS_UNTIL_LOST}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,defer_batch
KillWait=20
ReturnToService=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    )
    (folder / "state").mkdir()
    for name in names:
        (folder / f"spool.{name}").mkdir()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


if __name__ == "__main__":
    with slurm_cluster(int(sys.argv[1]) if sys.argv[1:] else 1) as found, contextlib.suppress(KeyboardInterrupt):
        print(f"export SLURM_CONF={found.environment['SLURM_CONF']} PATH=$PATH:/usr/sbin", flush=True)
        while True:
            time.sleep(1)
