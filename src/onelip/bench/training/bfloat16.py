"""Whether bfloat16 works on the processor.

Some virtual machines announce matrix instructions (AMX) that they do not pass on. A bfloat16 product then ends the
whole process with "illegal instruction", without an error that could be caught, so it is tried in another process.
"""

from __future__ import annotations

import functools
import subprocess
import sys

import torch

from onelip.errors import InvalidInputError

_TRIAL = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x, x[0])"


def check_bfloat16(device: torch.device) -> None:
    """Raise `InvalidInputError` if bfloat16 on this device would kill the process."""
    if device.type == "cpu" and not _works_on_cpu():
        raise InvalidInputError(
            "bfloat16 does not run on this processor: it announces instructions that it cannot execute; use "
            "--precision float32, or set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"
        )


@functools.cache
def _works_on_cpu() -> bool:
    return subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False).returncode >= 0
