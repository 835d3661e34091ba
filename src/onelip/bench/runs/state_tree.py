"""Nested training state to flat named tensors plus a JSON skeleton, and back.

`optimizer.state_dict()` and its like are trees of dicts (with text or integer keys), lists, tuples, scalars
and tensors. safetensors holds named tensors only, so the tree is written down as tagged JSON whose leaves are
scalars or names of tensors. Nothing in it can run code, which is why this replaces pickle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onelip.errors import InvalidInputError

if TYPE_CHECKING:
    import torch


def flatten_state(state: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """Tensors by name ("optimizer/state/0/momentum_buffer") and the skeleton that `restore_state` needs.

    The tensors are contiguous, on the CPU and share no memory: a tied weight is written twice.
    """
    tensors: dict[str, torch.Tensor] = {}
    skeleton = _flatten(state, "", tensors)
    return _separated(tensors), skeleton


def restore_state(skeleton: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The tree that `flatten_state` took apart; ValueError or KeyError if the two do not fit."""
    if not isinstance(skeleton, dict):
        return skeleton
    ((tag, content),) = skeleton.items()
    if tag == "tensor":
        return tensors[content]
    if tag == "dict":
        return {key: restore_state(item, tensors) for key, item in content}
    if tag in ("list", "tuple"):
        items = [restore_state(item, tensors) for item in content]
        return items if tag == "list" else tuple(items)
    raise ValueError(f"unknown tag {tag!r}")


def _flatten(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        if name in tensors:
            raise InvalidInputError(f"two tensors of the checkpoint would have the name {name!r}")
        tensors[name] = value
        return {"tensor": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {"dict": [[_key(k, name), _flatten(v, _join(name, k), tensors)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [_flatten(item, _join(name, index), tensors) for index, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    raise InvalidInputError(
        f"{name or 'state'} is a {type(value).__name__}, which a checkpoint cannot hold; allowed: tensor, None, "
        "bool, int, float, str, list, tuple, dict"
    )


def _join(name: str, key: Any) -> str:
    return f"{name}/{key}" if name else str(key)


def _key(key: Any, name: str) -> str | int:
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise InvalidInputError(f"{name or 'state'} has the key {key!r}; keys must be text or whole numbers")
    return key


def _separated(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    storages: set[int] = set()
    separated = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        address = plain.untyped_storage().data_ptr()
        if address in storages:
            plain = plain.clone()
        storages.add(address)
        separated[name] = plain
    return separated
