"""Memory that jobs need, predicted before anything runs."""

from __future__ import annotations

import functools

import torch

from onelip.bench.measurement.memory import measure_memory
from onelip.bench.measurement.meta_tensors import without_memory
from onelip.bench.report.cost_table import predicted_costs
from onelip.bench.runs import NetworkSpec
from onelip.bench.study.jobs import Job
from onelip.bench.study.measuring import MeasureJob
from onelip.bench.study.searching import SearchJob
from onelip.bench.study.training import TrainJob
from onelip.models import ConvNet
from onelip.models.config import ConvNetConfig

_SHIPPED_BATCH = 256


def predicted_bytes(job: Job) -> int | None:
    """Peak of live tensors in training; None for a count, which needs none, and for the reference's measurements."""
    if isinstance(job, TrainJob):
        return _training_bytes(job.network, job.config.settings.batch_size)
    if isinstance(job, SearchJob):
        return _training_bytes(job.network, job.config.base.settings.batch_size)
    assert isinstance(job, MeasureJob)
    measurement = job.measurement
    if measurement.quantity != "time":
        return None
    return _training_bytes(job.network, measurement.batch_size)


def _training_bytes(network: NetworkSpec, batch_size: int) -> int:
    shipped = None
    if batch_size == _SHIPPED_BATCH and network.kernel_size == 3 and network.size is not None:
        shipped = predicted_costs().get((network.method, network.size, network.data.image_size))
    return _predicted(network.config, batch_size) if shipped is None else shipped.training_bytes


@functools.cache
def _predicted(network: ConvNetConfig, batch_size: int) -> int:
    """The account of `onelip measure memory --predict` for any network, not only those of the paper."""
    with without_memory():
        model = ConvNet.from_config(network)
        x = torch.rand(batch_size, *model.input_shape)
        labels = torch.randint(network.num_classes, (batch_size,))
        return measure_memory(model, x, labels).training
