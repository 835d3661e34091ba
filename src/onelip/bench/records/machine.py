"""Facts about the machine and the software a result was measured with.

A time or a memory figure means nothing without them, so every run record carries them. torch is imported by what asks
it, since records are read without it.
"""

from __future__ import annotations

import copy
import functools
import os
import platform
import socket
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from onelip.errors import InvalidInputError
from onelip.local_machine import processor_name
from onelip.machine_memory import memory_bytes
from onelip.version import __version__

ENGINE_VARIABLE = "ONELIP_ENGINE"
"""Environment variable in which an engine says its name to the jobs that it starts."""

HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""Value of GLIBC_TUNABLES that puts large tensors on huge pages, where Linux has them for those who ask: layers
that act on frequencies take about a tenth less time on them."""


def machine_facts() -> dict[str, Any]:
    """Host, processor, memory, GPUs, operating system, versions and commit, as a tree that JSON can hold.

    Asked from the machine once per process: the code that runs is the code of the first call, even if the
    checkout moves on meanwhile. Only what may change is read afresh: the number of torch threads, and the load, which
    tells whether others computed on the same machine.
    """
    import torch

    changing = {"torch_threads": torch.get_num_threads(), "load": round(os.getloadavg()[0], 2)}
    return copy.deepcopy(_fixed_facts()) | changing


@functools.lru_cache(maxsize=1)
def _fixed_facts() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "engine": os.environ.get(ENGINE_VARIABLE),
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_bytes": memory_bytes(),
        "gpus": _gpus(),
        "os": platform.platform(),
        "versions": software_versions(),
        "commit": source_commit(),
    }


def usable_cores() -> int:
    """Cores that this process may use: in a container or batch job fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_name(device: str, processes: int = 1) -> str:
    """The kind of device, which results within a time depend on: the GPU, or the processor and threads."""
    import torch

    where = torch.device(device)
    threads = f"{processor_name()}, {torch.get_num_threads()} threads"
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else threads
    return name if processes == 1 else f"{processes} x {name}"


def free_cores(seconds: float = 0.25) -> float | None:
    """Of the cores that this process may use, those on which nobody computes; None where Linux does not count."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()

    def idle_and_all() -> tuple[int, int]:
        lines = (line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu"))
        ticks = [[int(word) for word in words[1:9]] for words in lines if words[0][3:] in set(map(str, usable))]
        return sum(one[3] + one[4] for one in ticks), sum(map(sum, ticks))

    try:
        idle, total = idle_and_all()
        time.sleep(seconds)
        later = idle_and_all()
    except (OSError, ValueError, IndexError):
        return None
    return len(usable) * (later[0] - idle) / (later[1] - total) if later[1] > total else None


def threads_without_cores(free: float | None = None) -> str:
    """A sentence if fewer cores are free than torch has threads, else nothing; free cores are counted if not given."""
    import torch

    threads = torch.get_num_threads()
    if threads > 1 and free is None:
        free = free_cores()
    if threads == 1 or free is None or free > threads - 0.5:
        return ""
    return (
        f"{free:.1f} cores are free for {threads} threads of torch, and every operation waits for the last of them: "
        "OMP_NUM_THREADS=1 is faster beside other programs"
    )


def software_versions() -> dict[str, str]:
    """Versions of Python, onelip and the libraries that can change a result."""
    import torch

    return {
        "python": platform.python_version(),
        "onelip": __version__,
        "torch": str(torch.__version__),  # the build (+cpu, +cu128) is part of torch's own version string only
        "numpy": metadata.version("numpy"),
        "safetensors": metadata.version("safetensors"),
    }


def source_commit(source: Path = Path(__file__)) -> dict[str, Any] | None:
    """`{"id": ..., "dirty": ...}` of onelip's checkout; None for an installed package or without git.

    An installed onelip often lies inside somebody else's repository (`project/.venv`), whose commit says
    nothing about this code: the file must be at its own place in the work tree.
    """
    source = source.resolve()
    top = _git(source.parent, "rev-parse", "--show-toplevel")
    place = Path("src", "onelip", "bench", "records", source.name)
    if top is None or Path(top).resolve() / place != source:
        return None
    commit = _git(source.parent, "rev-parse", "--verify", "HEAD")
    changes = _git(Path(top), "status", "--porcelain")
    return None if commit is None or changes is None else {"id": commit, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    # No optional locks: asking for the status must not disturb a git command that runs meanwhile.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=5, env=environment
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _gpus() -> list[dict[str, Any]]:
    import torch

    if not torch.cuda.is_available():
        return []
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [{"name": device.name, "memory_bytes": device.total_memory} for device in properties]


def usable_device(name: str | None = None) -> str:
    """The device of this name; None and "auto" are a GPU where there is one; refuses what is not here."""
    import torch

    if name in (None, "auto"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidInputError(f"there is no device {name!r}, use auto, cpu, cuda or cuda:<number>") from None
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < found):
        return name
    cards = ", ".join(f"cuda:{index}" for index in range(found)) or "no GPU was found"
    raise InvalidInputError(f"the device {name!r} cannot be used here, use cpu or auto ({cards})")
