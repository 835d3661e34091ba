"""Everything that changes time or memory and nothing else: forms that stand in for the definitions of `onelip.linalg`.

    with onelip.fast.off():    # every layer computes by its definitions
        model(x)

`onelip.layers` finds this folder as it finds methods, and nothing imports it: with the folder deleted, every layer
computes the same.
"""

from __future__ import annotations

import importlib
import pkgutil

from onelip.fast.one_thread import by_one_thread
from onelip.fast.recompute import recomputed
from onelip.fast.stacking import stacked_by_core_size
from onelip.fast.table import Row, install
from onelip.layers.operator_sources import HOOKS
from onelip.linalg.tensor_modes import plain_operations as off

_MODULES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]

ROWS: tuple[Row, ...] = tuple(row for module in _MODULES for row in getattr(module, "ROWS", ()))
"""All forms, those of every file in this folder."""

install(ROWS)
HOOKS.around, HOOKS.together = (recomputed, by_one_thread), stacked_by_core_size

__all__ = ["ROWS", "Row", "off"]
