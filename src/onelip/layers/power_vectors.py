"""Layers that divide by the norm of their weight: estimated in training, proven in evaluation.

A proven bound takes products of matrices at every frequency, an estimate from below products with vectors, which are
kept from step to step (`onelip.linalg.norm_estimates`). They are a buffer of fixed size, saved with the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from onelip.layers.contract import Request
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operators import Operator
from onelip.linalg.fourier import Size, half_width
from onelip.linalg.norm_estimates import estimate_kernel_norm, estimate_matrix_norm
from onelip.linalg.norms import conv_norm_bound, gram_norm_bound
from onelip.linalg.training_precision import may_approximate

WARM_UP = 5
"""Steps when weights are drawn, so that training starts from a fair estimate."""

GRAM_ITERATIONS = 7
"""The proven bound then exceeds the norm of a matrix of rank 64 by at most 1.6 %, in general by far less."""


class PowerVectors(LipschitzLayer):
    """A layer with vectors by which training estimates the norm of its weight."""

    power_vectors: Tensor

    buffer_names = ("power_vectors",)

    @property
    def grid(self) -> Size:
        """Torus whose frequencies have vectors."""
        return self.coarse_torus if isinstance(self, LipschitzConv2d) else (1, 1)

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Vectors too: one, or real and imaginary parts of one for each frequency."""
        vectors: tuple[int, ...] = (self.core_in,)
        if isinstance(self, LipschitzConv2d):
            vectors = 2, self.grid[0], half_width(self.grid[1]), self.core_in
        return {**super().tensor_shapes(), "power_vectors": vectors}

    def transforms_separately(self, request: Request) -> bool:
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
        request = Request(size, training=True, approximate=may_approximate(True))
        for _ in range(0 if self.weight.is_meta else steps):
            with torch.no_grad():
                operator = self.build(self.tensors_to_transform(), request, cheapest_form=False)
                self.keep_states([self], [operator])

    def keep_states(self, layers: Sequence[LipschitzLayer], operators: Sequence[Operator]) -> None:
        """The vectors move on, those of all layers in one go."""
        moved = [operator.tensors().get("state") for operator in operators]
        kept = [layer.get_buffer("power_vectors") for layer in layers]
        pairs = [(here, there) for here, there in zip(kept, moved, strict=True) if there is not None]
        if pairs:
            with torch.no_grad():
                torch._foreach_copy_([_places(here, there) for here, there in pairs], [there for _, there in pairs])

    def norm(self, tensors: Mapping[str, Tensor], request: Request) -> tuple[Tensor, Tensor | None]:
        """The norm of the weight, in training with the vectors after one step, else proven."""
        weight, vectors, size = tensors["weight"], tensors.get("power_vectors"), request.size
        if vectors is None or not request.approximate:
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
