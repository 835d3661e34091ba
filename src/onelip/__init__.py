"""onelip: 1-Lipschitz layers for PyTorch, certificates that hold, and the benchmark that compares them.

The public names below are imported on first use, so that `import onelip` by itself costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onelip import layers, losses, models
    from onelip.certification import (
        Normalise,
        Residual,
        UnknownLipschitzConstant,
        certified_accuracy,
        certify,
        lipschitz_bound,
        lipschitz_table,
    )
    from onelip.checkpoints import load_model, save_model
    from onelip.errors import InvalidInputError, OnelipError
    from onelip.fusing import fuse
    from onelip.layers import create_conv, create_linear, get_method, list_methods
    from onelip.losses import MultiMargin, OffsetCrossEntropy
    from onelip.models import ConvNet, create

__version__ = "0.1.0"

_SUBMODULES = ("layers", "losses", "models")
_HOMES = {
    "ConvNet": "onelip.models",
    "InvalidInputError": "onelip.errors",
    "MultiMargin": "onelip.losses",
    "Normalise": "onelip.certification",
    "OffsetCrossEntropy": "onelip.losses",
    "OnelipError": "onelip.errors",
    "Residual": "onelip.certification",
    "UnknownLipschitzConstant": "onelip.certification",
    "certified_accuracy": "onelip.certification",
    "certify": "onelip.certification",
    "create": "onelip.models",
    "create_conv": "onelip.layers",
    "create_linear": "onelip.layers",
    "fuse": "onelip.fusing",
    "get_method": "onelip.layers",
    "lipschitz_bound": "onelip.certification",
    "lipschitz_table": "onelip.certification",
    "list_methods": "onelip.layers",
    "load_model": "onelip.checkpoints",
    "save_model": "onelip.checkpoints",
}

__all__ = [
    "ConvNet",
    "InvalidInputError",
    "MultiMargin",
    "Normalise",
    "OffsetCrossEntropy",
    "OnelipError",
    "Residual",
    "UnknownLipschitzConstant",
    "__version__",
    "certified_accuracy",
    "certify",
    "create",
    "create_conv",
    "create_linear",
    "fuse",
    "get_method",
    "layers",
    "lipschitz_bound",
    "lipschitz_table",
    "list_methods",
    "load_model",
    "losses",
    "models",
    "save_model",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"onelip.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'onelip' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
