"""What fits: the free memory of this machine, and the cards that hold a training."""

from __future__ import annotations

from pathlib import Path

import torch

from onelip.bench.runs.machine import machine_facts

GIB = 2**30

CARDS_GIB = (8, 12, 24, 40, 80)
"""Memory of common accelerators."""

CARD_OVERHEAD = 1 * GIB
"""Left free on a card for the CUDA context, scratch space and fragmentation: an allowance, not a measurement."""

_SCRATCH_FACTOR = 1.2


def smallest_card(needed: int) -> int | None:
    """Smallest card (in GiB) that holds so many bytes beside the overhead, or None."""
    return next((card for card in CARDS_GIB if needed + CARD_OVERHEAD <= card * GIB), None)


def fits(needed: int, available: int) -> bool:
    """Whether a real run may be tried: kernels use scratch space of their own beside the predicted tensors."""
    return needed * _SCRATCH_FACTOR <= available


def available_memory(device: torch.device | None = None) -> int:
    """Bytes that a run could use now: free memory of the card, or available memory of the machine or container."""
    if device is not None and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    limit = machine_facts()["memory_bytes"]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not Linux
        return limit
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return min(kilobytes * 1024, limit)
