"""The operator x -> x - 2 Q Q^H x + b with few orthonormal columns Q, at every frequency or for a matrix.

With the stored A = sqrt(2) Q^H the map is I - A^T A: symmetric, with eigenvalues in [1 - ||A||^2, 1]. For every A in
floats the constant is therefore at most max(1, ||A||^2 - 1). Applying A and A^T to c channels costs 2 c n products in
place of c^2, for n columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from onelip.layers.operators import Frequencies, Kernel, Matrix, Operator, check_size, embedded
from onelip.linalg.convolution import adjoint_kernel, same_convolution
from onelip.linalg.fourier import from_frequency, multiply_frequencies, to_frequency, torus_of


@dataclass(frozen=True)
class BlockReflection(Operator):
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
