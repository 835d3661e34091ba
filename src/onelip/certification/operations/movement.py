"""Entries that are moved, dropped, copied or padded: reshaping, slicing, concatenating.

Nothing is rounded. The constant is sqrt(n) where an entry is there n times, and 1 elsewhere. Dimension 0 is the batch,
and stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import Moved, exactly
from onelip.certification.operations.elementwise import limits_rounding
from onelip.certification.operations.numbers import magnitude
from onelip.certification.operations.registered import (
    Call,
    counted,
    entries,
    operation,
    register_function,
    side_by_side,
)
from onelip.certification.traced import Traced, all_traced
from onelip.proofs.layer_bound import Rounding


def _numbers(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes passed one by one or as one sequence."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list | torch.Size) else tuple(sizes)


@operation("reshape", "view", "_unsafe_view", "view_copy")
def reshape(call: Call, input: Traced, *shape: Any, size: Any = None, **keywords: Any) -> Traced:
    """Entries keep their order, so that inputs stay apart if there are as many of them."""
    wanted = keywords.get("shape") or size or _numbers(shape)
    if isinstance(wanted, torch.dtype) or any(isinstance(length, torch.dtype) for length in wanted):
        raise call.refused("it reads the bits of numbers as another type")
    return call.reshaped(input, input.value.reshape(wanted))


@operation("view_as", "reshape_as")
def view_as(call: Call, input: Any, other: Any) -> Any:
    """The shape of another."""
    return reshape(call, input, *other.shape) if isinstance(input, Traced) else input.reshape(other.shape)


@operation("flatten")
def flatten(call: Call, input: Traced, start_dim: int = 0, end_dim: int = -1) -> Traced:
    """Several dimensions become one."""
    return call.reshaped(input, input.value.flatten(start_dim, end_dim))


@operation("unflatten")
def unflatten(call: Call, input: Traced, dim: int, sizes: Any) -> Traced:
    """One dimension becomes several."""
    return call.reshaped(input, input.value.unflatten(dim, tuple(sizes)))


@operation("squeeze")
def squeeze(call: Call, input: Traced, dim: Any = None) -> Traced:
    """Dimensions of length 1 are dropped; the batch, if named or of length 1, must not be."""
    return call.moved(input, input.value.squeeze() if dim is None else input.value.squeeze(call.dims(input, dim)))


@operation("unsqueeze")
def unsqueeze(call: Call, input: Traced, dim: int) -> Traced:
    """A dimension of length 1."""
    if counted(dim, input.dim() + 1) == 0:
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


def _moves(copies: bool = False, view: bool = True, fill: float | None = None) -> Callable[..., Any]:
    """How a movement is registered: what it gives is one value or several."""

    def finish(call: Call, x: Traced, run: Callable[[Tensor], Any]) -> Any:
        value = run(x.value)
        if isinstance(value, Tensor):
            return call.moved(x, value, run, copies=copies, view=view, fill=fill)
        parts = [lambda t, place=place: run(t)[place] for place in range(len(value))]
        return tuple(call.moved(x, part, take, view=view) for part, take in zip(value, parts, strict=True))

    return finish


for _finish, _function, *_names in (
    (_moves(), lambda input, dim, start, length: input.narrow(dim, start, length), "narrow"),
    (_moves(), lambda input, dim, index: input.select(dim, index), "select"),
    (_moves(), lambda input, chunks, dim=0: input.chunk(chunks, dim), "chunk"),
    (_moves(), lambda input, dim=0: input.unbind(dim), "unbind"),
    (_moves(view=False), lambda input, shifts, dims=None: input.roll(shifts, dims), "roll"),
    (_moves(copies=True), lambda input, repeats, dim=None: input.repeat_interleave(repeats, dim), "repeat_interleave"),
    (
        _moves(copies=True, view=False),
        lambda input, dim, index: input.index_select(dim, index.to(input.device)),
        "index_select",
    ),
):
    register_function(_finish, _function, *_names)
register_function(
    _moves(copies=True),
    lambda input, dimension, size, step: input.unfold(dimension, size, step),
    "unfold",
    only=(Tensor.unfold,),
)
register_function(
    _moves(copies=True, fill=0.0),
    lambda input, kernel_size, dilation=1, padding=0, stride=1: F.unfold(input, kernel_size, dilation, padding, stride),
    "unfold",
    only=(F.unfold,),
)


operation("pixel_shuffle")(
    lambda call, input, upscale_factor: _by(call, input, lambda t: F.pixel_shuffle(t, upscale_factor))
)
operation("pixel_unshuffle")(
    lambda call, input, downscale_factor: _by(call, input, lambda t: F.pixel_unshuffle(t, downscale_factor))
)
operation("channel_shuffle", "native_channel_shuffle")(
    lambda call, input, groups: _by(call, input, lambda t: F.channel_shuffle(t, groups))
)


@operation("flip")
def flip(call: Call, input: Traced, *dims: Any, **keywords: Any) -> Traced:
    """Entries in reverse order."""
    chosen = call.dims(input, keywords.get("dims") or _numbers(dims))
    return _by(call, input, lambda t: t.flip(chosen), view=False)


@operation("exported_slice")
def exported_slice(
    call: Call, input: Traced, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Traced:
    """A range with steps; of the batch only all of it."""
    axis, length = counted(dim, input.dim()), input.shape[dim]
    chosen = slice(start, None if end is None or end >= length else end, step)
    if axis == 0:
        if chosen.indices(length) != (0, length, 1):
            raise call.refused("it picks inputs out of the batch")
        return call.moved(input, input.value)
    return _by(call, input, lambda t: t[(slice(None),) * axis + (chosen,)])


@operation("__getitem__")
def getitem(call: Call, input: Any, index: Any) -> Traced:
    """x[:, 2:5], x[:, [0, 3]], x[..., 1]: everything but what picks inputs out of the batch."""
    x = call.traced(input, "which entries are taken must not depend on the input")
    parts = _whole_batch(index if isinstance(index, tuple) else (index,), call.tracer.batch)
    if any(isinstance(part, Traced) for part in parts):
        raise call.refused("which entries are taken must not depend on the input")
    first = parts[0] if parts else slice(None)
    named = sum(_dims_taken(part) for part in parts)
    whole = isinstance(first, slice) and first.indices(len(x)) == (0, len(x), 1)
    if not whole and (first is not Ellipsis or named >= x.dim()):
        raise call.refused("it picks inputs out of the batch; start with a colon, as in x[:, :10]")
    tail = (slice(None), *parts[1:]) if isinstance(first, slice) else parts
    # Whatever is no number and no range lists places, some perhaps several times: lists, tuples, tensors, arrays.
    lists = [not (part is None or part is Ellipsis or isinstance(part, slice | int)) for part in parts]
    numbers = [each or (isinstance(part, int) and any(lists)) for each, part in zip(lists, parts, strict=True)]
    found = [place for place, each in enumerate(numbers) if each]
    if found and found[-1] - found[0] + 1 > len(found):
        raise call.refused("lists of places with a colon between them; take one after the other")
    return _by(call, x, lambda t: t[tail], copies=any(lists))


def _dims_taken(part: Any) -> int:
    """How many dimensions a part of an index stands for: a mask has as many as it has itself."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.dim() if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) else 1


