"""Modules that are one node of the graph: those with a bound of their own, and those whose user declares a constant.

A bound belongs to what a class *computes*: it is used while nothing that computes is replaced. A subclass with a
`forward` of its own, or a module with hooks, is entered by the tracer instead, which finds out what runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onelip.certification.fingerprint import Fingerprint
from onelip.certification.graph import AffineHead, CallSite, Shape
from onelip.certification.proof_costs import announce, layer_proof_cost
from onelip.errors import UnknownLipschitzConstant
from onelip.layers.blocks.reshape import FirstChannels, ZeroChannelPad, ZeroSpatialPad
from onelip.layers.layer import LipschitzLayer
from onelip.layers.linear import LipschitzLinear
from onelip.layers.operators import Matrix
from onelip.linalg.fourier import Size
from onelip.proofs.bounded import BoundedModule, replaced_method
from onelip.proofs.layer_bound import LayerBound, relative_bound
from onelip.proofs.linear_bounds import convolution_bound
from onelip.proofs.measured_rounding import Product, measured
from onelip.proofs.proven_convolution import Convolution

_ENTERED = (FirstChannels, ZeroChannelPad, ZeroSpatialPad, nn.Sequential)
"""Modules that are better looked into: which entries they move where is known to the graph then."""

_COMPUTE = ("forward", "_conv_forward", "__call__", "_call_impl")
"""What an instance of a convolution of torch's may replace."""

_DECLARATIONS = ("lipschitz_constant", "lipschitz_bound")


@dataclass(eq=False)
class Leaf:
    """A module, how its bound is found, and the module in float64 with exactly the numbers that are deployed."""

    module: nn.Module
    prove: Callable[[Shape], LayerBound]
    run: Callable[[Tensor], Any]


class Proofs:
    """What has been proven about the modules and weights of one model, each proof kept with its weights."""

    def __init__(self) -> None:
        self._leaves: dict[int, tuple[nn.Module, Leaf | None, Fingerprint | None]] = {}
        self._bounds: dict[tuple[int, Shape], tuple[LayerBound, AffineHead | None]] = {}
        self._kept: dict[Any, list[tuple[tuple[Tensor, ...], Any]]] = {}

    def leaf(self, module: nn.Module) -> Leaf | None:
        """The module as a leaf, or None if it has to be entered.

        Its bound is proven once, for what it is then. Code that changes weights while it runs, or replaces them as
        `torch.func.functional_call` does, or reaches a module that is not part of the model, may call it as another.
        """
        if id(module) not in self._leaves:
            found = _leaf_of(module)
            self._leaves[id(module)] = module, found, None if found is None else Fingerprint(module)
        _, leaf, as_proven = self._leaves[id(module)]
        if as_proven is not None and not as_proven.matches(module):
            raise UnknownLipschitzConstant(
                f"the Lipschitz constant of {type(module).__name__} is not known: its weights or attributes are not "
                "those that its bound was proven with; they must not change, or be replaced, while the model runs"
            )
        return leaf

    def leaf_bound(self, leaf: Leaf, shape: Shape, place: CallSite) -> tuple[LayerBound, AffineHead | None]:
        """What is proven about a leaf for inputs of this shape, and its rows if it is a matrix."""
        key = id(leaf.module), shape
        if key not in self._bounds:
            announce(place, layer_proof_cost(leaf.module, shape))
            try:
                bound = leaf.prove(shape)
            except UnknownLipschitzConstant as error:
                reason = str(error).partition("is not known: ")[2] or str(error)
                raise UnknownLipschitzConstant(
                    f"the Lipschitz constant of {place.words()} is not known: {reason}"
                ) from error
            self._bounds[key] = bound, _rows_of(leaf.module, shape)
        return self._bounds[key]

    def once(self, key: Any, weights: Sequence[Tensor], make: Callable[[], Any]) -> Any:
        """`make()`, or what it gave for the same key and equal weights."""
        found = self._kept.setdefault(key, [])
        for kept, result in found:
            if len(kept) == len(weights) and all(map(_same, kept, weights)):
                return result
        result = make()
        found.append((tuple(weight.detach().clone() for weight in weights), result))
        return result


