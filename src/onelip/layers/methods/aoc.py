"""AOC: adaptive orthogonal convolution (Boissin et al., 2025), with native stride, groups, dilation and transposition.

* stride s = k: an orthogonal matrix on patches of k x k pixels, which do not overlap.
* stride 1: BCOP's product of an orthogonal matrix and k - 1 projections along each axis.
* 1 < s < k: the two composed, patches of s x s behind projections that make up the other k - s taps, with
  max(in, out / s^2) channels between.
* groups have a kernel each; a dilation spreads the taps of an orthogonal kernel, which moves its frequencies and leaves
  their singular values; a transposed convolution is the adjoint.

The composition of maps with orthonormal rows, or columns, on the way from more to fewer numbers, or from fewer to more,
has them too. `onelip.layers.methods.bcop` holds the implementation, which at stride 1 is BCOP itself; no such operator
exists for k < s.
"""

from __future__ import annotations

from dataclasses import replace

from onelip.layers.methods.bcop import METHOD as BCOP
from onelip.layers.methods.bcop import BCOPConv2d, BCOPLinear


class AOCConv2d(BCOPConv2d):
    """Orthogonal convolution, with every stride up to the side of its kernel."""


class AOCLinear(BCOPLinear):
    """Linear layer with an orthogonal matrix."""


METHOD = replace(BCOP, key="aoc", conv=AOCConv2d, linear_layer=AOCLinear)
