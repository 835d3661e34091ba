"""Running a network without memory: fake tensors know shapes, types, strides and sharing of storage, not values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from onelip.errors import OnelipError


class NotPredictableError(OnelipError):
    """An operator gives no result without values, so nothing about the network can be predicted."""


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Context in which every new tensor is fake: a network of any size takes no memory and no time to compute.

    Kernels that are missing for fake tensors would silently be run on real zeros by torch; that is switched off,
    and such an operator is reported by name.
    """
    try:
        with FakeTensorMode(allow_fallback_kernels=False):
            yield
    except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException) as error:
        raise NotPredictableError(f"{error.func} cannot run on fake tensors") from error
