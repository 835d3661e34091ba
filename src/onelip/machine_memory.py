"""How much memory there is, so that what a file claims to hold can be refused before memory is taken for it."""

from __future__ import annotations

import os
from pathlib import Path


def memory_bytes() -> int:
    """Memory of the machine, or the limit of the container where that is smaller."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return installed
    return min(installed, int(limit)) if limit.isdigit() else installed


def most_bytes() -> int:
    """The largest content that is read: half of the memory, since the numbers are made of a copy of it."""
    return memory_bytes() // 2
