"""A value inside a model that is being traced: its shape is known to the model's code, its numbers are not."""

# pyright: reportIncompatibleVariableOverride=false
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from onelip.proofs.proven import batch_norm_bounds

if TYPE_CHECKING:
    from onelip.certification.graph import Node
    from onelip.certification.tracing import Tracer


_TORCH = os.path.dirname(torch.__file__ or "") + os.sep
_ONELIP = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_users(frame: FrameType) -> bool:
    """Whether code is neither torch's nor onelip's."""
    return not frame.f_code.co_filename.startswith((_TORCH, _ONELIP))


_ABOUT_SHAPES = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "ndim", "device", "layout", "is_cuda", "is_meta")),
    *(getattr(Tensor, name).__get__ for name in ("is_nested", "is_sparse", "is_quantized", "is_mkldnn")),
    *(Tensor.size, Tensor.dim, Tensor.ndimension, Tensor.numel, Tensor.nelement, Tensor.get_device, Tensor.__len__),
}
"""What the model's code may ask of the value itself."""

_ABOUT_TYPES = {
    Tensor.dtype.__get__,  # pyright: ignore[reportAttributeAccessIssue]
    *(Tensor.element_size, Tensor.is_floating_point, Tensor.is_complex),
}
"""What it asks of the type that the program computes in."""


def _true_value(part: Any) -> Any:
    return part.value if isinstance(part, Traced) else part