_SIZES = ("split_size", "split_size_or_sections", "split_sizes", "indices_or_sections", "indices", "sections")


def _split(call: Call, input: Any = None, sizes: Any = None, dim: int = 0, *, by: Any, **keywords: Any) -> Any:
    """Parts of these lengths, or between these places."""
    x = call.traced(keywords.get("tensor", input))
    axis, wanted = call.dim(x, dim), next((keywords[name] for name in _SIZES if name in keywords), sizes)
    return _moves()(call, x, lambda t: by(t, wanted, axis))


operation("split", "split_with_sizes", "unsafe_split")(partial(_split, by=torch.split))
operation("tensor_split")(partial(_split, by=torch.tensor_split))


def _joined(
    call: Call, parts: Sequence[Any], function: Callable[[Sequence[Tensor]], Tensor], before: int | None = None
) -> Traced:
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
        rounding = limits_rounding(1.0, magnitude(*fixed), value.numel() // call.tracer.batch)
    pairs = [(part, 1.0) for part in parts if isinstance(part, Traced)]
    return call.add(pairs, value, rounding, facts=(Moved(indices),), joint=True, before=before)


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
    place = counted(dim, first.dim() + 1)
    before = None if place else len(tensors)
    return _joined(call, tensors, lambda parts: torch.stack(list(parts), place), before)


@operation("hstack")
def hstack(call: Call, tensors: Any) -> Traced:
    """Side by side along dimension 1, or along the only one, which is the batch."""
    return cat(call, tensors, min(1, tensors[0].dim() - 1))


@operation("column_stack")
def column_stack(call: Call, tensors: Any) -> Traced:
    """Side by side along dimension 1; numbers, one for each input, are columns."""
    return cat(call, [part.reshape(-1, 1) if part.dim() < 2 else part for part in tensors], 1)


@operation("dstack")
def dstack(call: Call, tensors: Any) -> Traced:
    """Side by side along dimension 2."""
    if any(part.dim() < 2 for part in tensors):
        raise call.refused("numbers, one for each input, would take the place of the batch")
    return cat(call, [part.unsqueeze(2) if part.dim() == 2 else part for part in tensors], 2)


@operation("__setitem__")
def setitem(call: Call, input: Any, index: Any, value: Any) -> None:
    """x[:, 0] = y: some entries are replaced."""
    x = call.traced(input, "it writes into a tensor that does not depend on the input; use torch.cat")
    call.tracer.overwrite(x, index_put(call, x, index, value))


@operation("index_put")
def index_put(call: Call, input: Any, index: Any, value: Any, accumulate: bool = False) -> Traced:
    """A copy with some entries replaced."""
    parts = _whole_batch(_parts(index), call.tracer.batch)
    if accumulate or any(isinstance(part, Traced) for part in parts):
        raise call.refused("which entries are written must not depend on the input, nor are they added to")
    if not isinstance(input, Traced):  # zeros, say, into which the value is written
        fixed = call.constant(input, "")
        if not bool((fixed == fixed[:1]).all()):
            raise call.refused("the constants that it writes into differ between the inputs of a batch")
    x: Any = input
    first = parts[0] if parts else None
    if not (isinstance(first, slice) and first.indices(len(x)) == (0, len(x), 1)):
        raise call.refused("it writes to inputs of the batch; start with a colon, as in x[:, 0] = y")
    place = (slice(None), *parts[1:])
    into = x.value if isinstance(x, Traced) else call.constant(x, "")
    if isinstance(value, Traced) and (value.shape[0] != len(x) or value.dim() != into[place].dim()):
        raise call.refused("what it writes must have the batch first, and as many dimensions as the place")
    if isinstance(value, Traced):
        _check_written(call, x, value, into, place)
    written = value.value if isinstance(value, Traced) else torch.as_tensor(value, dtype=torch.float64)
    if not isinstance(value, Traced) and written.dim() == into[place].dim() and written.shape[0] > 1:
        raise call.refused("what it writes differs between the inputs of a batch")

    def put(into: Tensor, what: Any) -> Tensor:
        result = into.clone()
        result[place] = what
        return result

    nothing, number = torch.zeros((), dtype=torch.float64), isinstance(value, int | float)
    held = number or torch.equal(written.to(call.tracer.dtype).double(), written)
    rounding = (
        exactly
        if held and not (number and value not in (0, 1))
        else limits_rounding(1.0, magnitude(written), entries(x))
    )
    one = torch.zeros((1, *x.shape[1:]), dtype=torch.float64)
    if not isinstance(x, Traced):
        value = call.traced(value)
        return call.moved(value, put(into, value.value), lambda t: put(one, t), copies=True, view=False)
    kept = call.moved(x, put(x.value, nothing), lambda t: put(t, nothing), view=False)
    if not isinstance(value, Traced):
        return call.moved(kept, put(x.value, written), rounding=rounding, view=False)
    placed = call.moved(
        value, put(torch.zeros_like(x.value), value.value), lambda t: put(one, t), copies=True, view=False
    )
    return side_by_side(call, [kept, placed], kept.value + placed.value)


def _check_written(call: Call, x: Any, value: Traced, into: Tensor, place: tuple[Any, ...]) -> None:
    """Refuse what torch leaves open: which of two values at one place remains, and writes onto what is read."""
    count = torch.zeros(into.shape, dtype=torch.float64)
    numbers = torch.arange(count.numel(), dtype=torch.float64).reshape(count.shape)[place].flatten()
    if len(numbers) != len(numbers.unique()):
        raise call.refused("two entries go to one place, and which of them is not said")
    if not isinstance(x, Traced) or value.node.storage is not x.node.storage:
        return
    written, read = into[place], value.value
    memory = torch.zeros(into.untyped_storage().nbytes() // into.element_size(), dtype=torch.bool)
    if read.untyped_storage().data_ptr() == into.untyped_storage().data_ptr():
        memory.as_strided(read.shape, read.stride(), read.storage_offset()).fill_(True)
        if not bool(memory.as_strided(written.shape, written.stride(), written.storage_offset()).any()):
            return
    raise call.refused("it writes onto what it reads; use value.clone()")


def _parts(index: Any) -> tuple[Any, ...]:
    return tuple(index) if isinstance(index, tuple | list) else (index,)


def _whole_batch(parts: tuple[Any, ...], batch: int) -> tuple[Any, ...]:
    """A colon for arange(batch) in front, the usual way to name all inputs beside places."""
    first = parts[0] if parts else None
    if not isinstance(first, Tensor) or first.dtype == torch.bool or first.dim() < 1 or first.numel() != batch:
        return parts
    lists = [part for part in parts[1:] if not (part is None or part is Ellipsis or isinstance(part, slice | int))]
    # With lists beside it, it has to be a column, and they the same for every input: (batch, 1) and (places,).
    column = all(len(first) == batch and torch.as_tensor(part).dim() < first.dim() for part in lists)
    alone = first.dim() == 1 or bool(lists)
    if not (column and alone) or not torch.equal(first.flatten(), torch.arange(batch, device=first.device)):
        return parts
    return (slice(None), *parts[1:])


@operation("expand", "broadcast_to")
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
    return call.moved(input, padded, lambda t: F.pad(t, pad), view=False, rounding=rounding, fill=number)


# Numbers that an exported program asks for.
operation("sym_size", "sym_numel")(lambda call, input, dim=None: input.numel() if dim is None else input.shape[dim])


def _register_constants(make: Callable[..., Tensor]) -> None:
    @operation(make.__name__)
    def constants(call: Call, input: Traced, *arguments: Any, **keywords: Any) -> Tensor:
        given = {key: value for key, value in keywords.items() if value is not None}
        return make(input.value, *arguments, **{"dtype": input.dtype, "device": input.device, **given})


for _make in (torch.zeros_like, torch.ones_like, torch.full_like, Tensor.new_zeros, Tensor.new_ones, Tensor.new_tensor):
    _register_constants(_make)
