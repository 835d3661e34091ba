"""What a proven norm costs, before it is computed.

The verification of an m x n matrix (n the smaller side) forms A^H A, takes an eigenvalue of it, factorises a matrix of
its size, multiplies the factor back and compares: 2 m n^2 + 5/3 n^3 + 2 n^3 operations, four times that for
complex matrices. Small matrices are verified in batches and large real ones in blocks, which bounds the memory: G, its
factor and a copy that the factorisation makes. A certificate holds the weights in float64 besides, with which its pass
computes, and two copies in their own type, one that is evaluated and one to see changes by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from onelip.linalg.fourier import Size, half_width
from onelip.proofs.proven import BATCH_ENTRIES
from onelip.proofs.proven_blocks import BLOCK_ENTRIES, LANCZOS_STEPS
from onelip.proofs.proven_convolution import Convolution, single_stride_shape


class ProofCost(NamedTuple):
    """Peak of the memory needed beside the weights, in bytes, and floating-point operations."""

    memory: int
    operations: int

    def __str__(self) -> str:
        return f"{self.memory / 2**30:.2g} GB of memory and {self.operations / 1e9:.3g} billion operations"


def norm_proof_cost(shape: Sequence[int], is_complex: bool = False) -> ProofCost:
    """Cost of `norm_bound` for matrices of the shape (..., m, n)."""
    count = math.prod(shape[:-2])
    longer, side = max(shape[-2:]), min(shape[-2:])
    if not is_complex and side**2 > BATCH_ENTRIES:
        # Products above the diagonal only; twice the factorisation, as one candidate in two is too small.
        operations = 9 * longer * side**2 // 8 + 4 * side**3 // 3 + 2 * LANCZOS_STEPS * side**2
        return ProofCost(8 * (2 * longer * side + 3 * side**2 + 6 * BLOCK_ENTRIES), count * operations)
    at_once = min(count, max(1, BATCH_ENTRIES // (longer * side)))
    operations = 2 * longer * side**2 + 5 * side**3 // 3 + 2 * side**3
    if is_complex:
        return ProofCost(8 * at_once * (12 * longer * side + 20 * side**2), 4 * count * operations)
    return ProofCost(8 * at_once * (4 * longer * side + 8 * side**2), count * operations)


def convolution_proof_cost(convolution: Convolution, size: Size) -> ProofCost:
    """Cost of `convolution_norm_bound` for h x w images."""
    (groups, outputs, inputs, *taps), torus = single_stride_shape(convolution, size)
    if math.prod(taps) == 1:
        return norm_proof_cost((groups, outputs, inputs))
    frequencies = (1 if taps[0] == 1 else torus[0]) * (1 if taps[1] == 1 else half_width(torus[1]))
    proof = norm_proof_cost((groups * frequencies, outputs, inputs), is_complex=True)
    at_once = min(frequencies, max(1, BATCH_ENTRIES // (groups * outputs * inputs)))
    # The scaled kernel, three times, and the frequency matrices of one part with their two real products.
    memory = 8 * groups * outputs * inputs * (3 * math.prod(taps) + 4 * at_once)
    transform = 4 * groups * frequencies * math.prod(taps) * outputs * inputs
    return ProofCost(proof.memory + memory, proof.operations + transform)