class Traced(Tensor):
    """A tensor without numbers of its own, so that no code can read or change them unseen."""

    @staticmethod
    def __new__(cls, tracer: Tracer, node: Node, value: Tensor, before: int | None = None) -> Traced:
        """A tensor of this shape, of the type that the program computes in."""
        return Tensor._make_wrapper_subclass(cls, value.shape, dtype=tracer.dtype, device=value.device)

    def __init__(self, tracer: Tracer, node: Node, value: Tensor, before: int | None = None) -> None:
        super().__init__()
        self.tracer, self.node, self.value = tracer, node, value
        self.rows = tracer.rows if before is None else 1
        """Where dimension 0 is (batch * rows): operations take each row for an input of its own."""
        self.before = before
        """None where dimension 0 is the batch. Else the entries are in the order before x batch x after, whatever the
        shape: so many places stand before the batch."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Torch hands over every function that is called with a traced value."""
        kwargs = kwargs or {}
        if function in _ABOUT_SHAPES:
            return function(*(mapped(part, _true_value) for part in args), **mapped(kwargs, _true_value))
        if function in _ABOUT_TYPES:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **kwargs)
        return next(all_traced((args, kwargs))).tracer.call(function, tuple(args), dict(kwargs))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What reaches torch's operators without one of its functions: compiled code."""
        name = str(function.__name__).partition(".")[0]
        raise next(all_traced((args, kwargs or {}))).tracer.refused(name, "it needs true tensors")

    # What does not depend on the numbers

    def shape_without_batch(self) -> tuple[int, ...]:
        """That of one input."""
        return tuple(self.by_input().shape[1:])

    def by_input(self) -> Tensor:
        """The value with the batch as dimension 0."""
        return by_input(self.value, self.before, self.tracer.batch)

    def norms(self) -> Tensor:
        """Upper bounds of the norms of the inputs of the batch."""
        value = self.by_input()
        return batch_norm_bounds(value if self.rows == 1 else value.reshape(len(value) // self.rows, -1))

    @property
    def requires_grad(self) -> bool:
        """Whether the program would record gradients here: the trace is made with either answer."""
        self.tracer.was_asked = True
        return self.tracer.answers_otherwise

    @property
    def data(self) -> Traced:
        """The same value."""
        return self

    def is_contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
        """As Tensor.is_contiguous; inputs may lie in memory in any way, so the trace is made with either answer."""
        self.tracer.was_asked = True
        return self.value.is_contiguous(memory_format=memory_format) != self.tracer.answers_otherwise

    def stride(self, dim: int | None = None) -> Any:
        """As Tensor.stride, and with the other answer that of a tensor whose dimensions lie in reverse order."""
        self.tracer.was_asked = True
        value = self.value
        if self.tracer.answers_otherwise:
            order = tuple(range(value.dim()))[::-1]
            value = value.permute(order).contiguous().permute(order)
        return value.stride() if dim is None else value.stride(dim)

    # What would need the numbers

    def _numbers(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self.tracer.refused(
            "a value",
            "the model's code reads it (if, while, float(), .item(), ...), so that control flow or constants "
            "depend on values; compute with tensors throughout",
        )

    __bool__ = __float__ = __int__ = __index__ = __complex__ = __array__ = __contains__ = _numbers
    item = tolist = numpy = __dlpack__ = data_ptr = untyped_storage = storage = __reduce_ex__ = _numbers

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._numbers() if is_users(sys._getframe(1)) else object.__repr__(self)

    def __format__(self, spec: str) -> str:
        return self._numbers() if is_users(sys._getframe(1)) else object.__repr__(self)

    __str__ = __repr__

    def __iter__(self) -> Iterator[Any]:
        return self._numbers() if self.before is None else iter(self.tracer.call(torch.unbind, (self,), {}))

    def __deepcopy__(self, memo: Any) -> Traced:
        return self.tracer.call(torch.clone, (self,), {})

    def __copy__(self) -> Traced:
        return self.tracer.call(torch.Tensor.detach, (self,), {})

    __hash__ = object.__hash__

    # NumPy's numbers and arrays leave operators to the value that they meet.
    __array_ufunc__ = None

    @property
    def mT(self) -> Traced:  # noqa: N802 - torch's names
        """As Tensor.mT."""
        return self.tracer.call(torch.transpose, (self, -2, -1), {})

    @property
    def T(self) -> Traced:  # noqa: N802
        """As Tensor.T."""
        return self.tracer.call(torch.permute, (self, tuple(range(self.dim()))[::-1]), {})


def by_input(value: Tensor, before: int | None, batch: int) -> Tensor:
    """A value with the batch as dimension 0: (batch, before, after) where it stands elsewhere."""
    if before is None:
        return value
    return value.reshape(before, batch, value.numel() // max(1, before * batch)).transpose(0, 1)


class Jumping:
    """Something that jumps where values change: which entry is the largest, say. Nothing can be done with it."""

    def __init__(self, first: Traced, why: str) -> None:
        self.first, self.why = first, why

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Torch hands over every function that is called with it."""
        next(part for part in nested((args, kwargs or {})) if isinstance(part, Jumping))._refuse()

    def _refuse(self, *_: Any) -> NoReturn:
        raise self.first.tracer.refused("this value", self.why)

    __getattr__ = __getitem__ = __bool__ = __index__ = __int__ = __float__ = __iter__ = __len__ = __invert__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse  # pyright: ignore
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __mod__ = _refuse
    __hash__ = object.__hash__


class Comparison:
    """Which of two values is the larger, entry by entry: of use only to choose between these two values."""

    def __init__(self, first: Traced, second: Any, greater: bool) -> None:
        # What is written into the values afterwards changes nothing here.
        self.first, self.second = (
            Traced(part.tracer, part.node, part.value, part.before) if isinstance(part, Traced) else part
            for part in (first, second)
        )
        self.greater = greater
        self.nodes = first.node, second.node if isinstance(second, Traced) else None

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Only a choice between the values that were compared is known."""
        found = next(value for value in (*args, *(kwargs or {}).values()) if isinstance(value, Comparison))
        return found.first.tracer.call(function, tuple(args), dict(kwargs or {}))

    def __bool__(self) -> bool:
        return bool(self.first)

    def __mul__(self, other: Any) -> Any:
        return other * self if isinstance(other, Traced) else self._jumps()

    __rmul__ = __mul__

    def float(self, *_: Any) -> Comparison:
        """0 and 1, of use as a factor alone."""
        return self

    to = type_as = double = float

    def _jumps(self, *_: Any) -> NoReturn:
        raise self.first.tracer.refused(
            "a comparison", "a comparison of values jumps; use torch.maximum, clamp or relu"
        )

    __getattr__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = __getitem__ = _jumps
    __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __neg__ = __pow__ = _jumps


def _operator(name: str) -> Callable[..., Any]:
    method = getattr(torch.Tensor, name)

    def apply(self: Traced, *args: Any) -> Any:
        return self.tracer.call(method, (self, *args), {})

    return apply


OPERATORS = (
    *("__add__", "__radd__", "__iadd__", "__sub__", "__rsub__", "__isub__", "__mul__", "__rmul__", "__imul__"),
    *("__truediv__", "__itruediv__", "__rtruediv__", "__neg__", "__pos__", "__abs__", "__matmul__", "__rmatmul__"),
    *("__getitem__", "__setitem__", "__pow__", "__rpow__", "__mod__", "__floordiv__", "__invert__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__and__", "__or__", "__xor__"),
)
for _name in OPERATORS:
    setattr(Traced, _name, _operator(_name))


def nested(value: Any) -> Iterator[Any]:
    """All that is inside nested tuples, lists, dictionaries and slices."""
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    if isinstance(value, tuple | list):
        for part in value:
            yield from nested(part)
    elif isinstance(value, dict):
        yield from nested(list(value.values()))
    else:
        yield value


def mapped(value: Any, function: Callable[[Any], Any], is_part: Callable[[Any], bool] = lambda _: False) -> Any:
    """Nested tuples, lists and dictionaries with the function of each part; `is_part` says what else counts as one."""
    if is_part(value) or type(value) not in (tuple, list, dict):
        return function(value)
    if isinstance(value, dict):
        return {key: mapped(part, function, is_part) for key, part in value.items()}
    return type(value)(mapped(part, function, is_part) for part in value)


def all_traced(value: Any) -> Iterator[Traced]:
    """The traced values in nested tuples, lists and dictionaries."""
    return (part for part in nested(value) if isinstance(part, Traced))
