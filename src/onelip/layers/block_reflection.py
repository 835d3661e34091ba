"""The operator x -> x - 2 Q Q^H x + b with few orthonormal columns Q, at every frequency or for a matrix.

With the stored A = sqrt(2) Q^H the map is I - A^T A: symmetric, with eigenvalues in [1 - ||A||^2, 1]. For every A in
floats the constant is therefore at most max(1, ||A||^2 - 1). Applying A and A^T to c channels costs 2 c n products in
place of c^2, for n columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from onelip.layers.convolution import adjoint_kernel, same_convolution
from onelip.layers.transformed import Frequencies, Kernel, Matrix, Transformed, check_size, embedded
from onelip.linalg.fourier import from_frequency, multiply_frequencies, to_frequency, torus_of, unpack
from onelip.linalg.layer_bound import LayerBound, added_to_input, compose, linear_bound
from onelip.linalg.linear_bounds import bias_norm, blocks_norm_bound, transforms_of
from onelip.linalg.norms import real_parts
from onelip.linalg.proven import SAFETY, magnitude_norm_bound, norm_bound


@dataclass(frozen=True)
class BlockReflection(Transformed):
    """x -> x - A^T A x + b; `factor` is A, which maps c channels to n."""

    factor: Matrix | Kernel | Frequencies

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """A, then A^T."""
        if isinstance(self.factor, Matrix):
            y = x - F.linear(F.linear(x, self.factor.matrix), self.factor.matrix.mT)
            return y if bias is None else y + bias
        y = x - self._projected(x, self.factor)
        return y if bias is None else y + bias[:, None, None]

    def _projected(self, x: Tensor, factor: Kernel | Frequencies) -> Tensor:
        if isinstance(factor, Kernel):
            hidden = same_convolution(x, factor.kernel, None, factor.padding_mode)
            return same_convolution(hidden, adjoint_kernel(factor.kernel), None, factor.padding_mode)
        check_size(x, factor.image)
        torus = torus_of(factor.dft)
        hidden = multiply_frequencies(to_frequency(embedded(x, torus), factor.dft), factor.matrices)
        y = multiply_frequencies(hidden, factor.matrices, adjoint=True)
        return from_frequency(y, torus, factor.dft)[..., : x.shape[-2], : x.shape[-1]]

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """max(1, ||A||^2 - 1); the branch is rounded as its products are, then subtracted, then the bias is added."""
        there, back = _factor_bounds(self.factor, input_shape)
        reflection = added_to_input(compose(there, back), max(1.0, there.lipschitz**2 * SAFETY - 1))
        outputs = math.prod(input_shape)
        places = 1 if bias is None else outputs // len(bias)
        return compose(reflection, linear_bound(1.0, 1.0, terms=1, outputs=outputs, bias_norm=bias_norm(bias, places)))


def _factor_bounds(
    factor: Matrix | Kernel | Frequencies, input_shape: tuple[int, ...]
) -> tuple[LayerBound, LayerBound]:
    """A and A^T, with the norm of A for both."""
    if isinstance(factor, Frequencies):
        return _frequency_bounds(factor)
    if isinstance(factor, Matrix):
        inner, adjoint = (*input_shape[:-1], len(factor.matrix)), Matrix(factor.matrix.mT)
        return factor.bound(input_shape, None), adjoint.bound(inner, None)
    inner, adjoint = (len(factor.kernel), *input_shape[1:]), Kernel(adjoint_kernel(factor.kernel), factor.padding_mode)
    return factor.bound(input_shape, None), adjoint.bound(inner, None)


def _frequency_bounds(factor: Frequencies) -> tuple[LayerBound, LayerBound]:
    """M F and F^T M^T with the float matrices of the DFT F; an inner product of parts has two terms per channel."""
    transforms = transforms_of(factor.dft)
    numbers = math.prod(len(matrix) for matrix in transforms)
    channels, columns = factor.matrices.shape[-2:]
    blocks = unpack(factor.matrices.double(), torus_of(factor.dft))
    norm = blocks_norm_bound(blocks)
    magnitude = max(magnitude_norm_bound(real_parts(block).abs().sum(-1)) for block in blocks)
    products = (
        linear_bound(norm, magnitude, terms=2 * inputs + 2, outputs=outputs * numbers)
        for inputs, outputs in ((channels, columns), (columns, channels))
    )
    steps = [
        linear_bound(
            norm_bound(matrix), magnitude_norm_bound(matrix), terms=matrix.shape[1], outputs=channels * numbers
        )
        for matrix in transforms
    ]
    backwards = [
        linear_bound(
            norm_bound(matrix), magnitude_norm_bound(matrix.mT), terms=matrix.shape[0], outputs=channels * numbers
        )
        for matrix in reversed(transforms)
    ]
    first, second = products
    return compose(*steps, first), compose(second, *backwards)
