"""What a GPU would launch kernels for, counted without one, on tensors without numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_FREE = (
    *("view", "expand", "permute", "transpose", "t.default", "slice", "select", "unsqueeze", "squeeze", "as_strided"),
    *("detach", "alias", "split", "unbind", "empty", "diagonal", "lift_fresh", "_conj", "real.default", "narrow"),
)


class Launches(TorchDispatchMode):
    """Counts operations by name: views and allocations are free, everything else is at least one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        if not name.startswith(_FREE):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))
