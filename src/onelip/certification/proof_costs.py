"""What an expensive proof will cost, said before it starts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import fields

from torch import Tensor, nn

from onelip.certification.graph import CallSite, Shape
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.fused import FusedLayer
from onelip.layers.linear import LipschitzLinear
from onelip.layers.operators import Kernel, Operator
from onelip.layers.volume_kernel import VolumeKernel
from onelip.proofs.proof_cost import ProofCost, convolution_proof_cost, norm_proof_cost
from onelip.proofs.proven_convolution import same_convolution_of, volume_as_images

_SECONDS = 60.0
"""Proofs that take longer than this are announced: square matrices of some 6,000 features and more."""

_OPERATIONS_PER_SECOND = 2e10
"""Of one core in float64, roughly."""


def announce(place: CallSite, cost: ProofCost) -> None:
    """Warn of a proof that takes minutes and gigabytes."""
    seconds = cost.operations / _OPERATIONS_PER_SECOND
    if seconds >= _SECONDS:
        warnings.warn(
            f"proving the norm of {place.words()} takes about {cost.memory / 1e9:.2g} GB and {seconds / 60:.2g} "
            "minutes on one core, once for each model",
            stacklevel=2,
        )


def layer_proof_cost(module: nn.Module, shape: Shape) -> ProofCost:
    """Cost of `module.bound(shape)` for onelip's layers and fused forms; nothing for modules without weights."""
    image = tuple(shape[1:]) if len(shape) >= 3 else (1, 1)
    if isinstance(module, LipschitzConv2d):
        size = module.convolution_geometry.image(shape)
        transformed, image = module.deployed(size), module.core_size(size) or size
    elif isinstance(module, LipschitzLinear):
        transformed = module.deployed()
    elif isinstance(module, FusedLayer):
        transformed = module.operator()
    else:
        return ProofCost(0, 0)
    costs = list(_costs(transformed, image))
    return ProofCost(max((cost.memory for cost in costs), default=0), sum(cost.operations for cost in costs))


def _costs(transformed: Operator, image: tuple[int, ...]) -> Iterator[ProofCost]:
    """One for each tensor: a kernel is proven at every frequency, all else is one matrix or a batch of them."""
    if isinstance(transformed, Kernel):
        size = image[-2], image[-1]
        yield convolution_proof_cost(same_convolution_of(transformed.kernel, transformed.padding_mode), size)
        return
    if isinstance(transformed, VolumeKernel):
        parts = transformed.stride, transformed.dilation, transformed.padding
        yield convolution_proof_cost(*volume_as_images(transformed.kernel, image, *parts, groups=1))
        return
    for field in fields(transformed):
        value = getattr(transformed, field.name)
        if isinstance(value, Operator):
            yield from _costs(value, image)
        elif isinstance(value, Tensor) and value.dim() >= 2:
            yield norm_proof_cost(value.shape)
