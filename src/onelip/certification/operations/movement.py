"""Entries that are moved, dropped, copied or padded: reshaping, slicing, concatenating.

Nothing is rounded. The constant is sqrt(n) where an entry is there n times, and 1 elsewhere. Dimension 0 is the batch,
and stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import Moved, exactly
from onelip.certification.operations.batch_inside import permuted_batch
from onelip.certification.operations.elementwise import limits_rounding
from onelip.certification.operations.registered import Call, entries, operation
from onelip.certification.traced import Traced, all_traced
from onelip.linalg.layer_bound import Rounding


def _numbers(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes passed one by one or as one sequence."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list | torch.Size) else tuple(sizes)


@operation("reshape", "view", "_unsafe_view", "view_copy")
def reshape(call: Call, input: Traced, *shape: Any, size: Any = None, **keywords: Any) -> Traced:
    """Entries keep their order, so that inputs stay apart if there are as many of them."""
    wanted = keywords.get("shape") or size or _numbers(shape)
    if isinstance(wanted, torch.dtype) or any(isinstance(length, torch.dtype) for length in wanted):
        raise call.refused("it reads the bits of numbers as another type")
    return call.moved(input, input.value.reshape(wanted))


operation("view_as", "reshape_as")(lambda call, input, other: reshape(call, call.traced(input), *other.shape))


@operation("flatten")
def flatten(call: Call, input: Traced, start_dim: int = 0, end_dim: int = -1) -> Traced:
    """Several dimensions become one."""
    return call.moved(input, input.value.flatten(start_dim, end_dim))


@operation("unflatten")
def unflatten(call: Call, input: Traced, dim: int, sizes: Any) -> Traced:
    """One dimension becomes several."""
    return call.moved(input, input.value.unflatten(call.dim(input, dim), tuple(sizes)))


@operation("squeeze")
def squeeze(call: Call, input: Traced, dim: Any = None) -> Traced:
    """Dimensions of length 1 are dropped; the batch, if named or of length 1, must not be."""
    return call.moved(input, input.value.squeeze() if dim is None else input.value.squeeze(call.dims(input, dim)))


@operation("unsqueeze")
def unsqueeze(call: Call, input: Traced, dim: int) -> Traced:
    """A dimension of length 1."""
    if dim % (input.dim() + 1) == 0:
        raise call.refused("a new first dimension takes the place of the batch")
    return call.moved(input, input.value.unsqueeze(dim))


@operation("contiguous", "detach", "alias", "lift_fresh", "requires_grad_")
def same(call: Call, input: Traced, *_: Any, memory_format: Any = None, requires_grad: bool = True) -> Traced:
    """The same entries, in another place at most."""
    return call.moved(input, input.value)


@operation("clone", "lift_fresh_copy")
def clone(call: Call, input: Traced, memory_format: Any = None) -> Traced:
    """A copy with memory of its own."""
    return call.moved(input, input.value, view=False)


@operation("to", "type_as", "_to_copy", "cpu")
def to(call: Call, input: Any, *targets: Any, **keywords: Any) -> Any:
    """Another device or memory format. Another type would round."""
    if not isinstance(input, Traced):  # constants as the values that they meet
        options = {"dtype": call.tracer.dtype, "device": next(all_traced((targets, keywords))).device}
        return input.to(**options)
    x = input
    wanted = [target for target in (*targets, *keywords.values()) if target is not None]
    types = [getattr(target, "dtype", target) for target in wanted]
    if any(isinstance(target, torch.dtype) and target != x.dtype for target in types):
        raise call.refused(f"it converts {x.dtype} to another type; keep one type throughout")
    return call.moved(x, x.value)


operation("float")(lambda call, input, memory_format=None: to(call, input, torch.float32))
operation("double")(lambda call, input, memory_format=None: to(call, input, torch.float64))


def _by(
    call: Call, x: Traced, function: Callable[[Tensor], Tensor], *, copies: bool = False, view: bool = True
) -> Traced:
    """The same function moves the entries of any number of inputs, each by itself."""
    return call.moved(x, function(x.value), function, copies=copies, view=view)


@operation("permute")
def permute(call: Call, input: Traced, *dims: Any, **keywords: Any) -> Traced:
    """Dimensions in another order; from another place than the first the batch has to come back before the end."""
    order = [dim % input.dim() for dim in (keywords.get("dims") or _numbers(dims))]
    if order[0] != 0:
        return permuted_batch(call, input, order)
    return _by(call, input, lambda t: t.permute(order))


@operation("transpose", "swapaxes", "swapdims")
def transpose(call: Call, input: Traced, dim0: int, dim1: int) -> Traced:
    """Two dimensions change places."""
    first, second = call.dim(input, dim0), call.dim(input, dim1)
    return _by(call, input, lambda t: t.transpose(first, second))


@operation("movedim", "moveaxis")
def movedim(call: Call, input: Traced, source: Any, destination: Any) -> Traced:
    """Dimensions in other places."""
    call.dims(input, source)
    call.dims(input, destination)
    return _by(call, input, lambda t: t.movedim(source, destination))


@operation("flip")
def flip(call: Call, input: Traced, *dims: Any, **keywords: Any) -> Traced:
    """Entries in reverse order."""
    chosen = call.dims(input, keywords.get("dims") or _numbers(dims))
    return _by(call, input, lambda t: t.flip(chosen), view=False)


@operation("roll")
def roll(call: Call, input: Traced, shifts: Any, dims: Any = None) -> Traced:
    """Entries moved around a circle."""
    call.dims(input, dims)
    return _by(call, input, lambda t: t.roll(shifts, dims), view=False)


@operation("narrow")
def narrow(call: Call, input: Traced, dim: int, start: int, length: int) -> Traced:
    """A range along one dimension."""
    axis = call.dim(input, dim)
    return _by(call, input, lambda t: t.narrow(axis, start, length))


@operation("exported_slice")
def exported_slice(
    call: Call, input: Traced, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Traced:
    """A range with steps; of the batch only all of it."""
    length = input.shape[dim]
    chosen = slice(start, None if end is None or end >= length else end, step)
    if dim % input.dim() == 0:
        if chosen.indices(length) != (0, length, 1):
            raise call.refused("it picks inputs out of the batch")
        return call.moved(input, input.value)
    axis = dim % input.dim()
    return _by(call, input, lambda t: t[(slice(None),) * axis + (chosen,)])


@operation("select")
def select(call: Call, input: Traced, dim: int, index: int) -> Traced:
    """One place along a dimension."""
    axis = call.dim(input, dim)
    return _by(call, input, lambda t: t.select(axis, index))


@operation("index_select")
def index_select(call: Call, input: Traced, dim: int, index: Tensor) -> Traced:
    """Places along a dimension, some of them perhaps several times."""
    axis = call.dim(input, dim)
    places = call.constant(index, "which entries it takes must not depend on the input")
    return _by(call, input, lambda t: t.index_select(axis, places.to(t.device)), copies=True, view=False)


@operation("__getitem__")
def getitem(call: Call, input: Any, index: Any) -> Traced:
    """x[:, 2:5], x[:, [0, 3]], x[..., 1]: everything but what picks inputs out of the batch."""
    x = call.traced(input, "which entries are taken must not depend on the input")
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, Traced) for part in parts):
        raise call.refused("which entries are taken must not depend on the input")
    first = parts[0] if parts else slice(None)
    named = sum(part is not None and part is not Ellipsis for part in parts)
    whole = isinstance(first, slice) and first.indices(len(x)) == (0, len(x), 1)
    if not whole and (first is not Ellipsis or named >= x.dim()):
        raise call.refused("it picks inputs out of the batch; start with a colon, as in x[:, :10]")
    tail = (slice(None), *parts[1:]) if isinstance(first, slice) else parts
    # Whatever is no number and no range lists places, some perhaps several times: lists, tuples, tensors, arrays.
    lists = sum(not (part is None or part is Ellipsis or isinstance(part, slice | int)) for part in parts)
    if lists > 1:
        raise call.refused("several lists of places at once; take one after the other")
    return _by(call, x, lambda t: t[tail], copies=lists > 0)


def _pieces(call: Call, x: Traced, function: Callable[[Tensor], Sequence[Tensor]]) -> tuple[Traced, ...]:
    values = function(x.value)
    return tuple(
        call.moved(x, value, lambda t, position=position: function(t)[position])
        for position, value in enumerate(values)
    )


@operation("chunk")
def chunk(call: Call, input: Traced, chunks: int, dim: int = 0) -> tuple[Traced, ...]:
    """Equal ranges along a dimension."""
    axis = call.dim(input, dim)
    return _pieces(call, input, lambda t: t.chunk(chunks, axis))


def _register_splits(function: Any, *names: str) -> None:
    @operation(*names)
    def split(call: Call, input: Any = None, sizes: Any = None, dim: int = 0, **keywords: Any) -> tuple[Traced, ...]:
        x = call.traced(keywords.pop("tensor", input))
        axis = call.dim(x, dim)
        wanted = next(iter(keywords.values()), sizes)
        return _pieces(call, x, lambda t: function(t, wanted, axis))


_register_splits(torch.split, "split", "split_with_sizes", "unsafe_split")
_register_splits(torch.tensor_split, "tensor_split")


@operation("unbind")
def unbind(call: Call, input: Traced, dim: int = 0) -> tuple[Traced, ...]:
    """All places along a dimension."""
    axis = call.dim(input, dim)
    return _pieces(call, input, lambda t: t.unbind(axis))


def _joined(call: Call, parts: Sequence[Any], function: Callable[[Sequence[Tensor]], Tensor]) -> Traced:
    """Traced values and constants side by side: the root of the sum of the squares."""
    values = [part.value if isinstance(part, Traced) else part.detach().double() for part in parts]
    value = function(values)

    def indices(position: int) -> Tensor:
        marked, count = [], -1
        for part, plain in zip(parts, values, strict=True):
            count += isinstance(part, Traced)
            shape = (1, *plain.shape[1:])
            if isinstance(part, Traced) and count == position:
                marked.append(torch.arange(1, math.prod(shape) + 1, dtype=torch.float64).reshape(shape))
            else:
                marked.append(torch.zeros(shape, dtype=torch.float64))
        return function(marked).flatten().long() - 1

    fixed = [plain for part, plain in zip(parts, values, strict=True) if not isinstance(part, Traced) and plain.numel()]
    rounding: Rounding = exactly
    if not all(torch.equal(part.to(call.tracer.dtype).double(), part) for part in fixed):
        # Constants of another type than the program's may be rounded to it: 2^24 + 1, or 0.1 in float64.
        rounding = limits_rounding(1.0, max(float(part.abs().amax()) for part in fixed), entries(value))
    pairs = [(part, 1.0) for part in parts if isinstance(part, Traced)]
    return call.add(pairs, value, rounding, facts=(Moved(indices),), joint=True)


@operation("cat", "concat", "concatenate")
def cat(call: Call, tensors: Any, dim: int = 0, axis: int | None = None) -> Traced:
    """Side by side along a dimension that exists."""
    first = next(part for part in tensors if isinstance(part, Traced))
    place = call.dim(first, dim if axis is None else axis)
    return _joined(call, tensors, lambda parts: torch.cat(list(parts), place))


@operation("stack")
def stack(call: Call, tensors: Any, dim: int = 0) -> Traced:
    """Side by side along a new dimension."""
    first = next(part for part in tensors if isinstance(part, Traced))
    place = dim % (first.dim() + 1)
    if place == 0:
        raise call.refused("a new first dimension takes the place of the batch; stack along another one")
    return _joined(call, tensors, lambda parts: torch.stack(list(parts), place))


@operation("expand")
def expand(call: Call, input: Traced, *sizes: Any, implicit: bool = False, **keywords: Any) -> Traced:
    """Copies along dimensions of length 1."""
    wanted = keywords.get("size") or _numbers(sizes)
    if len(wanted) != input.dim() or wanted[0] not in (-1, input.shape[0]):
        raise call.refused("new dimensions before the batch, or a longer batch")
    one = (-1, *wanted[1:])
    return call.moved(input, input.value.expand(one), lambda t: t.expand(one), copies=True)


@operation("expand_as")
def expand_as(call: Call, input: Any, other: Any) -> Any:
    """Copies up to the shape of another."""
    return expand(call, input, *other.shape) if isinstance(input, Traced) else input.expand(other.shape)


@operation("repeat", "tile")
def repeat(call: Call, input: Traced, *repeats: Any, **keywords: Any) -> Traced:
    """Copies along dimensions."""
    wanted = keywords.get("repeats") or keywords.get("dims") or _numbers(repeats)
    if len(wanted) > input.dim() or (len(wanted) == input.dim() and wanted[0] != 1):
        raise call.refused("it repeats the batch")
    return _by(call, input, lambda t: torch.tile(t, wanted), copies=True)


@operation("repeat_interleave")
def repeat_interleave(call: Call, input: Traced, repeats: Any, dim: int | None = None) -> Traced:
    """Each entry several times."""
    axis = call.dims(input, dim)[0]
    return _by(call, input, lambda t: t.repeat_interleave(repeats, axis), copies=True)


def _register_shuffle(function: Callable[..., Tensor], *names: str) -> None:
    @operation(*names)
    def shuffle(call: Call, input: Traced, *arguments: Any, **keywords: Any) -> Traced:
        return _by(call, input, lambda t: function(t, *arguments, **keywords))


_register_shuffle(F.pixel_shuffle, "pixel_shuffle")
_register_shuffle(F.pixel_unshuffle, "pixel_unshuffle")
_register_shuffle(F.channel_shuffle, "channel_shuffle", "native_channel_shuffle")


@operation("pad", "constant_pad_nd")
def pad(call: Call, input: Traced, pad: Any, mode: str = "constant", value: float | None = None) -> Traced:
    """Constants, or copies of pixels, around an image."""
    if isinstance(mode, int | float):  # constant_pad_nd(x, pad, value)
        mode, value = "constant", float(mode)
    if len(pad) > 2 * (input.dim() - 1) and any(pad[2 * (input.dim() - 1) :]):
        raise call.refused("it pads the batch")
    if mode != "constant":
        return _by(call, input, lambda t: F.pad(t, pad, mode=mode), copies=True, view=False)
    number = float(call.constant(value, "what it pads with depends on the input; use torch.cat") or 0.0)
    padded = F.pad(input.value, pad, value=number)
    # Python's number is rounded to the type of the program.
    rounding = exactly if number == 0 else limits_rounding(1.0, abs(number), entries(padded))
    return call.moved(input, padded, lambda t: F.pad(t, pad), view=False, rounding=rounding)


@operation("unfold", only=(F.unfold,))
def unfold(call: Call, input: Traced, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Traced:
    """Patches as columns: a pixel is there once for each patch."""
    return _by(call, input, lambda t: F.unfold(t, kernel_size, dilation, padding, stride), copies=True)


# Numbers that an exported program asks for.
operation("sym_size", "sym_numel")(lambda call, input, dim=None: input.numel() if dim is None else input.shape[dim])
# Of two dimensions a transposition would move the batch, which `transpose` refuses.
operation("t", "adjoint")(lambda call, input: transpose(call, input, -2, -1))


def _register_constants(make: Callable[..., Tensor]) -> None:
    @operation(make.__name__)
    def constants(call: Call, input: Traced, *arguments: Any, **keywords: Any) -> Tensor:
        given = {key: value for key, value in keywords.items() if value is not None}
        return make(input.value, *arguments, **{"dtype": input.dtype, "device": input.device, **given})


for _make in (torch.zeros_like, torch.ones_like, torch.full_like, Tensor.new_zeros, Tensor.new_ones, Tensor.new_tensor):
    _register_constants(_make)
