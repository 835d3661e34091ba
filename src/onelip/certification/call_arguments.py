"""What a model is called with: one tensor, a tuple of positional arguments, or a dictionary of keyword arguments.

All floating tensors, those inside lists, tuples and dictionaries too, are the input: for each sample their entries
together are one vector, and distances are measured in its L2 norm. Numbers, words, None, and tensors of integers or
booleans are held fixed.
"""

from __future__ import annotations

import inspect
import reprlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onelip.certification.graph import Shape
from onelip.certification.traced import mapped
from onelip.errors import InvalidInputError

_FIXED = (bool, int, float, str, type(None), torch.dtype, torch.device)
_LARGEST_EXAMPLE = 256


@dataclass(frozen=True)
class _Slot:
    """The place of a floating tensor."""

    number: int


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call: `form` has slots in the places of the floating tensors, `tensors` has these in order."""

    form: Any
    tensors: tuple[Tensor, ...]

    @staticmethod
    def of(x: Any) -> Arguments:
        """The arguments of model(x), of model(*x) for a tuple, of model(**x) for a dictionary."""
        found: list[Tensor] = []
        form = mapped(x, lambda part: _slot_or_fixed(part, found))
        if not found:
            raise InvalidInputError(f"x has no tensor of a floating type, such as float32: got {_described(x)}")
        if any(tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized for tensor in found):
            raise InvalidInputError("x is sparse, nested or quantised, expected ordinary tensors: use x.to_dense()")
        if any(tensor.dim() < 1 or not len(tensor) or len(tensor) != len(found[0]) for tensor in found):
            shapes = " and ".join(str(tuple(tensor.shape)) for tensor in found)
            raise InvalidInputError(f"x has the shape {shapes}, expected (batch, ...) with one batch of at least 1")
        return Arguments(form, tuple(found))

    @staticmethod
    def zeros(given: Any, batch: int, device: torch.device) -> Arguments:
        """Zeros in float64: for shapes without the batch in place of tensors, or like the tensors of an example.

        There are `batch` samples, or as many as an example has fixed tensors for.
        """
        example = example_of(given)
        if example is not None:
            example = example.split(_LARGEST_EXAMPLE)[0]
            form, shapes = example.form, list(example.shapes)
            if any(isinstance(part, Tensor) for _, part in _leaves(form)):
                batch = example.batch
        else:
            shapes = []
            form = mapped(given, lambda part: _slot_of_shape(part, shapes), _is_shape)
        if not shapes or any(length < 1 for shape in shapes for length in shape):
            words = " ".join(reprlib.repr(given).split())
            raise InvalidInputError(
                f"input_shape={words} must be positive numbers without the batch, such as (3, 32, 32), or a tuple "
                "or dictionary of such shapes, one for each argument of the model"
            )
        zeros = (torch.zeros((batch, *shape), dtype=torch.float64, device=device) for shape in shapes)
        return Arguments(form, tuple(zeros))

    @property
    def batch(self) -> int:
        """The number of samples."""
        return len(self.tensors[0])

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Those of the floating tensors, without the batch."""
        return tuple(tuple(tensor.shape[1:]) for tensor in self.tensors)

    @property
    def input_shape(self) -> Shape | tuple[Shape, ...]:
        """The shape of the only floating tensor, or those of several."""
        return self.shapes[0] if len(self.tensors) == 1 else self.shapes

    def to(self, dtype: torch.dtype) -> Arguments:
        """Copies in another type: a model may work in place."""
        return Arguments(self.form, tuple(tensor.to(dtype, copy=True) for tensor in self.tensors))

    def on(self, device: torch.device) -> Arguments:
        """The same on this device."""
        if self.tensors[0].device == device:
            return self
        return Arguments(on_device(self.form, device), tuple(tensor.to(device) for tensor in self.tensors))

    def plain(self) -> Arguments:
        """The same without subclasses of Tensor, which may compute anything; labelled images for instance."""
        return Arguments(self.form, tuple(tensor.as_subclass(Tensor) for tensor in self.tensors))

    def drawn(self, around: Arguments | None) -> Arguments:
        """Random numbers in the places of the floating tensors, in float64, small and large; every other time others.

        With other arguments each second sample is one of theirs, moved a little.
        """
        generator = torch.Generator().manual_seed(secrets.randbits(63))
        options: Any = {"generator": generator, "dtype": torch.float64}
        found = []
        sizes = 10 ** (3 * torch.rand(self.batch, **options) - 1)
        for place, tensor in enumerate(self.tensors):
            numbers, ones = torch.randn(tensor.shape, **options), [1] * (tensor.dim() - 1)
            numbers *= sizes.reshape(-1, *ones)
            if around is not None and self.batch > 1 and tensor.numel():
                picked = torch.randint(around.batch, (len(numbers[1::2]),), generator=generator)
                chosen = around.tensors[place].detach()[picked.to(tensor.device)].cpu().double()
                size = chosen.abs().reshape(len(chosen), -1).amax(1).reshape(-1, *ones)
                numbers[1::2] = chosen + numbers[1::2] * size / 100
            found.append(numbers.to(tensor.device))
        return Arguments(self.form, tuple(found))

    def vectors(self) -> Tensor:
        """(batch, entries): the vector of each sample, in float64."""
        return torch.cat([tensor.double().reshape(self.batch, -1) for tensor in self.plain().tensors], 1)

    def ranges(self) -> Iterator[tuple[str, int, Tensor]]:
        """Of each floating tensor its name, where it begins in the vector, and itself.

        The name says where it stands: "1" is the second argument, "batch.image" is inside of a dictionary.
        """
        first = 0
        for name, part in _leaves(self.form):
            if isinstance(part, _Slot):
                tensor = self.tensors[part.number]
                yield name, first, tensor
                first += tensor[0].numel()

    def split(self, size: int) -> list[Arguments]:
        """Parts of the batch. Fixed tensors that are as long as the batch are split with it."""
        if self.batch <= size:
            return [self]
        return [self.part(slice(start, start + size)) for start in range(0, self.batch, size)]

    def part(self, samples: slice | list[int]) -> Arguments:
        """Some of the samples."""

        def cut(part: Any) -> Any:
            along = isinstance(part, Tensor) and part.dim() > 0 and len(part) == self.batch
            return part[samples] if along else part

        return Arguments(mapped(self.form, cut), tuple(tensor[samples] for tensor in self.tensors))

    def call(self, model: nn.Module, values: Sequence[Any] | None = None) -> Any:
        """The model with these arguments, or with other values in place of the floating tensors."""
        positional, keywords = self.filled(values)
        return model(*positional, **keywords)

    def check_fit(self, model: nn.Module) -> None:
        """Raise where the model's forward does not take so many arguments, or none of these names."""
        positional, keywords = self.filled()
        try:
            inspect.signature(model.forward).bind(*positional, **keywords)
        except TypeError as error:
            raise InvalidInputError(
                f"the model's forward does not take x ({error}): a tuple holds positional arguments, a dictionary "
                "keyword arguments, and (x,) is one argument that is itself a tuple or dictionary"
            ) from None

    def filled(self, values: Sequence[Any] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments."""
        values = self.tensors if values is None else values
        arguments = mapped(self.form, lambda part: values[part.number] if isinstance(part, _Slot) else part)
        if isinstance(arguments, dict):
            return (), arguments
        return (arguments if isinstance(arguments, tuple) else (arguments,)), {}


def example_of(given: Any) -> Arguments | None:
    """The arguments, where they are an example and no shapes."""
    return Arguments.of(given) if any(isinstance(part, Tensor) for _, part in _leaves(given)) else None


def on_device(x: Any, device: torch.device) -> Any:
    """The same arguments with all tensors on a device."""
    return mapped(x, lambda part: part.to(device) if isinstance(part, Tensor) else part)


def labelled(loader: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """The batches (x, labels) of a loader."""
    allowed = "the loader must give batches (x, labels), as a DataLoader or [(x, labels)] does"
    if not isinstance(loader, Iterable):
        raise InvalidInputError(f"{allowed}, got {_described(loader)}")
    for batch in loader:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise InvalidInputError(f"{allowed}, got {_described(batch)} as a batch")
        yield batch[0], batch[1]


def single_tensor(x: Any, what: str) -> Tensor:
    """One tensor (batch, ...), for what knows models of one argument only."""
    if not isinstance(x, Tensor) or x.dim() < 1:
        raise InvalidInputError(f"{what} takes one tensor (batch, ...), got {_described(x)}; join several in a module")
    return x


def _slot_or_fixed(part: Any, found: list[Tensor]) -> Any:
    if isinstance(part, Tensor) and part.is_floating_point():
        found.append(part)
        return _Slot(len(found) - 1)
    if not isinstance(part, _FIXED) and not (isinstance(part, Tensor) and not part.is_complex()):
        raise InvalidInputError(
            f"x has {_described(part)} among its arguments, expected real tensors, numbers, words and None, in tuples, "
            "lists and dictionaries"
        )
    return part


def _slot_of_shape(part: Any, found: list[Shape]) -> Any:
    if not _is_shape(part):
        return part
    found.append(tuple(map(int, part)))
    return _Slot(len(found) - 1)


def _is_shape(part: Any) -> bool:
    """Whole numbers only; True and False are fixed arguments."""
    if not isinstance(part, tuple | list) or not part:
        return False
    return all(hasattr(side, "__index__") and not isinstance(side, bool | Tensor) for side in part)


def _leaves(part: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if type(part) in (tuple, list, dict):
        for key, each in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _leaves(each, f"{name}.{key}" if name else str(key))
    else:
        yield name, part


def _described(value: Any) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
