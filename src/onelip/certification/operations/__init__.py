"""The operations of torch that have a proven bound, and what is said about those that have none."""

from __future__ import annotations

import importlib
import pkgutil

from onelip.certification.operations.batch_elsewhere import with_batch_first
from onelip.certification.operations.refused import module_refusal, refusal
from onelip.certification.operations.registered import RuleError, find_inside, find_operation

__all__ = ["RuleError", "find_inside", "find_operation", "module_refusal", "refusal", "with_batch_first"]

for _module in pkgutil.iter_modules(__path__):  # each registers the operations that it knows
    importlib.import_module(f"{__name__}.{_module.name}")
