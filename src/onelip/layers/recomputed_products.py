"""Wide layers by frequency as accelerators train them: no matrix of a frequency is kept for the backward pass.

The matrices M^(f) of a convolution are h (w / 2 + 1) c^2 complex numbers, where its kernel is k^2 c^2 real ones, and
what autograd keeps of a function that constrains them is several times that: for a wide layer more than all images.
Here they are made from the kernel a few frequencies at a time, in the forward and again in the backward pass. Each
frequency's gradients follow from that frequency alone, so that its matrix is made once in either pass:

    y = X M,   gX = g M^H,   gM = w X^H g,   and gM goes on through the constraint to the kernel.

Sandwich, V relu(U x + b), needs U and V of all frequencies before their gradients are known. They are made again, once,
and the gradient of the constraint reads its results there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.fft_products import from_frequencies, half_spectrum, spectrum_weights, to_frequencies
from onelip.layers.hidden_passes import differentiable
from onelip.layers.transformed import Transformed, check_size, embedded
from onelip.linalg.fourier import Size, half_width
from onelip.linalg.layer_bound import LayerBound
from onelip.linalg.packed_functions import Matrices, MatrixFunction
from onelip.linalg.tensor_modes import is_traced, no_autocast

BYTES_AT_ONCE = 2**22
"""Of complex matrices that are made at a time. Layers with fewer of them keep all: they are transformed together, by as
few kernels as possible."""


def keeps_no_matrices(channels: Size, bytes_of_number: int, torus: Size) -> bool:
    """Whether the frequency matrices of one layer with so many channels out and in are too many to be kept."""
    count = torus[0] * half_width(torus[1]) * channels[0] * channels[1]
    return not is_traced() and 2 * count * bytes_of_number > BYTES_AT_ONCE


def _parts(kernel: Tensor, torus: Size) -> Iterator[slice]:
    """The frequencies that are done at a time."""
    step = max(1, BYTES_AT_ONCE // (2 * kernel[..., 0, 0].numel() * kernel.element_size()))
    count = torus[0] * half_width(torus[1])
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


@dataclass(frozen=True)
class _RecomputedOperator(Transformed):
    """An operator of training, given by the kernel whose frequency matrices are constrained."""

    kernel: Tensor
    torus: Size
    image: Size

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """On the torus that the image is embedded in; in float32 or better."""
        check_size(x, self.image)
        kernel = self.kernel.float() if self.kernel.dtype in (torch.float16, torch.bfloat16) else self.kernel
        with no_autocast(x.device.type):
            y = self.on_torus(embedded(x.to(kernel.dtype), self.torus), kernel, bias)
        return y[..., : x.shape[-2], : x.shape[-1]]

    def on_torus(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """The same for images of the size of the torus."""
        raise NotImplementedError

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """None: the operator of evaluation has one."""
        raise InvalidInputError("this is the operator of training: the one of evaluation, `deployed`, has a bound")


@dataclass(frozen=True)
class RecomputedProduct(_RecomputedOperator):
    """x -> F^(-1) M F x + b, where `constrain` makes M (f, out, in) of the matrices of the kernel."""

    constrain: Callable[[Tensor], Tensor]

    def on_torus(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """FFT, a few frequencies at a time, inverse FFT."""
        y: Any = _Product.apply(x, kernel, self.constrain)
        return y if bias is None else y + bias[:, None, None]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, constrain: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x, kernel)
        ctx.constrain, ctx.context = constrain, copy_context()
        torus = x.shape[-2], x.shape[-1]
        images, products = to_frequencies(x), None
        for part in _parts(kernel, torus):
            product = torch.bmm(images[part], constrain(half_spectrum(kernel, torus, part)).mT)
            products = _placed(products, part, product, len(images))
        del images
        assert products is not None
        return from_frequencies(products, x.shape[-2:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        with no_autocast(gradients[0].device.type):
            return ctx.context.run(_product_gradients, ctx, gradients[0])


def _product_gradients(ctx: Any, gradient: Tensor) -> Any:
    (x, kernel), (to_input, to_kernel, _) = ctx.saved_tensors, ctx.needs_input_grad
    torus = x.shape[-2], x.shape[-1]
    if torch.is_grad_enabled():  # a second derivative goes through torch's operations
        matrices = ctx.constrain(half_spectrum(kernel, torus)).mT
        y = from_frequencies(to_frequencies(x) @ matrices, x.shape[-2:])
        return *differentiable(y, (x, kernel), (to_input, to_kernel), gradient), None
    leaf = kernel.detach().requires_grad_(to_kernel)
    g, images = to_frequencies(gradient), to_frequencies(x) if to_kernel else None
    weights, total, to_images = spectrum_weights(x.shape[-2:], g), None, None
    for part in _parts(kernel, torus):
        with torch.enable_grad():
            matrices = ctx.constrain(half_spectrum(leaf, torus, part))
        if images is not None:
            to_matrices = weights[part] * torch.bmm(g[part].mT, images[part].conj())
            total = _plus(total, *torch.autograd.grad(matrices, leaf, to_matrices))
        if to_input:
            to_images = _placed(to_images, part, torch.bmm(g[part], matrices.detach().conj()), len(g))
    del g, images
    return None if to_images is None else from_frequencies(to_images, x.shape[-2:]), total, None


@dataclass(frozen=True)
class RecomputedSandwich(_RecomputedOperator):
    """x -> V relu(U x + b), where `halves` makes V and U of the matrices of the kernel."""

    halves: MatrixFunction

    def on_torus(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Two products at every frequency, the activation on the torus between them."""
        return _Sandwich.apply(x, kernel, bias, self.halves)  # pyright: ignore[reportReturnType]


