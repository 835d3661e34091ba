"""A home folder of the tests' own, and a watch over the real one.

To import this file is to move in, which has to come before any import that looks for the home. What this process and
its children (workers of xdist and of Ray, jobs, commands) keep in a home, a cache or a settings file is then in a
temporary folder, which is new for every session and goes with it. The watch notes every file below the real home that
this process opens, lists, makes, moves or deletes, apart from the checkout, the interpreter and its packages.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

_REAL, _OWN = "TESTS_REAL_HOME", "TESTS_OWN_HOME"
_OF_THE_PERSON = ("XDG_", "ONELIP_", "MPL", "MATPLOTLIB", "HF_", "HUGGINGFACE_", "RAY_", "TORCHINDUCTOR_", "TRITON_")
_WATCHED = frozenset({"open", *(f"os.{call}" for call in (
    "chmod", "chown", "link", "listdir", "mkdir", "remove", "rename", "rmdir", "scandir", "symlink", "truncate", "utime"
))})  # fmt: skip

touched: list[str] = []
"""What the watch has noted: the kind of access, and the path."""


def _move_in() -> None:
    real = str(Path.home())
    for name in [*os.environ]:
        if name.startswith(_OF_THE_PERSON) or name == "TORCH_HOME":
            del os.environ[name]
    own = tempfile.mkdtemp(prefix="onelip-")  # short: sockets of Ray are below it
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    os.environ.update({_REAL: real, _OWN: own, "HOME": own, "USERPROFILE": own})
    # These are in the folder for temporary files, where another session's would be found.
    os.environ.update(RAY_TMPDIR=own, TORCHINDUCTOR_CACHE_DIR=os.path.join(own, "inductor"))


def _watch(real: str) -> None:
    below = os.path.join(real, "")
    checkout, packages = str(Path(__file__).parents[1]), filter(os.path.isabs, sys.path)
    places = {checkout, sys.prefix, sys.base_prefix, tempfile.gettempdir(), *packages}
    forms = {os.path.join(form, "") for place in places for form in (place, os.path.realpath(place))}
    allowed = tuple(form for form in forms if form.startswith(below) and form != below)

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _WATCHED:
            return
        for path in arguments[:2]:
            if isinstance(path, (str, bytes, os.PathLike)):
                full = os.path.join(os.path.abspath(os.fsdecode(path)), "")
                if full.startswith(below) and not full.startswith(allowed):
                    touched.append(f"{event} {full}")

    sys.addaudithook(note)


if _OWN not in os.environ:  # not a worker or a job of a session that has moved in
    _move_in()
_watch(os.environ[_REAL])
