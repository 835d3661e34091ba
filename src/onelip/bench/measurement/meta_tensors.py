"""Running a network without memory: meta tensors know shapes, types, strides and sharing of storage, not values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from onelip.errors import OnelipError


class NotPredictableError(OnelipError):
    """An operator gives no result without values, so nothing about the network can be predicted."""


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Context in which every new tensor has no data: a network of any size takes no memory and no time to compute.

    (`FakeTensorMode` gives the same account, but imitates the devices of tensors too, at ten times the cost.) An
    operator that needs values or has no kernel for meta tensors is reported by torch's own message, which names it.
    """
    try:
        with torch.device("meta"):
            yield
    except NotImplementedError as error:
        raise NotPredictableError(f"cannot run without values: {' '.join(str(error).split())}") from error
