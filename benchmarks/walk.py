"""Count the files of onelip whose functions one command runs in its own process: python benchmarks/walk.py compare ...

Calls while modules are imported do not count, and neither do those of jobs, which are processes of their own.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

import onelip
from onelip.bench.cli import run

SOURCE = f"{Path(onelip.__file__).parent}/"
_NEW_LOCALS = 1  # flag of functions; bodies of modules and classes lack it


def files_of(arguments: list[str]) -> list[str]:
    """Paths below src/onelip, in alphabetical order."""
    seen: dict[CodeType, str] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event != "call"
            or code in seen
            or not code.co_filename.startswith(SOURCE)
            or not code.co_flags & _NEW_LOCALS
        ):
            return
        above = frame.f_back
        while above is not None and not (
            above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(SOURCE)
        ):
            above = above.f_back
        if above is None:
            seen[code] = code.co_filename.removeprefix(SOURCE)

    threading.setprofile(note)
    sys.setprofile(note)
    run(arguments)
    sys.setprofile(None)
    return sorted(set(seen.values()))


if __name__ == "__main__":
    found = files_of(sys.argv[1:])
    print(*found, f"{len(found)} files, {sum(name.startswith('bench/') for name in found)} of bench", sep="\n")
