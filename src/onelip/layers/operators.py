"""Operators, which parameters become, with all that the input transformation needs and what is proven about it.

A parameter transformation returns one of these. `Matrix`, `Kernel` and `Frequencies` are the linear ones; methods whose
operator is another one define it in their own file. Tensors of layers that are transformed as one batch have a leading
dimension, until `unstacked` takes them apart.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.linalg.convolution import PaddingMode, grouped_convolution, same_convolution
from onelip.linalg.fourier import (
    RealDFT,
    Size,
    from_frequency,
    kernel_to_parts,
    multiply_frequencies,
    real_dft,
    to_frequency,
    torus_of,
)

if TYPE_CHECKING:
    from onelip.proofs.layer_bound import LayerBound


@dataclass(frozen=True)
class Operator(ABC):
    """Operator parameters: tensors, operators that it is made of, and plain options.

    The names of all tensors, those of inner operators included, differ from each other.
    """

    state: Tensor | None = field(default=None, kw_only=True)
    """State that the transformation leaves behind for the next step of training: `LipschitzLayer.keep_states`."""

    linear_in: ClassVar[str | None] = None
    """The tensor that the output without a bias is proportional to, if the operator is linear."""

    @abstractmethod
    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The input transformation of a batch x."""

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """The proven bound of `apply` with the numbers of these tensors, for one input of this shape.

        By the function registered for this type, which speaks of nothing that computes something else: a subclass with
        an `apply` of its own needs a bound of its own.
        """
        for kind in type(self).__mro__:
            if kind in _BOUNDS:
                return _BOUNDS[kind](self, input_shape, bias)
            if "apply" in vars(kind):
                break
        raise UnknownLipschitzConstant(
            f"the Lipschitz constant of {type(self).__name__} is not known: it defines `apply`; state a bound of what "
            "that computes with `onelip.layers.operators.register_operator_bound`"
        )

    def by_frequency(self, size: Size) -> Operator:
        """This operator in the frequency domain of images of this size, if it has such a form."""
        return self

    def scaled(self, factor: float) -> Operator:
        """x -> f(factor x), which has `factor` times the Lipschitz constant; a bias stays what it is."""
        if self.linear_in is None:
            return ScaledInput(self, factor)
        tensors = self.tensors()
        return self.with_tensors({**tensors, self.linear_in: tensors[self.linear_in] * factor})

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        found: dict[str, Tensor] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Tensor):
                found[part.name] = value
            elif isinstance(value, Operator):
                found.update(value.tensors())
        return found

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """This operator with other tensors."""
        changes: dict[str, Any] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Tensor):
                changes[part.name] = tensors[part.name]
            elif isinstance(value, Operator):
                changes[part.name] = value.with_tensors(tensors)
        return replace(self, **changes)

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """This operator with a function of each tensor in its place."""
        return self.with_tensors({name: function(tensor) for name, tensor in self.tensors().items()})

    def unstacked(self) -> list[Self]:
        """The operators of the layers that were transformed as one batch."""
        parts = {name: tensor.unbind(0) for name, tensor in self.tensors().items()}
        count = len(next(iter(parts.values())))
        return [self.with_tensors({name: part[index] for name, part in parts.items()}) for index in range(count)]


T = TypeVar("T", bound=Operator)
OperatorBound = Callable[[T, tuple[int, ...], Tensor | None], "LayerBound"]

_BOUNDS: dict[type[Operator], OperatorBound[Any]] = {}


def register_operator_bound(kind: type[T]) -> Callable[[OperatorBound[T]], OperatorBound[T]]:
    """The decorated function (operator, input_shape, bias) states what is proven about operators of this type.

    `onelip.proofs.operator_bounds` has those of this package; a method's file has that of an operator of its own.
    """

    def register(bound: OperatorBound[T]) -> OperatorBound[T]:
        _BOUNDS[kind] = bound
        return bound

    return register


@dataclass(frozen=True)
class TrainingOperator(Operator):
    """An operator that is applied in training only, which nothing is proven about."""

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """None: the operator of evaluation has one."""
        raise InvalidInputError("this is the operator of training: the one of evaluation, `deployed`, has a bound")


class Frame(ABC):
    """The frame around the core of a layer: it moves entries, adds zeros and drops outputs, and expands nothing."""

    @abstractmethod
    def apply(self, x: Tensor, operator: Operator, bias: Tensor | None) -> Tensor:
        """The whole layer, with an operator as its core."""

    @abstractmethod
    def core_input(self, x: Tensor) -> Tensor:
        """The input of the core."""

    @abstractmethod
    def core_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one input of the core."""

    def parts(self, input_shape: tuple[int, ...]) -> int:
        """To how many parts of one input the core is applied alone."""
        return 1

    def bound(self, input_shape: tuple[int, ...], operator: Operator, bias: Tensor | None) -> LayerBound:
        """The bound of the whole layer."""
        return Framed(self, operator).bound(input_shape, bias)


@dataclass(frozen=True)
class Framed(Operator):
    """A core in its frame."""

    frame: Frame
    core: Operator

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The frame around the core."""
        return self.frame.apply(x, self.core, bias)


