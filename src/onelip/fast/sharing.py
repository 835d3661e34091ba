"""One parameter transformation for all micro-batches of a step.

With the transformation T, micro-batches i and their losses l_i, the gradient of a step is
sum_i T'(w)^* grad l_i(T(w)) = T'(w)^* sum_i grad l_i(T(w)). Inside the block T(w), made once, is a leaf, at which the
micro-batches leave their gradients; at its end their sum goes through the transformation once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.parallel import DistributedDataParallel

from onelip.errors import InvalidInputError
from onelip.layers.contract import Request
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operator_sources import serving
from onelip.layers.operators import Operator
from onelip.layers.snapshot import Snapshot
from onelip.linalg.tensor_modes import may_cache_tensors, no_autocast, wants_plain_operations


class SharedOperators:
    """The source of one layer inside a block: the operators that all passes use, by what they were made for."""

    def __init__(self, layer: LipschitzLayer) -> None:
        self.layer = layer
        self.pairs: list[tuple[Tensor, Tensor]] = []
        """Results of transformations, and the leaves that stand for them."""
        self._is_open = True
        self._parameters = self._current_parameters()
        self._operators: dict[Request, Operator] = {}
        self._snapshot: Snapshot | None = None

    def _current_parameters(self) -> list[nn.Parameter]:
        return [parameter for name, parameter in self.layer.named_parameters(recurse=False) if name != "bias"]

    def __call__(self, layer: LipschitzLayer, request: Request, make: Callable[[Request], Operator]) -> Operator:
        """The operator of the block, made by the first pass with gradients.

        Passes that are traced, or have other tensors in the place of the parameters, get one of their own.
        """
        if wants_plain_operations() or not may_cache_tensors() or not self._has_same_parameters():
            return make(request)
        if request in self._operators:
            self.check()
            return self._operators[request]
        with saved_tensors_hooks(_as_it_is, _as_it_is):  # torch.utils.checkpoint would wait for it in every pass
            operator = make(request)
        if any(_is_computed(tensor) for tensor in operator.tensors().values()):
            operator = self._operators[request] = operator.map(self._leaf)
            self._snapshot = self._snapshot or Snapshot(self._parameters)
        return operator

    def _has_same_parameters(self) -> bool:
        here = self._current_parameters()
        return [id(parameter) for parameter in here] == [id(parameter) for parameter in self._parameters]

    def _leaf(self, tensor: Tensor) -> Tensor:
        if not _is_computed(tensor):
            return tensor
        leaf = tensor.detach().requires_grad_()
        leaf.register_hook(self._refuse_late_gradients)
        self.pairs.append((tensor, leaf))
        return leaf

    def _refuse_late_gradients(self, gradient: Tensor) -> None:
        if not self._is_open:
            raise InvalidInputError(
                "backward() after the shared_transforms block of its forward pass: call it inside of the block"
            )

    def close(self) -> None:
        """Forget everything; the leaves, which graphs may still hold, know that it is too late for them."""
        self._is_open, self._snapshot = False, None
        self.pairs.clear()
        self._operators.clear()

    def check(self) -> None:
        """Refuse to go on with the operators of parameters that have changed."""
        if self._snapshot is not None and not self._snapshot.is_current(self._current_parameters()):
            raise InvalidInputError(
                f"the parameters of a {type(self.layer).__name__} changed inside of shared_transforms: "
                "take the optimiser's step, or load weights, after the block"
            )


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def _is_computed(tensor: Tensor) -> bool:
    """Whether gradients go through a transformation: a weight that is applied as it is gets its own."""
    return tensor.requires_grad and not tensor.is_leaf


@contextmanager
def shared_transforms(model: nn.Module) -> Iterator[None]:
    """Transform the parameters of a model in training once for all passes inside the block, as of a step in parts.

        with onelip.shared_transforms(model):
            for images, labels in micro_batches:
                (loss(model(images), labels) / len(micro_batches)).backward()
        optimizer.step()

    The gradients of constrained weights arrive at the end of the block, as the sum of those of all passes up to
    rounding; inside, `torch.autograd.grad` finds these weights unused. So whatever uses or clears gradients stands
    around the block: unscaling, clipping, the step, `zero_grad`. Estimates with a state (CPL) move on once. If the
    block is left by an exception, all gradients of the model are those from before it.

    Refused are backward() after the block, weights that change inside, a block within a block for the same layers, and
    models that are compiled or sharded by FSDP2. DDP waits for the gradients of all parameters: it wants `no_sync` in
    all passes but the last, and neither `find_unused_parameters` nor `static_graph`. Passes under `torch.func`, and
    those of `functional_call` with other tensors in place of the parameters, transform for themselves.

    Examples:
        >>> import torch, onelip
        >>> model = onelip.create_linear("bcop", 8, 3)
        >>> with onelip.shared_transforms(model):
        ...     for x in torch.randn(4, 16, 8):
        ...         model(x).square().mean().backward()
        >>> model.weight.grad is None
        False
    """
    shared = _shared_operators(model)
    before = [(p, None if p.grad is None else p.grad.clone()) for p in model.parameters()]
    done = False
    try:
        with ExitStack() as blocks:
            for each in shared:
                blocks.enter_context(serving([each.layer], each))
            yield
        _pass_on(shared)
        done = True
    finally:
        for each in shared:
            each.close()
        for parameter, gradient in [] if done else before:
            parameter.grad = gradient


def _shared_operators(model: nn.Module) -> list[SharedOperators]:
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"shared_transforms takes a torch.nn.Module, not {type(model).__name__}")
    modules = list(model.modules())
    if any(base.__name__ == "FSDPModule" for m in modules for base in type(m).__mro__):  # its import takes seconds
        raise InvalidInputError("shared_transforms takes models that are not sharded: parameters of FSDP2 come and go")
    if any(type(m).__name__ == "OptimizedModule" or m._compiled_call_impl is not None for m in modules):
        raise InvalidInputError("shared_transforms takes models that are not compiled: compiled passes transform alone")
    if any(isinstance(m, DistributedDataParallel) and (m.find_unused_parameters or m.static_graph) for m in modules):
        raise InvalidInputError("shared_transforms takes DDP without find_unused_parameters and static_graph")
    layers = [module for module in modules if isinstance(module, LipschitzLayer)]
    if any(isinstance(source, SharedOperators) for layer in layers for source in layer.sources):
        raise InvalidInputError("shared_transforms inside of shared_transforms, for the same layers")
    return [SharedOperators(layer) for layer in layers]


def _pass_on(shared: Sequence[SharedOperators]) -> None:
    """Let the gradients that have come together go through the transformations, all at once: some are batches."""
    for each in shared:
        each.check()
    pairs = [(result, leaf.grad) for each in shared for result, leaf in each.pairs if leaf.grad is not None]
    if pairs:
        results, gradients = zip(*pairs, strict=True)
        with no_autocast(results[0].device.type):
            torch.autograd.backward(results, gradients)
