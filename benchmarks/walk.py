"""Files of onelip whose functions run in this process, in the order of their first call, for docs/architecture.md.

    python benchmarks/walk.py forward bcop      # a training step, and inference, of one convolution
    python benchmarks/walk.py certify bcop      # certificates of a small network
    python benchmarks/walk.py compare ...       # a command

Calls while modules are imported do not count, and neither do those of jobs, which are processes of their own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType

import torch

import onelip
from onelip.bench.cli import run
from onelip.layers import get_method

SOURCE = f"{Path(onelip.__file__).parent}/"
_NEW_LOCALS = 1  # flag of functions; bodies of modules and classes lack it


def files_of(call: Callable[[], object]) -> list[str]:
    """Paths below src/onelip."""
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
    call()
    sys.setprofile(None)
    return list(dict.fromkeys(seen.values()))


def passes(method: str) -> Callable[[], object]:
    """Forward and backward pass of a convolution in training, and a pass in evaluation."""
    layer, x = get_method(method).conv(16, 16, 3, padding=1), torch.randn(2, 16, 8, 8)

    def both() -> None:
        layer(x).sum().backward()
        layer.eval()(x)

    return both


def certificates(method: str) -> Callable[[], object]:
    """Certificates of two images by a network of this method."""
    model, x = onelip.ConvNet(method, None, 10, width=4).eval(), torch.rand(2, 3, 32, 32)
    return partial(onelip.certify, model, x)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["forward", method]:
            walked = passes(method)
        case ["certify", method]:
            walked = certificates(method)
        case arguments:
            walked = partial(run, arguments)
    found = files_of(walked)
    print(*found, f"{len(found)} files, {sum(name.startswith('bench/') for name in found)} of bench", sep="\n")
