"""The audit of operations against torch's own list in small: nothing is found, and careless bounds are."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from onelip.certification.graph import Node

FILE = Path(__file__).parents[2] / "benchmarks" / "operation_audit.py"
OPERATORS = (
    *("sub", "mul", "narrow", "slice", "cat", "amax"),
    *("nn.functional.elu", "nn.functional.softplus", "nn.functional.pad"),
    *("nn.functional.batch_norm", "nn.functional.linear", "nn.functional.avg_pool1d", "topk", "norm", "exp"),
)


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    specification = importlib.util.spec_from_file_location("operation_audit", FILE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["operation_audit"] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def chosen(audit: ModuleType) -> list[Any]:
    return [entry for entry in audit.operators() if entry.name in OPERATORS and not entry.variant_test_name]


def test_reading_the_list_changes_nothing_for_other_tests(chosen: list[Any]) -> None:
    """torch's own tests freeze the switches of the process, and set an environment variable."""
    assert chosen
    assert not torch.backends.flags_frozen()
    assert os.environ.get("TORCHINDUCTOR_CACHE_DIR", "").startswith(os.environ["HOME"])


@pytest.mark.filterwarnings("ignore")
def test_operators_of_torch_are_refused_or_held(audit: ModuleType, chosen: list[Any]) -> None:
    rows = [audit.examine(entry, 1) for entry in chosen]
    assert not [finding for row in rows for finding in row.findings]
    assert sum(row.counts["held"] for row in rows) > 2 * len(chosen)


@pytest.mark.filterwarnings("ignore")
def test_a_careless_bound_is_found(audit: ModuleType, chosen: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of every constant, and no rounding."""
    some = [entry for entry in chosen if entry.name in ("sub", "nn.functional.elu")]
    monkeypatch.setattr(Node, "rounds_nothing", True)
    assert all(audit.examine(entry, 1).findings for entry in some)
    monkeypatch.setattr(Node, "lipschitz", property(lambda self: 0.5, lambda self, value: None), raising=False)
    found = [finding for entry in some for finding in audit.examine(entry, 1).findings]
    assert any("Jacobian" in finding for finding in found)
