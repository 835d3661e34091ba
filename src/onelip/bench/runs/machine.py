"""Facts about the machine and the software a result was measured with.

A time or a memory figure means nothing without them, so every run record carries them.
"""

from __future__ import annotations

import copy
import functools
import os
import platform
import socket
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from onelip.linalg.thresholds import thresholds
from onelip.local_machine import processor_name
from onelip.machine_memory import memory_bytes
from onelip.version import __version__

ENGINE_VARIABLE = "ONELIP_ENGINE"
"""Environment variable in which an engine says its name to the jobs that it starts."""

HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""Value of GLIBC_TUNABLES that puts large tensors on huge pages, where Linux has them for those who ask: layers
that act on frequencies take about a tenth less time on them."""

_LIBRARIES = ("torch", "numpy", "optuna", "safetensors")


def machine_facts() -> dict[str, Any]:
    """Host, processor, memory, GPUs, operating system, versions and commit, as a tree that JSON can hold.

    Asked from the machine once per process: the code that runs is the code of the first call, even if the
    checkout moves on meanwhile. Only what may change is read afresh: the number of torch threads, and the load, which
    tells whether others computed on the same machine. Thresholds of `onelip tune` are told where they are not the
    built-in ones.
    """
    changing = {"torch_threads": torch.get_num_threads(), "load": round(os.getloadavg()[0], 2)}
    tuned = thresholds().changed()
    return copy.deepcopy(_fixed_facts()) | changing | ({"thresholds": tuned} if tuned else {})


@functools.lru_cache(maxsize=1)
def _fixed_facts() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "engine": os.environ.get(ENGINE_VARIABLE),
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        # in a container or batch job fewer than the machine has
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "gpus": _gpus(),
        "os": platform.platform(),
        "versions": software_versions(),
        "commit": source_commit(),
    }


def device_name(device: str, processes: int = 1) -> str:
    """The kind of device, which results within a time depend on: the GPU, or the processor, threads and thresholds."""
    where = torch.device(device)
    threads = ", ".join([f"{processor_name()}, {torch.get_num_threads()} threads", *tuned_thresholds()])
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else threads
    return name if processes == 1 else f"{processes} x {name}"


def tuned_thresholds() -> list[str]:
    """`tuned whole_share 0.9` for each threshold that is not the built-in one."""
    return [f"tuned {name} {value}" for name, value in thresholds().changed().items()]


def software_versions() -> dict[str, str]:
    """Versions of Python, onelip and the libraries that can change a result."""
    versions = {"python": platform.python_version(), "onelip": __version__}
    versions |= {name: metadata.version(name) for name in _LIBRARIES}
    # The build (+cpu, +cu128) is part of torch's own version string only.
    versions["torch"] = str(torch.__version__)
    return versions


def source_commit(source: Path = Path(__file__)) -> dict[str, Any] | None:
    """`{"id": ..., "dirty": ...}` of onelip's checkout; None for an installed package or without git.

    An installed onelip often lies inside somebody else's repository (`project/.venv`), whose commit says
    nothing about this code: the file must be at its own place in the work tree.
    """
    source = source.resolve()
    top = _git(source.parent, "rev-parse", "--show-toplevel")
    place = Path("src", "onelip", "bench", "runs", source.name)
    if top is None or Path(top).resolve() / place != source:
        return None
    commit = _git(source.parent, "rev-parse", "--verify", "HEAD")
    changes = _git(Path(top), "status", "--porcelain")
    if commit is None or changes is None:
        return None
    return {"id": commit, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    # No optional locks: asking for the status must not disturb a git command that runs meanwhile.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, env=environment, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _gpus() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [{"name": device.name, "memory_bytes": device.total_memory} for device in properties]
