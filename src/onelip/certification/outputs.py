"""Models that return something else than a tensor of scores: which part of it is certified.

`certify(model, x, output="logits")` reads an attribute, a key or a place in a tuple, or calls a function with what the
model returns. `certify(model, x, threshold=0.0)` is for models of one number z: the classes are z <= threshold and
z > threshold, and the radius is |z - threshold| / L.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from onelip.errors import InvalidInputError

Output = str | int | Callable[[Any], Any]


class _Selected(nn.Module):
    """A model, and which part of what it returns counts."""

    def __init__(self, model: nn.Module, output: Output | None, threshold: float | None) -> None:
        super().__init__()
        self.model, self.output, self.threshold = model, output, threshold
        if hasattr(model, "input_shape"):
            self.input_shape = model.input_shape

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Scores."""
        found = self.model(*args, **kwargs)
        if self.output is not None:
            found = _part(found, self.output)
        if self.threshold is None:
            return found
        if found.dim() > 2 or (found.dim() == 2 and found.shape[1] != 1):
            raise InvalidInputError(f"threshold is for models of one number for each input, got {tuple(found.shape)}")
        half = (found.reshape(len(found), 1) - self.threshold) * 0.5
        return torch.cat([-half, half], 1)


def _part(found: Any, output: Output) -> Any:
    if callable(output):
        return output(found)
    if isinstance(found, Mapping) and output in found:
        return found[output]
    if isinstance(output, int) and isinstance(found, tuple | list) and -len(found) <= output < len(found):
        return found[output]
    if isinstance(output, str) and hasattr(found, output):
        return getattr(found, output)
    names = list(found) if isinstance(found, Mapping) else f"a {type(found).__name__}"
    raise InvalidInputError(f"output={output!r} is not in what the model returns ({names})")


def with_output(model: nn.Module, output: Output | None, threshold: float | None) -> nn.Module:
    """The model with one tensor of scores as its output."""
    if output is None and threshold is None:
        return model
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"expected a torch.nn.Module, got a {type(model).__name__}")
    return _Selected(model, output, threshold).train(model.training)
