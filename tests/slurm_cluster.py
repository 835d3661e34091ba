"""A real Slurm on this machine for as long as a `with` block lasts: munged, slurmctld and slurmd in a folder.

Needs root and Debian's packages slurm-wlm and munge. As a script it brings Slurm up and waits:

    python tests/slurm_cluster.py        # prints the SLURM_CONF to export; Ctrl-C ends it
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
_PATIENCE_SECONDS = 60.0


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


@contextlib.contextmanager
def slurm_cluster() -> Iterator[dict[str, str]]:
    """One node with the cores of this machine; yields the environment in which `sbatch` finds it."""
    if (reason := why_not()) is not None:
        raise SlurmUnavailable(reason)
    folder = Path(tempfile.mkdtemp(prefix="onelip-slurm-"))
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        _configure(folder)
        key, munge_socket = folder / "munge.key", folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        files = [f"--{name}-file={folder / f'munge.{name}'}" for name in ("log", "pid", "seed")]
        munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge_socket}", *files]
        for command in (munged, ["slurmctld", "-D", "-i"], ["slurmd", "-D", "-N", "here"]):
            with (folder / f"{command[0]}.out").open("wb") as log:
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            if command is munged:
                _wait(munge_socket.exists, processes, folder)
        _wait(lambda: _is_idle(environment), processes, folder)
        yield environment
    finally:
        subprocess.run(["scancel", "--user=root", "--full"], env=environment, check=False, capture_output=True)
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path) -> None:
    controller, node = _free_ports(2)
    cores, memory = os.cpu_count(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20 - 500
    (folder / "slurm.conf").write_text(
        f"""ClusterName=onelip
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
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
NodeName=here NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    )
    (folder / "state").mkdir()
    (folder / "spool").mkdir()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _is_idle(environment: dict[str, str]) -> bool:
    command = ["sinfo", "--noheader", "--format=%T"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return answer.returncode == 0 and answer.stdout.strip() == "idle"


def _wait(happened: object, processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    assert callable(happened)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not happened():
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            logs = {path.name: path.read_text(errors="replace")[-500:] for path in folder.glob("*.out")}
            raise SlurmUnavailable(f"Slurm did not come up: {logs}")
        time.sleep(0.2)


if __name__ == "__main__":
    with slurm_cluster() as found, contextlib.suppress(KeyboardInterrupt):
        print(f"export SLURM_CONF={found['SLURM_CONF']} PATH=$PATH:/usr/sbin", flush=True)
        while True:
            time.sleep(1)
