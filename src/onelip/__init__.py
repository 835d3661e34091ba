"""onelip: 1-Lipschitz layers for PyTorch, and certificates that hold.

This package needs torch, numpy and safetensors. `onelip.bench`, with the command line, is the benchmark that compares
the layers; it comes with the extra `bench`.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from onelip.version import __version__ as __version__

if TYPE_CHECKING:
    from onelip.public import *  # noqa: F403 - the public names, for type checkers

    __all__: list[str]
else:

    def __getattr__(name: str) -> Any:
        """Import what a public name stands for when it is first used: `onelip --help` need not wait for torch."""
        if name == "__all__":
            names = vars(importlib.import_module("onelip.public"))
            value = sorted(key for key in names if key == "__version__" or not key.startswith("_"))
        elif name.startswith("__"):  # asked for by import machinery and debuggers
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        elif importlib.util.find_spec(f"{__name__}.{name}"):
            value = importlib.import_module(f"{__name__}.{name}")
        else:
            public = importlib.import_module("onelip.public")
            if not hasattr(public, name):
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            value = getattr(public, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __getattr__("__all__")
