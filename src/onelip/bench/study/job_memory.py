"""Memory that jobs need, predicted before anything runs."""

from __future__ import annotations

import functools
from typing import Literal

from onelip.bench.measurement import PREDICTED, PREDICTED_ON_GPU, Measurement, measure
from onelip.bench.published.predicted_costs import predicted_training_memory
from onelip.bench.runs import NetworkSpec
from onelip.bench.study.job_base import Job
from onelip.protocol import REFERENCE

_SHIPPED_BATCH = 256


def predicted_bytes(job: Job) -> int | None:
    """Peak of live tensors in training; None for jobs that run no network."""
    if not job.uses_device or job.network.method == REFERENCE:
        return None
    return _training_bytes(job.network, int(job.details["batch_size"]), "cpu" if job.device == "cpu" else "gpu")


@functools.cache
def _training_bytes(network: NetworkSpec, batch_size: int, place: Literal["cpu", "gpu"]) -> int:
    """From the shipped table for the paper's networks, else by the account of `onelip measure memory --predict`."""
    if (
        batch_size == _SHIPPED_BATCH
        and network.size is not None
        and network == NetworkSpec(method=network.method, size=network.size, dataset=network.dataset)
    ):
        shipped = predicted_training_memory(place).get((network.method, network.size, network.data.image_size))
        if shipped is not None:
            return shipped
    device = PREDICTED if place == "cpu" else PREDICTED_ON_GPU
    return measure(Measurement("memory", network, batch_size, device))["training"]
