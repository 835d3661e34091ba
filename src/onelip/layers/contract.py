"""Properties that a layer states of its method, and the request that its transformation answers."""

from __future__ import annotations

from dataclasses import dataclass

from onelip.layers.initialisation import INITIALISATIONS
from onelip.linalg.fourier import Size


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Properties of a method that its layers, converters and tests ask for. The two layers of a method may share one.

    Attributes:
        square: the core needs as many outputs as inputs; channels of zeros are appended, and outputs cut off.
        initialisations: names that `init` accepts; "auto" is the method's default.
        evaluates_in_float64: evaluation transforms in float64, then rounds once; a method may decline on CPUs where
            float32 is as good and cheaper.
        transforms_parameters: there is something to compute before the parameters are applied.
        zero_channels_stay_zero: a square layer with channels of zeros appended to its parameters is transformed to the
            same, with zeros (in diagonals anything finite) appended: layers of different widths can be one batch.
        keeps_directions: the weight is rescaled or projected: trained weights of a plain layer are a start then.
        has_guarantee: the constant is limited at all.
        has_torch_taps: the kernel has torch's taps, (out, in, kh, kw), also with a stride, and not those of the core.
        holds_for_volumes: the constraint is one of a kernel, its norm or products of taps, and also makes a `Conv3d`.
        orthogonal_by_rank: orthogonal only if kernels of the layer's shape can have full rank; others are refused.
    """

    square: bool = False
    initialisations: tuple[str, ...] = INITIALISATIONS
    evaluates_in_float64: bool = True
    transforms_parameters: bool = True
    zero_channels_stay_zero: bool = False
    keeps_directions: bool = False
    has_guarantee: bool = True
    has_torch_taps: bool = True
    holds_for_volumes: bool = False
    orthogonal_by_rank: bool = False


@dataclass(frozen=True)
class Request:
    """The purpose that an operator is made for. By default evaluation, as exact as it gets.

    Attributes:
        size: of the image that the core sees; None where the parameters depend on none.
        training: the operator is for a training pass, so that gradients go through it and nobody asks for its bound.
        approximate: it may be less exact than that of evaluation, as training is outside of `exact_transforms`.
        rows: how many outputs are used, counted from the first; None for all. A method may ignore it.
    """

    size: Size | None = None
    training: bool = False
    approximate: bool = False
    rows: int | None = None
