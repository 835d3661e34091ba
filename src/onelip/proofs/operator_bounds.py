"""What is proven about each type of operator, with the numbers that it holds: one function for one type.

`Operator.bound` finds them. `onelip.layers` imports this file, which fills their table; nothing that computes needs it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor
from torch.nn import functional as F

from onelip.layers.block_reflection import BlockReflection
from onelip.layers.operators import (
    Framed,
    Frequencies,
    Grouped,
    Kernel,
    Matrix,
    ScaledInput,
    embedded,
    register_operator_bound,
)
from onelip.layers.residual import ResidualMap
from onelip.layers.volume_kernel import VolumeKernel
from onelip.linalg.convolution import adjoint_kernel, grouped_convolution, same_convolution
from onelip.linalg.fourier import torus_of
from onelip.proofs.layer_bound import (
    Arithmetic,
    LayerBound,
    RoundingError,
    added_to_input,
    compose,
    linear_bound,
    relative_bound,
    repeated,
    side_by_side,
)
from onelip.proofs.linear_bounds import (
    bias_norm,
    convolution_bound,
    matrix_bound,
    spectral_bound,
    spectral_factor,
    spectral_pair,
)
from onelip.proofs.measured_rounding import Product, exact_step, for_prepared_input, input_minus, measured
from onelip.proofs.proven import SAFETY
from onelip.proofs.proven_convolution import same_convolution_of, volume_as_images, volume_norm_bounds

Shape = tuple[int, ...]


@register_operator_bound(Framed)
def framed_bound(operator: Framed, input_shape: Shape, bias: Tensor | None) -> LayerBound:
    """The bound of the core: moved entries, zeros that are appended and outputs that are dropped expand nothing."""
    frame = operator.frame
    inner = operator.core.bound(frame.core_shape(input_shape), bias)
    parts = frame.parts(input_shape)
    return repeated(inner, parts) if parts > 1 else for_prepared_input(frame.core_input, inner)


@register_operator_bound(ScaledInput)
def scaled_bound(operator: ScaledInput, input_shape: Shape, bias: Tensor | None) -> LayerBound:
    """The bound of f times the factor; the product is rounded, and so is the factor itself."""
    product = relative_bound(operator.factor * SAFETY, 3.0, math.prod(input_shape))
    return compose(product, operator.operator.bound(input_shape, bias))


@register_operator_bound(Grouped)
def grouped_bound(operator: Grouped, input_shape: Shape, bias: Tensor | None) -> LayerBound:
    """The largest constant of a group: they do not see each other's channels."""
    inner = operator.operator
    if isinstance(inner, Kernel):
        mode, size = inner.padding_mode, (input_shape[-2], input_shape[-1])
        convolution = same_convolution_of(inner.kernel.flatten(0, 1), mode)._replace(groups=operator.groups)
        run = lambda x, kernels, shift: grouped_convolution(x, kernels, shift, mode)  # noqa: E731
        return measured(convolution_bound(convolution, size, bias), Product(run, inner.kernel, bias))
    shape = input_shape[0] // operator.groups, *input_shape[1:]
    pieces = zip(inner.unstacked(), operator.biases(bias), strict=True)
    return side_by_side([each.bound(shape, shift) for each, shift in pieces])


@register_operator_bound(Matrix)
def matrix_operator_bound(operator: Matrix, input_shape: Shape, bias: Tensor | None) -> LayerBound:
    """The norm of the matrix."""
    bound = matrix_bound(operator.matrix, bias, math.prod(input_shape[:-1]))
    return measured(bound, Product(F.linear, operator.matrix, bias))


@register_operator_bound(Kernel)
def kernel_bound(operator: Kernel, input_shape: Shape, bias: Tensor | None) -> LayerBound:
    """The norm on the torus of the image; with zero padding on one that is larger by k - 1."""
    convolution = same_convolution_of(operator.kernel, operator.padding_mode)
    bound = convolution_bound(convolution, (input_shape[-2], input_shape[-1]), bias)
    return measured(bound, _kernel_product(operator, bias))


def _kernel_product(operator: Kernel, bias: Tensor | None) -> Product:
    mode = operator.padding_mode
    return Product(lambda x, kernel, shift: same_convolution(x, kernel, shift, mode), operator.kernel, bias)


