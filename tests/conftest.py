"""Settings of the whole test suite."""

from __future__ import annotations

import own_home  # before anything that looks for the home folder

# isort: split

import importlib.util
import os
import random
import secrets
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import torch

pytest.register_assert_rewrite("layer_contract")

# Virtual machines tend to announce AMX and not to have it: a bfloat16 product then kills the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# The same cases in every run, however slow the machine is.
hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")


_SEED = int(os.environ.get("TESTS_SEED", "0"))
"""What every test draws from: the same numbers in each run and in any order, unless another seed is asked for."""

_system = random.Random()
secrets.randbits = _system.getrandbits  # certificates draw the inputs that they try with seeds of the system's


def _seed() -> None:
    torch.manual_seed(_SEED)
    _system.seed(_SEED)


_seed()  # modules draw while they are collected


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    """Fixtures that several tests share do not depend on the test that asks for them first."""
    if fixturedef.scope != "function":
        _seed()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    _seed()


@pytest.fixture(autouse=True)
def _real_home_is_left_alone() -> Iterator[None]:
    yield
    found, own_home.touched[:] = own_home.touched[:], []
    assert not found, f"the real home folder was used: {found}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("ray") is not None and importlib.util.find_spec("ray") is None:
        pytest.skip('needs the extra "ray"')
