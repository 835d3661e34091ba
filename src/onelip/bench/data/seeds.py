"""Random numbers as a function of what they are for, instead of as a state that has to be saved.

`generator_for(seed, "order", epoch)` is the same generator whenever and wherever it is asked for, and independent
of the generators for other purposes, so training can resume at any batch from two integers.
"""

from __future__ import annotations

import hashlib

import torch


def generator_for(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """A generator on the CPU, whatever the device of the data: every device then sees the same draws."""
    key = "/".join([purpose, str(seed), *map(str, counters)])
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little", signed=True)
    return torch.Generator().manual_seed(number)
