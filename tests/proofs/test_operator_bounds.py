"""Every operator that a layer can deploy has a bound of its own, by its type."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
import torch

import onelip.bench.paper.settings
import onelip.fast
import onelip.layers
from onelip.errors import InvalidInputError
from onelip.layers.operators import _BOUNDS, FirstRows, Operator, TrainingOperator


def _operators(kind: type[Operator] = Operator) -> Iterator[type[Operator]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("onelip."):
            yield child
        yield from _operators(child)


def test_every_operator_with_an_apply_has_a_bound_of_its_own() -> None:
    for package in (onelip.layers, onelip.fast):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    found = set(_operators())
    deployed = {kind for kind in found if "apply" in vars(kind) and not issubclass(kind, TrainingOperator)}
    assert len(deployed) > 10
    assert deployed - set(_BOUNDS) == set()
    assert {kind for kind in found if "bound" in vars(kind)} == {TrainingOperator}
    assert onelip.bench.paper.settings.Unproven in deployed  # also those that say why there is none


def test_an_operator_of_training_has_none() -> None:
    with pytest.raises(InvalidInputError, match="operator of training"):
        FirstRows(torch.eye(3)).bound((3,), None)
