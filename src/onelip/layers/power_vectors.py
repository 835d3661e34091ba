"""Layers that divide by the norm of their weight: estimated in training, proven in evaluation.

A proven bound takes products of matrices at every frequency, an estimate from below products with vectors, which are
kept from step to step (`onelip.linalg.norm_estimates`). They are a buffer of fixed size, saved with the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from onelip.layers.base import LipschitzLayer
from onelip.layers.shapes import LipschitzConv2d, ParametrisedLayer
from onelip.layers.transformed import Transformed
from onelip.linalg.fourier import Size, half_width
from onelip.linalg.norm_estimates import estimate_kernel_norm, estimate_matrix_norm
from onelip.linalg.norms import conv_norm_bound, gram_norm_bound
from onelip.linalg.training_precision import may_approximate

WARM_UP = 5
"""Steps when weights are drawn, so that training starts from a fair estimate."""

GRAM_ITERATIONS = 7
"""The proven bound then exceeds the norm of a matrix of rank 64 by at most 1.6 %, in general by far less."""


class PowerVectors(ParametrisedLayer):
    """A layer with vectors by which training estimates the norm of its weight."""

    power_vectors: Tensor

    grid: Size = (1, 1)
    """Torus whose frequencies have vectors."""

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight, bias and vectors: one, or real and imaginary parts of one for each frequency."""
        super().create_parameters(bias, factory)
        shape: tuple[int, ...] = (self.core_in,)
        if isinstance(self, LipschitzConv2d):
            self.grid = self.coarse_torus
            shape = 2, self.grid[0], half_width(self.grid[1]), self.core_in
        self.register_buffer("power_vectors", torch.empty(shape, **factory))

    def transforms_alone(self, size: Size | None) -> bool:
        """Never: products with vectors are small, however wide the layer is."""
        return False

    def reset_parameters(self) -> None:
        """Draw new weights and bring the vectors in line with them."""
        super().reset_parameters()
        self.restart_states()

    def restart_states(self, steps: int = WARM_UP) -> None:
        """Vectors for weights that were drawn or written anew."""
        if self.power_vectors.device != self.weight.device:  # loaded weights may be assigned to a meta layer
            self.power_vectors = torch.empty_like(self.power_vectors, device=self.weight.device)
        nn.init.normal_(self.power_vectors)
        size = self.grid if self.size_dependent else None
        for _ in range(0 if self.weight.is_meta else steps):
            with torch.no_grad(), self.in_mode(True):
                transformed = self.transform_given(self.tensors_to_transform(), size, cheapest_form=False)
                self.keep_states([self], [transformed])

    def keep_states(self, layers: Sequence[LipschitzLayer], transformed: Sequence[Transformed]) -> None:
        """The vectors move on, those of all layers in one go."""
        moved = [operator.tensors().get("state") for operator in transformed]
        kept = [layer.get_buffer("power_vectors") for layer in layers]
        pairs = [(here, there) for here, there in zip(kept, moved, strict=True) if there is not None]
        if pairs:
            with torch.no_grad():
                torch._foreach_copy_([_places(here, there) for here, there in pairs], [there for _, there in pairs])

    def norm(self, tensors: Mapping[str, Tensor], size: Size | None) -> tuple[Tensor, Tensor | None]:
        """That of the weight, in training with the vectors after one step, else proven."""
        weight, vectors = tensors["weight"], tensors.get("power_vectors")
        if vectors is None or not may_approximate(self.training):
            return self._proven(weight, size), None
        if not isinstance(self, LipschitzConv2d):
            return estimate_matrix_norm(weight, vectors)
        divides = size is not None and self.grid[0] % size[0] == 0 == self.grid[1] % size[1]
        torus = size if size is not None and divides else self.grid
        here = vectors[..., :: self.grid[0] // torus[0], :: self.grid[1] // torus[1], :]
        return estimate_kernel_norm(weight, here, torus)

    def _proven(self, weight: Tensor, size: Size | None) -> Tensor:
        if isinstance(self, LipschitzConv2d) and size is not None:
            return conv_norm_bound(weight, size, self.padding_mode, GRAM_ITERATIONS)
        return gram_norm_bound(weight[..., 0, 0] if isinstance(self, LipschitzConv2d) else weight, GRAM_ITERATIONS)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Also weights without vectors, such as those of a plain layer: the vectors start anew."""
        super()._load_from_state_dict(state_dict, prefix, *args)
        missing_keys, name = args[2], f"{prefix}power_vectors"
        if name not in state_dict and f"{prefix}weight" in state_dict:
            missing_keys[:] = [missing for missing in missing_keys if missing != name]
            self.restart_states()


def _places(kept: Tensor, moved: Tensor) -> Tensor:
    """The kept vectors of the frequencies that have moved: those of a smaller torus are among those of the grid."""
    if kept.shape == moved.shape:
        return kept
    rows, columns = kept.shape[-3] // moved.shape[-3], (kept.shape[-2] - 1) // max(1, moved.shape[-2] - 1)
    return kept[..., ::rows, ::columns, :][..., : moved.shape[-2], :]