def _same(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype and torch.equal(first, second)


def _leaf_of(module: Any) -> Leaf | None:
    if type(module) in _ENTERED:
        return None
    if isinstance(module, LipschitzLayer) and module.training:
        raise UnknownLipschitzConstant(
            f"the Lipschitz constant of {type(module).__name__} is not known: it is in training mode, its model not, "
            "perhaps because a plain list holds it; use nn.ModuleList, or call its eval()"
        )
    if declares(module):
        return Leaf(module, lambda shape: _declared_bound(module, shape), in_float64(module))
    if callable(getattr(type(module), "bound", None)) and replaced_method(module) is None:
        return Leaf(module, module.bound, in_float64(module))
    own = any(name in vars(module) for name in _COMPUTE)
    if type(module) in (nn.Conv1d, nn.Conv2d) and module.padding_mode != "zeros" and not own:
        return Leaf(module, lambda shape: _padded_convolution_bound(module, shape), in_float64(module))
    return None


def declares(module: nn.Module) -> bool:
    """Whether a user's class declares its constant. A subclass that computes something else must declare anew."""
    if isinstance(module, BoundedModule):
        return "lipschitz_constant" in vars(module)
    if any(name in vars(module) for name in _DECLARATIONS):
        return True
    owner = next((cls for cls in type(module).__mro__ if any(name in vars(cls) for name in _DECLARATIONS)), None)
    if owner is None or "forward" in vars(module):
        return False
    same = all(getattr(type(module), name) is getattr(owner, name) for name in ("forward", "_call_impl"))
    return same and getattr(type(module), "__call__") is getattr(owner, "__call__")  # noqa: B004, B009 - identity


def _declared_bound(module: Any, shape: Shape) -> LayerBound:
    """A user's declaration: the constant is believed, rounding is known only where `rounding_error` is declared too."""
    declared = getattr(module, "lipschitz_constant", None)
    constant = float(module.lipschitz_bound(shape) if declared is None else declared)
    if not constant >= 0:
        raise UnknownLipschitzConstant(f"it declares {constant}, which is no bound")
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    at_zero = in_float64(module)(torch.zeros((1, *shape), dtype=torch.float64, device=device))
    ulps = getattr(module, "rounding_error", None)
    # Twice the computed norm: far more than its own rounding.
    offset = 2 * float(torch.linalg.vector_norm(at_zero))
    if ulps is None:
        return LayerBound(constant, offset, None)
    return relative_bound(constant, float(ulps), at_zero.numel(), offset)


def in_float64(module: nn.Module) -> nn.Module:
    """A copy of a module in float64. A layer applies the tensors that were transformed in the model's own type."""
    twin = copy.deepcopy(module).double()
    for name, layer in list(module.named_modules(remove_duplicate=False)):
        if isinstance(layer, LipschitzLayer):
            _use_deployed(twin.get_submodule(name), layer)
    return twin


def _use_deployed(twin: Any, layer: LipschitzLayer) -> None:
    def operator(input_size: Any = None) -> Any:
        return layer.operator(input_size).map(torch.Tensor.double)

    twin.operator = operator


def _rows_of(module: nn.Module, shape: Shape) -> AffineHead | None:
    """The rows of a layer that is a matrix, applied to features."""
    if not isinstance(module, LipschitzLinear) or len(shape) != 1:
        return None
    transformed = module.deployed()
    if type(transformed) is not Matrix:
        return None
    matrix = transformed.matrix.detach().double()[: module.out_features, : module.in_features]
    bias = matrix.new_zeros(len(matrix)) if module.bias is None else module.bias.detach().double()
    return AffineHead(matrix, bias[: module.out_features])


def _padded_convolution_bound(module: Any, shape: tuple[int, ...]) -> LayerBound:
    """A convolution of torch's whose padding copies pixels, taken together with that padding.

    On the torus of the image itself a circular convolution has the norm of its largest frequency matrix, which is
    smaller than the padding's sqrt(copies) times the norm of the unpadded convolution.
    """
    rows, columns = padding_of(module)
    if isinstance(module, nn.Conv1d):
        kernel, size = module.weight[:, :, None], (1, shape[-1])
        stride, dilation = (1, module.stride[0]), (1, module.dilation[0])
    else:
        kernel, size = module.weight, (shape[-2], shape[-1])
        stride, dilation = (module.stride[0], module.stride[1]), (module.dilation[0], module.dilation[1])
    convolution = Convolution(kernel.detach(), stride, dilation, (rows, columns), module.padding_mode, module.groups)
    bound = convolution_bound(convolution, size, module.bias)
    return measured(bound, Product(module._conv_forward, module.weight, module.bias))


def padding_of(module: nn.Conv1d | nn.Conv2d) -> tuple[Size, Size]:
    """(before, after) for rows and columns; "same" puts the odd pixel of an even kernel after the image."""
    if isinstance(module.padding, str):
        totals = [
            d * (k - 1) if module.padding == "same" else 0
            for d, k in zip(module.dilation, module.kernel_size, strict=True)
        ]
        sides = [(total // 2, total - total // 2) for total in totals]
    else:
        sides = [(side, side) for side in module.padding]
    return (sides[0] if len(sides) == 2 else (0, 0)), sides[-1]
