"""Whose code is running."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

import torch

_TORCH = os.path.dirname(torch.__file__ or "") + os.sep
_ONELIP = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_users(frame: FrameType) -> bool:
    """Whether code is neither torch's nor onelip's."""
    return not frame.f_code.co_filename.startswith((_TORCH, _ONELIP))


def users_line(end: CodeType) -> str:
    """The nearest line of code between a call and the frame of the code `end` that is neither torch's nor onelip's."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not end:
        name = frame.f_code.co_filename
        if is_users(frame) and "<" not in name:
            return f"{os.path.basename(name)} line {frame.f_lineno}"
        frame = frame.f_back
    return ""
