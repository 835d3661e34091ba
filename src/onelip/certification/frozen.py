"""A model as it is deployed, with every weight pinned: what is proven is what is evaluated.

The copy computes what the model computes in evaluation mode. Parametrizations (weight_norm, spectral_norm, orthogonal)
are evaluated once, in the type of the model, and the transformed parameters of onelip's layers are copied from the
layers themselves. Wrappers that only distribute or compile a model are taken off.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize, remove_spectral_norm, remove_weight_norm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.layers.layer import LipschitzLayer

_WRAPPERS = {"DataParallel": "module", "DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}
PLAIN_TENSORS = (Tensor, nn.Parameter, nn.Buffer)
"""Types that compute as torch does; a subclass may do anything."""


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside DataParallel, DistributedDataParallel and torch.compile."""
    while type(model).__name__ in _WRAPPERS and type(model).__module__.startswith("torch."):
        model = getattr(model, _WRAPPERS[type(model).__name__])
    return model


def evaluation_model(model: nn.Module) -> nn.Module:
    """The model itself if it is in evaluation mode throughout, else a copy that is.

    Certificates speak of what a model computes in evaluation mode, and never change the mode of the caller's model.
    """
    model = unwrapped(model)
    check_model(model)
    return copied_model(model).eval() if any(module.training for module in model.modules()) else model


def check_model(model: Any) -> None:
    """A module whose weights are there."""
    if not isinstance(model, nn.Module):
        raise InvalidInputError(
            f"the model must be a torch.nn.Module, got a {type(model).__name__}: call it in the forward of one"
        )
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise InvalidInputError(f"{name!r} has no shape yet: call the model on a batch before it is certified")
        if tensor.is_meta:
            raise InvalidInputError(f"{name!r} has no numbers (it is on the device meta): load the weights first")


def frozen_copy(model: nn.Module) -> nn.Module:
    """A copy of a model in evaluation mode that does not change when the model does."""
    _check_tensors(model)
    frozen = copied_model(model)
    for (name, source), (_, layer) in zip(
        list(model.named_modules(remove_duplicate=False)),
        list(frozen.named_modules(remove_duplicate=False)),
        strict=True,
    ):
        if isinstance(source, LipschitzLayer):
            layer.operator = Pinned(source)  # pyright: ignore - an instance's own, in place of the method
        elif name and unwrapped(layer) is not layer:
            frozen.set_submodule(name, unwrapped(layer))
    for module in frozen.modules():
        _evaluate_parametrizations(module)
        vars(module).pop("_compiled_call_impl", None)
        module._backward_hooks.clear()
        module._backward_pre_hooks.clear()
    for tensor in (*frozen.parameters(), *frozen.buffers()):
        frozen.to(proof_device(tensor.device))
        break
    return frozen.requires_grad_(False)


def proof_device(device: torch.device) -> torch.device:
    """Where models of this device are traced and proven: XLA's largest entries of whole tensors are no numbers.

    Scores of the program on its own device are compared with the traced ones all the same.
    """
    return torch.device("cpu") if device.type == "xla" else device


class Pinned:
    """The transformed parameters of a layer, as they were when they were first asked for."""

    def __init__(self, source: LipschitzLayer) -> None:
        self._source, self._kept = source, dict[Any, Any]()

    def __call__(self, input_size: Any = None) -> Any:
        """As `LipschitzLayer.operator`."""
        key = self._source.core_size(input_size)
        if key not in self._kept:
            with torch.no_grad():
                found = self._source.operator(input_size)
            self._kept[key] = found.map(lambda tensor: tensor.detach().clone().to(proof_device(tensor.device)))
        return self._kept[key]

    def __deepcopy__(self, memo: Any) -> Pinned:
        return self


def copied_model(model: nn.Module) -> nn.Module:
    """A deep copy; weights that are computed by hooks are no leaves of autograd, and are copied as numbers."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, when exported programs are copied
            return copy.deepcopy(model, memo)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise InvalidInputError(f"the model cannot be copied: {error}") from error


def _check_tensors(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise UnknownLipschitzConstant(
                f"the Lipschitz constant of {name or 'the model'!r} is not known: torch.jit compiled it, so that it "
                "cannot be looked into; certify the module that it was made from"
            )
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if type(tensor) not in PLAIN_TENSORS:
            raise UnknownLipschitzConstant(
                f"the Lipschitz constant of {name!r} is not known: it is a {type(tensor).__name__}, a subclass of "
                "Tensor that may compute anything; use plain tensors"
            )


def _evaluate_parametrizations(module: nn.Module) -> None:
    """Weights that are computed from others become numbers."""
    if parametrize.is_parametrized(module):
        parametrizations: Any = module.parametrizations
        with torch.no_grad():
            values = {name: getattr(module, name).detach().clone() for name in parametrizations}
        # By hand: torch's own removal works on the class, which the copy shares with the model.
        del module._modules["parametrizations"]
        module.__class__ = parametrize.type_before_parametrizations(module)
        for name, value in values.items():
            module.register_parameter(name, nn.Parameter(value, requires_grad=False))
    hooks: list[Any] = list(module._forward_pre_hooks.values())
    for hook in hooks:
        if type(hook) is WeightNorm:
            remove_weight_norm(module, hook.name)
        elif type(hook) is SpectralNorm:
            remove_spectral_norm(module, hook.name)


def check_surroundings() -> None:
    """Modes that change what every function of torch computes would change proofs too."""
    modes = torch.overrides._get_current_function_mode_stack()
    foreign = [mode for mode in modes if type(mode).__name__ != "DeviceContext"]
    if foreign or torch._C._len_torch_dispatch_stack():
        name = type(foreign[-1]).__name__ if foreign else "a dispatch mode"
        raise InvalidInputError(f"{name} is active and may change every operation: certify outside of it")