@register_operator_bound(VolumeKernel)
def volume_kernel_bound(operator: VolumeKernel, input_shape: Shape, bias: Tensor | None) -> LayerBound:
    """The norm on the torus of the padded volume, as that of a convolution of images."""
    size, kernel, stride, dilation = input_shape[-3:], operator.kernel, operator.stride, operator.dilation
    norm, magnitude = volume_norm_bounds(*volume_as_images(kernel, size, stride, dilation, operator.padding, 1))
    spans = (d * (k - 1) + 1 for d, k in zip(dilation, kernel.shape[-3:], strict=True))
    lengths = zip(size, operator.padding, spans, stride, strict=True)
    voxels = math.prod((length + sum(sides) - span) // step + 1 for length, sides, span, step in lengths)
    bound = linear_bound(norm, magnitude, kernel[0].numel(), kernel.shape[0] * voxels, bias_norm(bias, voxels))
    return measured(bound, _volume_product(operator, bias))


def _volume_product(operator: VolumeKernel, bias: Tensor | None) -> Product:
    return Product(lambda x, kernel, shift: replace(operator, kernel=kernel).apply(x, shift), operator.kernel, bias)


@register_operator_bound(Frequencies)
def frequencies_bound(operator: Frequencies, input_shape: Shape, bias: Tensor | None) -> LayerBound:
    """The largest norm of a matrix, times those of the floats that make up the DFT."""
    torus = torus_of(operator.dft)
    return for_prepared_input(lambda x: embedded(x, torus), spectral_bound(operator.matrices, operator.dft, bias))


@register_operator_bound(ResidualMap)
def residual_bound(operator: ResidualMap, input_shape: Shape, bias: Tensor | None) -> LayerBound:
    """max(1, ||W||^2 - 1).

    For two inputs, relu(u) - relu(v) = D (u - v) with a diagonal 0 <= D <= I, so the difference of the outputs is
    (I - W^T D W)(x - y). With lambda = ||W||^2 its eigenvalues lie in [1 - lambda, 1].

    The program of W^T uses the transposes of the very matrices of W, or the same taps. W is square, so that the
    bound of W, which counts terms and outputs, is one of W^T too. The product of root and bias is rounded in the
    pass, by u each: less than the error of adding it.
    """
    shift = None if bias is None else operator.root.double() * bias.double()
    there, back = _residual_products(operator, input_shape, shift)
    branch = compose(there, exact_step(F.relu), back)
    norm, inner = there.lipschitz, branch.rounding
    assert inner is not None

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        error = inner(arithmetic)
        return RoundingError(error.slope, 2 * error.constant)

    lipschitz = max(1.0, norm * norm * SAFETY - 1) if math.isfinite(norm) else math.inf
    return input_minus(branch, added_to_input(replace(branch, rounding=rounding), lipschitz))


def _residual_products(
    operator: ResidualMap, input_shape: Shape, shift: Tensor | None
) -> tuple[LayerBound, LayerBound]:
    """Bounds of W with its bias, which comes rounded, and of W^T."""
    weight = operator.weight
    if isinstance(weight, Frequencies):
        return spectral_pair(weight.matrices, weight.dft, shift)  # whose biases may be rounded four times
    if isinstance(weight, Matrix):
        product, adjoint = Product(F.linear, weight.matrix, shift), Product(F.linear, weight.matrix.mT)
    elif isinstance(weight, VolumeKernel):
        product = _volume_product(weight, shift)
        adjoint = Product(lambda y, kernel, _: replace(weight, kernel=kernel).adjoint(y), weight.kernel)
    else:
        product = _kernel_product(weight, shift)
        adjoint = _kernel_product(replace(weight, kernel=adjoint_kernel(weight.kernel)), None)
    there = weight.bound(input_shape, shift)
    return measured(there, product, bias_roundings=1), measured(replace(there, offset=0.0), adjoint)


@register_operator_bound(BlockReflection)
def reflection_bound(operator: BlockReflection, input_shape: Shape, bias: Tensor | None) -> LayerBound:
    """max(1, ||A||^2 - 1); the branch is rounded as its products are, then subtracted, then the bias is added."""
    there, back = _factor_bounds(operator.factor, input_shape)
    reflection = added_to_input(compose(there, back), max(1.0, there.lipschitz**2 * SAFETY - 1))
    outputs = math.prod(input_shape)
    places = 1 if bias is None else outputs // len(bias)
    return compose(reflection, linear_bound(1.0, 1.0, terms=1, outputs=outputs, bias_norm=bias_norm(bias, places)))


def _factor_bounds(factor: Matrix | Kernel | Frequencies, input_shape: Shape) -> tuple[LayerBound, LayerBound]:
    """A and A^T, with the norm of A for both."""
    if isinstance(factor, Frequencies):
        return spectral_factor(factor.matrices, factor.dft)
    if isinstance(factor, Matrix):
        inner, adjoint = (*input_shape[:-1], len(factor.matrix)), Matrix(factor.matrix.mT)
        return factor.bound(input_shape, None), adjoint.bound(inner, None)
    inner, adjoint = (len(factor.kernel), *input_shape[1:]), Kernel(adjoint_kernel(factor.kernel), factor.padding_mode)
    return factor.bound(input_shape, None), adjoint.bound(inner, None)
