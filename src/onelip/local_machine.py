"""What this machine is called, and where onelip keeps files of its own on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cache_folder() -> Path:
    """Where data sets are kept: `ONELIP_DATA`, or `~/.cache/onelip`."""
    chosen = os.environ.get("ONELIP_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "onelip"


def processor_name() -> str:
    """The model of the processor, as it calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()
