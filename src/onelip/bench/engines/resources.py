"""What a job asks of a cluster: GPUs, or a part of one, by its predicted memory."""

from __future__ import annotations

import math

from onelip.bench.study.job_base import Job
from onelip.bench.study.job_memory import predicted_bytes

_PARTS = 4
"""Most jobs that share a GPU."""

_CONTEXT_BYTES = 2**30
"""Of the CUDA context, scratch space and fragmentation, for each process on a GPU."""


def gpu_share(job: Job, card_gib: int | None = None, per_training: int = 1) -> float:
    """GPUs of a job: none if it only counts or reads, a part if it is small and its result does not depend on time.

    A time, and a training under a time budget, has its GPU for itself: shared, it would measure its neighbours. Without
    the size of the cards nothing is shared. Trainings that are split over `per_training` GPUs have all of them.
    """
    if job.device != "cuda" or not job.uses_device:
        return 0.0
    if job.trains and per_training > 1:
        return float(per_training)
    if job.runs_alone or job.details.get("budget") is not None or card_gib is None:
        return 1.0
    part = ((predicted_bytes(job) or 0) + _CONTEXT_BYTES) / (card_gib * 2**30)
    return min(1.0, math.ceil(_PARTS * part) / _PARTS)
