"""Settings of the whole test suite."""

from __future__ import annotations

import own_home  # before anything that looks for the home folder

# isort: split

import importlib.util
import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch

pytest.register_assert_rewrite("layer_contract")

# Virtual machines tend to announce AMX and not to have it: a bfloat16 product then kills the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _real_home_is_left_alone() -> Iterator[None]:
    yield
    found, own_home.touched[:] = own_home.touched[:], []
    assert not found, f"the real home folder was used: {found}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("ray") is not None and importlib.util.find_spec("ray") is None:
        pytest.skip('needs the extra "ray"')