@dataclass(frozen=True)
class ScaledInput(Operator):
    """x -> f(factor x) for an operator f that is not linear."""

    operator: Operator
    factor: float

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Multiply, then apply."""
        return self.operator.apply(self.factor * x, bias)


@dataclass(frozen=True)
class Matrix(Operator):
    """x -> W x + b on the last dimension; (out, in)."""

    linear_in = "matrix"

    matrix: Tensor

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """One matrix product."""
        return F.linear(x, self.matrix, bias)


@dataclass(frozen=True)
class FirstRows(TrainingOperator):
    """The first outputs of a matrix, in a pass that uses no others: its rows, and the biases that belong to them."""

    linear_in = "matrix"

    matrix: Tensor

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """One matrix product."""
        return F.linear(x, self.matrix, None if bias is None else bias[: self.matrix.shape[-2]])


@dataclass(frozen=True)
class Kernel(Operator):
    """A convolution that keeps height and width; (out, in, kh, kw) with odd sides."""

    linear_in = "kernel"

    kernel: Tensor
    padding_mode: PaddingMode

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """One convolution."""
        return same_convolution(x, self.kernel, bias, self.padding_mode)

    def by_frequency(self, size: Size) -> Frequencies:
        """This circular convolution by frequencies, for images of this size."""
        return replace(frequencies(kernel_to_parts(self.kernel, size), size), state=self.state)


@dataclass(frozen=True)
class Frequencies(Operator):
    """x -> F^T M F x + b with one matrix per frequency, for images of one size.

    `matrices` are laid out as the product wants them, `dft_rows` and `dft_columns` (None on small square tori) are the
    real DFT of the torus, in which smaller images are embedded: that is zero padding.
    """

    linear_in = "matrices"

    matrices: Tensor
    dft_rows: Tensor
    dft_columns: Tensor | None
    image: Size

    @property
    def dft(self) -> RealDFT:
        """The DFT of the torus."""
        return RealDFT(self.dft_columns, self.dft_rows)

    def apply(self, x: Tensor, bias: Tensor | None, *, adjoint: bool = False) -> Tensor:
        """DFT, one product per frequency, inverse DFT; or the transpose F^T M^H F x."""
        check_size(x, self.image)
        torus = torus_of(self.dft)
        constant = at_frequency_zero(bias, torus)
        # No name for the frequencies of x: they would stay in memory until the end.
        y = multiply_frequencies(to_frequency(embedded(x, torus), self.dft), self.matrices, constant, adjoint)
        y = from_frequency(y, torus, self.dft)
        return y if torus == self.image else y[..., : self.image[0], : self.image[1]]


@dataclass(frozen=True)
class Grouped(Operator):
    """Operators on separate groups of channels; their tensors have the groups as first dimension."""

    operator: Operator
    groups: int

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """One grouped convolution, or one operator after the other."""
        if isinstance(self.operator, Kernel):
            return grouped_convolution(x, self.operator.kernel, bias, self.operator.padding_mode)
        operators, parts = self.operator.unstacked(), x.chunk(self.groups, dim=1)
        pieces = zip(operators, parts, self.biases(bias), strict=True)
        return torch.cat([operator.apply(part, shift) for operator, part, shift in pieces], dim=1)

    def biases(self, bias: Tensor | None) -> Sequence[Tensor | None]:
        """The part of each group."""
        return [None] * self.groups if bias is None else bias.chunk(self.groups)


def frequencies(matrices: Tensor, torus: Size, image: Size | None = None) -> Frequencies:
    """`Frequencies` with the DFT that they need; the image fills the torus unless its size is given."""
    columns, rows = real_dft(torus, matrices.dtype, matrices.device)
    lead = matrices.shape[:-3] if columns is None else matrices.shape[:-4]
    columns = None if columns is None else columns.expand(*lead, *columns.shape)
    return Frequencies(matrices, rows.expand(*lead, *rows.shape), columns, image or torus)


def check_size(x: Tensor, image: Size) -> None:
    """Frequency matrices belong to one torus; on another image they would be another layer."""
    if (x.shape[-2], x.shape[-1]) != image:
        raise InvalidInputError(
            f"this layer was transformed for {image[0]} x {image[1]} images, got {x.shape[-2]} x {x.shape[-1]}"
        )


def embedded(x: Tensor, torus: Size) -> Tensor:
    """The image with zeros behind it up to the size of the torus."""
    return F.pad(x, (0, torus[1] - x.shape[-1], 0, torus[0] - x.shape[-2])) if torus != tuple(x.shape[-2:]) else x


def at_frequency_zero(bias: Tensor | None, torus: Size) -> Tensor | None:
    """A constant image b is b sqrt(h w) at the frequency 0, and nothing elsewhere."""
    return None if bias is None else bias * math.sqrt(math.prod(torus))