class _Sandwich(torch.autograd.Function):
    """Keeps the image, not the activation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor | None, halves: MatrixFunction) -> Tensor:
        ctx.save_for_backward(x, kernel, bias)
        ctx.halves, ctx.context = halves, copy_context()
        outer, inner = _halves(kernel, (x.shape[-2], x.shape[-1]), halves)
        hidden = _hidden(to_frequencies(x), inner, bias, x.shape[-2:])
        return from_frequencies(torch.bmm(to_frequencies(hidden), outer.mT), x.shape[-2:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        with no_autocast(gradients[0].device.type):
            return ctx.context.run(_sandwich_gradients, ctx, gradients[0])


def _sandwich_gradients(ctx: Any, gradient: Tensor) -> Any:
    (x, kernel, bias), torus, wanted = ctx.saved_tensors, gradient.shape[-2:], ctx.needs_input_grad
    if torch.is_grad_enabled():  # a second derivative goes through torch's operations
        outer, inner = ctx.halves.plain(half_spectrum(kernel, (torus[0], torus[1])))
        hidden = to_frequencies(_hidden(to_frequencies(x), inner, bias, torus))
        y = from_frequencies(hidden @ outer.mT, torus)
        return *differentiable(y, (x, kernel, bias), wanted[:3], gradient), None
    outer, inner = _halves(kernel, (torus[0], torus[1]), ctx.halves)
    images, g = to_frequencies(x), to_frequencies(gradient)
    hidden, weights = _hidden(images, inner, bias, torus), spectrum_weights(torus, g)
    to_outer = weights * torch.bmm(g.mT, to_frequencies(hidden).conj()) if wanted[1] else None
    to_hidden = from_frequencies(torch.bmm(g, outer.conj()), torus)
    del g
    to_hidden = torch.ops.aten.threshold_backward(to_hidden, hidden, 0)
    del hidden
    to_bias, to_product = to_hidden.sum((0, 2, 3)) if wanted[2] else None, to_frequencies(to_hidden)
    del to_hidden
    to_kernel = None
    if to_outer is not None:
        to_inner = weights * torch.bmm(to_product.mT, images.conj())
        del images
        to_kernel = _through_halves(kernel, torus, ctx.halves, (outer, inner), (to_outer, to_inner))
    return (
        from_frequencies(torch.bmm(to_product, inner.conj()), torus) if wanted[0] else None,
        to_kernel,
        to_bias,
        None,
    )


def _hidden(images: Tensor, inner: Tensor, bias: Tensor | None, torus: torch.Size) -> Tensor:
    product = from_frequencies(images @ inner.mT, torus)
    return F.relu(product if bias is None else product + bias[:, None, None])


def _halves(kernel: Tensor, torus: Size, halves: MatrixFunction) -> list[Tensor]:
    """V and U (f, out, in), made a few frequencies at a time."""
    made = [halves.plain(half_spectrum(kernel, torus, part)) for part in _parts(kernel, torus)]
    return [torch.cat(parts) for parts in zip(*made, strict=True)]


def _through_halves(
    kernel: Tensor, torus: torch.Size, halves: MatrixFunction, values: Matrices, gradients: Matrices
) -> Tensor:
    leaf, total = kernel.detach().requires_grad_(), None
    for part in _parts(kernel, (torus[0], torus[1])):
        with torch.enable_grad():
            matrices = half_spectrum(leaf, (torus[0], torus[1]), part)
        own, to_own = (tuple(tensor[part] for tensor in tensors) for tensors in (values, gradients))
        to_matrices = halves.gradient(matrices.detach(), own, (), to_own)
        total = _plus(total, *torch.autograd.grad(matrices, leaf, to_matrices))
    assert total is not None
    return total


def _plus(total: Tensor | None, gradient: Tensor) -> Tensor:
    return gradient if total is None else total.add_(gradient)


def _placed(whole: Tensor | None, part: slice, values: Tensor, count: int) -> Tensor:
    """The values of some frequencies among those of all."""
    if len(values) == count:
        return values
    whole = values.new_empty(count, *values.shape[1:]) if whole is None else whole
    whole[part] = values
    return whole
