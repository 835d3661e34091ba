"""All that a change of a model could be seen by: its modules, their attributes and hooks, its weights.

Weights are compared number by number, so that writes through `.data` and NumPy are seen. Attributes are those of
modules of the user's own and of their classes, with what their functions hold: see `snapshots`. Such a module may keep
what it computes for the shape at hand (a mask, a table of positions): attributes that were None or not there may
appear, and tensors may change their shape. Whatever else changes is state, and a model with state is another function
at every call.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as module_internals

from onelip.certification.snapshots import is_known, numbers_held, same, same_numbers, snapshot

_TORCHS_OWN = frozenset(vars(nn.Module()))
_BOOKKEEPING = ("_bias_version",)  # no pass computes with it: a layer warns by it when evaluation mode is trained


class Fingerprint:
    """A model as it was."""

    def __init__(self, model: nn.Module) -> None:
        self._structure = _structure(model)
        self._tensors = [tensor.detach().clone() for tensor in _tensors(model)]
        self._attributes = _attributes(model)

    def matches(self, model: nn.Module, strictly: bool = False) -> bool:
        """Whether the model is as it was; strictly, what is kept for the shape at hand included."""
        equal = _structure(model) == self._structure and all(map(same_numbers, self._tensors, _tensors(model)))
        return equal and not self.changed_attributes(model, strictly)

    def changed_attributes(self, model: nn.Module, strictly: bool = False) -> list[str]:
        """Which attributes of the user's own modules are not what they were."""
        old, now = self._attributes, _attributes(model)
        added = [name for name in now if name not in old] if strictly else []
        return [name for name in old if name not in now or not same(old[name], now[name], strictly)] + added


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _structure(model: nn.Module) -> list[Any]:
    hooks = module_internals._global_forward_hooks, module_internals._global_forward_pre_hooks
    found: list[Any] = [tuple(map(len, hooks)), [tuple(t.shape) for t in _tensors(model)]]
    for name, module in model.named_modules(remove_duplicate=False):
        plain = {
            key: value
            for key, value in vars(module).items()
            if isinstance(value, int | float | str | tuple) and key not in _BOOKKEEPING
        }
        own = tuple(key for key in vars(module) if key in ("forward", "_call_impl", "_conv_forward"))
        counts = len(module._forward_hooks), len(module._forward_pre_hooks)
        found.append((name, id(module), type(module), counts, own, plain if is_known(type(module)) else None))
    return found


def _attributes(model: nn.Module) -> dict[str, Any]:
    """What the user's own modules and their classes hold beside modules, parameters and buffers, by name."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        found |= {f"{name} (hook {index})": numbers_held(hook) for index, hook in enumerate(hooks)}
        if is_known(type(module)):
            continue
        for key, value in vars(module).items():
            if key not in _TORCHS_OWN:
                found[f"{name}.{key}" if name else key] = snapshot(value)
        for cls in type(module).__mro__:
            if not is_known(cls):
                found |= {f"{cls.__name__}.{key}": snapshot(value) for key, value in vars(cls).items()}
    return found
