"""Linear operations on the input, with all else constant.

Those that only move entries give each output the number of the entry it came from. The matrix of a smaller one is
found by giving it unit vectors, and its norm is proven. A larger one of non-negative entries, whose matrix would not
fit into memory, is bounded by ||A||^2 <= max_i (A^T A v)_i / v_i for a positive v (Collatz and Wielandt). Interpolation
acts along each axis by itself. A product with constants, however its letters are written, is a block diagonal matrix
times the identity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.operations.arithmetic import scale, summed_with
from onelip.certification.operations.numbers import magnitude
from onelip.certification.operations.registered import Call, entries, operation, register_function
from onelip.certification.traced import Traced, all_traced, mapped
from onelip.proofs.layer_bound import linear_bound
from onelip.proofs.proven import SAFETY, magnitude_norm_bound, norm_bound

_LARGEST_MATRIX = 2**22
"""Entries of a matrix that is written down."""
_DEPENDS = "it takes two values that depend on the input; only one may"


def _only(call: Call, arguments: Any) -> Traced:
    found = list(all_traced(arguments))
    if len({id(x) for x in found}) != 1:
        raise call.refused(_DEPENDS)
    return found[0]


def _for_batch(call: Call, arguments: Any, x: Traced) -> Callable[[int], Any]:
    """The arguments for batches of other lengths; constants that have the batch must be the same for every input."""

    def constant(part: Any, length: int) -> Any:
        if not isinstance(part, Tensor):
            return part
        part = call.constant(part, "")
        if part.dim() != x.dim() or len(part) != len(x):
            return part
        if not bool((part == part[:1]).all()):
            raise call.refused("its constants differ between the inputs of a batch")
        return part[:1].expand(length, *part.shape[1:])

    return lambda length: mapped(arguments, lambda part: part if part is x else constant(part, length))


def _as_function(
    call: Call, function: Callable[..., Tensor], arguments: Any, keywords: Any
) -> tuple[Traced, Callable[[Tensor], Tensor]]:
    """The call as a function of its only traced argument."""
    x = _only(call, (arguments, keywords))
    given = _for_batch(call, (arguments, keywords), x)

    def apply(t: Tensor) -> Tensor:
        positional, named = mapped(given(len(t)), lambda part: t if part is x else part)
        return function(*positional, **named)

    return x, apply


def _check_apart(call: Call, x: Traced, apply: Callable[[Tensor], Tensor]) -> None:
    """Refuse what mixes the inputs of a batch: the first alone gives the same, and all of them in other places.

    Numbers are drawn for it: those of x may be equal, or zero.
    """
    numbers = torch.rand(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x.device)
    value = apply(numbers)
    if value.dim() < 1 or len(value) != len(x):
        raise call.refused("it mixes the inputs of a batch or drops the batch dimension")
    try:
        again = torch.cat([apply(numbers[:1]), apply(numbers.roll(-1, 0))])
    except (RuntimeError, IndexError):  # constants for a batch of this length
        again = value[:0]
    expected = torch.cat([value[:1], value.roll(-1, 0)])
    if again.shape != expected.shape or not torch.allclose(again, expected, 1e-9, 1e-9 * magnitude(value), True):
        raise call.refused("it mixes the inputs of a batch")


def _register(finish: Callable[..., Traced], function: Callable[..., Tensor], *names: str, **options: Any) -> None:
    """A linear function of its only traced argument; the others may have the batch, the same for every input."""

    @operation(*names, **options)
    def linear(call: Call, *arguments: Any, **keywords: Any) -> Traced:
        x, apply = _as_function(call, function, arguments, keywords)
        if function in (torch.index_add, torch.scatter_add, torch.index_fill):
            call.dim(x, keywords["dim"] if "dim" in keywords else arguments[1])
        return finish(call, x, apply)


def _moved(call: Call, x: Traced, apply: Callable[[Tensor], Tensor]) -> Traced:
    """Entries that move, or are left out."""
    _check_apart(call, x, apply)
    return call.moved(x, apply(x.value), apply, copies=True, fill=0.0)


_register(_moved, torch.tril, "tril")
_register(_moved, torch.triu, "triu")
_register(_moved, torch.rot90, "rot90")
_register(_moved, lambda input, offset=0, dim1=0, dim2=1: input.diagonal(offset, dim1, dim2), "diagonal")
_register(_moved, torch.diag_embed, "diag_embed")
_register(_moved, torch.gather, "gather")
_register(_moved, torch.take_along_dim, "take_along_dim")


def _register_unpool(axes: int) -> None:
    function = getattr(F, f"max_unpool{axes}d")

    @operation(f"max_unpool{axes}d", only=(function,))
    def max_unpool(call: Call, input: Traced, indices: Any, *arguments: Any, **keywords: Any) -> Traced:
        """Entries at constant places."""
        places = call.constant(indices, "where its entries go jumps; only constant indices have a bound")
        if isinstance(places, Tensor):
            _check_different(call, places.flatten(2), 2)
        x, apply = _as_function(call, function, (input, indices, *arguments), keywords)
        return call.moved(x, apply(x.value), apply, view=False)


for _axes in (1, 2, 3):
    _register_unpool(_axes)


# Sums


def linear_map(
    call: Call,
    x: Traced,
    apply: Callable[[Tensor], Tensor],
    extra: int = 0,
    *,
    channels: bool = False,
    nonnegative: bool = True,
) -> Traced:
    """An affine function of each input; of each channel by itself, and the same, if it is said so.

    `extra` roundings make each weight.
    """
    value = apply(x.value)
    _check_apart(call, x, apply)
    shape = (1, 1, *x.shape[2:]) if channels else (1, *x.shape[1:])
    at_zero = apply(torch.zeros(shape, dtype=torch.float64))
    shift = float(torch.linalg.vector_norm(at_zero)) * math.sqrt(x.shape[1] if channels else 1) * SAFETY
    count, outputs = math.prod(shape), at_zero.numel()
    if count * outputs <= _LARGEST_MATRIX:
        matrix = (apply(torch.eye(count, dtype=torch.float64).reshape(count, *shape[1:])) - at_zero).flatten(1)
        norm = norm_bound(matrix.mT) if matrix.numel() else 0.0
        absolute = magnitude_norm_bound(matrix.mT.abs()) if matrix.numel() else 0.0
        terms = int((matrix != 0).sum(0).amax()) if matrix.numel() else 0
    elif not nonnegative:
        raise call.refused("its matrix is too large to look at; use a smaller image")
    else:
        norm = absolute = _norm_of_nonnegative(apply, shape, at_zero)
        terms = count
    # weights that are computed on the way are themselves rounded
    bound = linear_bound(norm, absolute, terms=terms + 4 + extra, outputs=entries(value), bias_norm=shift)
    return call.unary(x, value, bound)


def _norm_of_nonnegative(apply: Callable[[Tensor], Tensor], shape: Sequence[int], at_zero: Tensor) -> float:
    with torch.enable_grad():
        source = torch.zeros(tuple(shape), dtype=torch.float64, requires_grad=True)
        result = apply(source)

        def back(y: Tensor) -> Tensor:
            return torch.autograd.grad(result, source, y, retain_graph=True)[0]

        v = torch.ones_like(source).detach()
        for _ in range(30):
            v = back((apply(v) - at_zero).detach()) + 1e-3 * v
            v = v / v.amax()
        ratio = (back((apply(v) - at_zero).detach()) / v).amax()
    return math.sqrt(float(ratio)) * (1 + 1e-9) * SAFETY


_register(linear_map, torch.index_add, "index_add")
_register(linear_map, torch.scatter_add, "scatter_add")
_register(linear_map, torch.index_fill, "index_fill")
_register(linear_map, F.fold, "fold", only=(F.fold,))


@operation("scatter")
def scatter(call: Call, input: Any, dim: int, index: Any, src: Any = None, value: Any = None) -> Traced:
    """Numbers, or entries, at constant places."""
    if isinstance(src, Tensor):
        _check_different(call, call.constant(index, "where its entries go must not depend on the input"), dim)
    x, apply = _as_function(call, torch.scatter, (input, dim, index, src if value is None else value), {})
    call.dim(x, dim)
    return linear_map(call, x, apply)


def _check_different(call: Call, places: Tensor, dim: int) -> None:
    """Refuse what torch leaves open: which of two entries at one place remains."""
    found = places.sort(dim).values.movedim(dim, -1)
    if bool((found[..., 1:] == found[..., :-1]).any()):
        raise call.refused("two entries go to one place, and which of them is not said")


def _differences(call: Call, x: Traced, run: Any) -> Traced:
    """Differences along a dimension."""
    n, axis = run.keywords["n"], run.keywords["dim"]
    if run.keywords["prepend"] is not None or run.keywords["append"] is not None:
        raise call.refused("prepend and append are not looked into; use torch.cat before")
    value = run(x.value)
    matrix = torch.eye(x.shape[axis], dtype=torch.float64).diff(n, 0)
    norms = (norm_bound(matrix), norm_bound(matrix.abs())) if matrix.numel() else (0.0, 0.0)
    return call.unary(x, value, linear_bound(*norms, terms=2 * n + 2, outputs=entries(value)))


register_function(_differences, lambda input, n=1, dim=-1, prepend=None, append=None: input.diff(n, dim), "diff")


# Interpolation


_SMOOTH = ("linear", "bilinear", "bicubic", "trilinear", "area")


def smooth_interpolation(call: Call, x: Traced, options: dict[str, Any]) -> Traced:
    """Interpolation by weights: a matrix along each axis."""
    mode, axes = options["mode"], x.dim() - 2
    if mode not in _SMOOTH:
        raise call.refused(f"mode={mode!r} has no bound here; use one of nearest, {', '.join(_SMOOTH)}")
    if options["antialias"]:
        sample = functools.partial(F.interpolate, **options)
        return linear_map(call, x, sample, 32 * sum(x.shape[2:]), channels=True, nonnegative=mode != "bicubic")
    value = F.interpolate(x.value, **options)
    norm = magnitude = 1.0
    for axis in range(axes):
        length = x.shape[axis + 2]
        units = torch.eye(length, dtype=torch.float64)
        shape = [length if place == axis else 1 for place in range(axes)]

        def along(given: Any, axis: int = axis, one: float = 1) -> Any:
            if given is None:
                return None
            own = given if isinstance(given, int | float) else given[axis]
            return tuple(own if place == axis else one for place in range(axes))

        each = {**options, "size": along(options["size"]), "scale_factor": along(options["scale_factor"], one=1.0)}
        matrix = F.interpolate(units.reshape(length, 1, *shape), **each).flatten(1).mT
        norm, magnitude = norm * norm_bound(matrix), magnitude * magnitude_norm_bound(matrix.abs())
    # The program computes where pixels lie in its own type: off by some roundings of the length of the image.
    terms = 16 * sum(x.shape[2:]) + 16 * sum(value.shape[2:]) + 4**axes
    return call.unary(x, value, linear_bound(norm * SAFETY, magnitude * SAFETY, terms=terms, outputs=entries(value)))


@operation("grid_sample", only=(F.grid_sample,))
def grid_sample(
    call: Call, input: Traced, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: Any = None
) -> Traced:
    """Pixels at the places of a constant grid."""
    if isinstance(grid, Traced):
        raise call.refused("where its pixels come from depends on the input; use a constant grid")
    sample = functools.partial(
        F.grid_sample, mode=mode, padding_mode=padding_mode, align_corners=align_corners or False
    )
    x, apply = _as_function(call, sample, (call.traced(input), grid), {})
    places = torch.arange(math.prod(x.shape[2:]), dtype=torch.float64).reshape(1, 1, *x.shape[2:])
    if mode == "nearest":
        narrow = sample(places.float(), grid[:1].float())
        if not torch.equal(narrow.double(), apply(places)):
            raise call.refused("float32 and float64 programs pick different pixels; move the grid off the borders")
        return call.moved(x, apply(x.value), apply, copies=True, view=False)
    return linear_map(call, x, apply, extra=64 * sum(x.shape[2:]), channels=True, nonnegative=mode != "bicubic")


# Products


def product(
    call: Call, x: Traced, letters: str, factors: Sequence[tuple[str, Tensor]], result: str, value: Tensor
) -> Traced:
    """sum of x times constants, in Einstein's letters; the batch is the first letter of x.

    Dimensions of length 1 are repeated, as torch does: what x is one entry along, it does not depend on.
    """
    batch, sizes = letters[0], dict(zip(letters, x.shape, strict=True))
    if len(set(letters)) < len(letters) or not result.startswith(batch):
        raise call.refused("it mixes the inputs of a batch, or takes a diagonal of them")
    for written, factor in factors:
        for letter, length in zip(written, factor.shape, strict=True):
            sizes[letter] = length if sizes.get(letter, 1) == 1 else sizes[letter]
    norm, magnitude, terms = 1.0, 1.0, 2
    now = "".join(letter for letter, length in zip(letters[1:], x.shape[1:], strict=True) if length == sizes[letter])
    for place, (written, given) in enumerate(factors):
        named, factor = written, given.expand([sizes[letter] for letter in written])
        if batch in named:
            axis = named.index(batch)
            if not bool((factor == factor.narrow(axis, 0, 1)).all()):
                raise call.refused("its constants differ between the inputs of a batch")
            named, factor = named.replace(batch, ""), factor.select(axis, 0)
        later = {*result, *"".join(other for other, _ in factors[place + 1 :])}
        lost = "".join(dict.fromkeys(letter for letter in named if letter not in now and letter not in later))
        if len(set(named)) < len(named) or lost:
            kept = "".join(dict.fromkeys(letter for letter in named if letter not in lost))
            terms += math.prod(factor.shape)
            named, factor = kept, torch.einsum(f"{named}->{kept}", factor)
        blocks = [letter for letter in named if letter in now and letter in later]
        summed = [letter for letter in named if letter in now and letter not in later]
        new = [letter for letter in named if letter not in now]
        lengths = [math.prod(sizes[letter] for letter in group) for group in (blocks, new, summed)]
        ordered = torch.einsum(f"{named}->{''.join([*blocks, *new, *summed])}", factor).reshape(lengths)
        if ordered.numel():
            norm *= norm_bound(ordered) * SAFETY
            magnitude *= magnitude_norm_bound(ordered.abs()) * SAFETY
        terms += lengths[2] + 1
        now = "".join([letter for letter in now if letter not in summed] + new)
    alone = math.prod(sizes[letter] for letter in now if letter not in result)
    norm, magnitude = norm * math.sqrt(alone) * SAFETY, magnitude * math.sqrt(alone) * SAFETY
    return call.unary(x, value, linear_bound(norm, magnitude, terms=terms + alone, outputs=entries(value)))


@operation("einsum", only=(torch.einsum,))
def einsum(call: Call, equation: Any, *operands: Any) -> Traced:
    """Products with constants."""
    if not isinstance(equation, str):
        raise call.refused("write the equation as a text, such as 'bi,oi->bo'")
    parts = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    names = inputs.split(",")
    if "..." in inputs:
        names, result = _spelled(names, result, [part.dim() for part in parts])
    if not arrow:
        flat = "".join(names)
        result = "".join(sorted(letter for letter in set(flat) if flat.count(letter) == 1))
    if len(parts) == 2 and all(isinstance(part, Traced) for part in parts):
        return _product_of_two(call, parts[0], parts[1], names, result)
    x = _only(call, list(parts))
    if sum(part is x for part in parts) > 1:
        raise call.refused("a product of two values that depend on the input has no Lipschitz constant")
    place = next(number for number, part in enumerate(parts) if part is x)
    constants = [
        (name, call.constant(part, ""))
        for number, (name, part) in enumerate(zip(names, parts, strict=True))
        if number != place
    ]
    spelled = f"{','.join([names[place], *(name for name, _ in constants)])}->{result}"
    value = torch.einsum(spelled, x.value, *(factor for _, factor in constants))
    return product(call, x, names[place], constants, result, value)


def _product_of_two(call: Call, first: Traced, second: Traced, names: Sequence[str], result: str) -> Traced:
    """Blocks of matrices, for which the rule of matmul is asked."""
    one, other = names
    lengths = {**dict(zip(one, first.shape, strict=True)), **dict(zip(other, second.shape, strict=True))}
    blocks = [letter for letter in one if letter in other and letter in result]
    summed = [letter for letter in one if letter in other and letter not in result]
    free = [[letter for letter in name if letter not in both] for name, both in ((one, other), (other, one))]
    order = [*blocks, *free[0], *free[1]]
    if blocks[:1] != [one[0]] or sorted(order) != sorted(result):
        raise call.refused(_DEPENDS)
    if len({*one}) < len(one) or len({*other}) < len(other):
        raise call.refused("it takes a diagonal of a value")

    def matrices(x: Traced, name: str, rows: list[str], columns: list[str]) -> Any:
        sizes = [math.prod(lengths[letter] for letter in group) for group in (rows, columns)]
        turned = x.permute([name.index(letter) for letter in (*blocks, *rows, *columns)])
        return turned.reshape(*[lengths[letter] for letter in blocks], *sizes)

    product = torch.matmul(matrices(first, one, free[0], summed), matrices(second, other, summed, free[1]))
    spread = product.reshape([lengths[letter] for letter in order])
    return spread.permute([order.index(letter) for letter in result])  # type: ignore[return-value]


def _spelled(names: Sequence[str], result: str, dims: Sequence[int]) -> tuple[list[str], str]:
    free = [chr(code) for code in range(65, 91) if chr(code) not in "".join(names)]
    most = max(dim - len(name) + 3 for name, dim in zip(names, dims, strict=True) if "..." in name)
    dots = "".join(free[:most])
    spelled = []
    for name, dim in zip(names, dims, strict=True):
        own = dim - len(name) + 3
        spelled.append(name.replace("...", dots[most - own :] if own else ""))
    return spelled, result.replace("...", dots)


@operation("tensordot", only=(torch.tensordot,))
def tensordot(call: Call, a: Any, b: Any, dims: Any = 2, out: Any = None) -> Traced:
    """Products with a constant over some dimensions."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    first, second = list(letters[: a.dim()]), list(letters[a.dim() : a.dim() + b.dim()])
    if isinstance(dims, int):
        dims = list(range(a.dim() - dims, a.dim())), list(range(dims))
    for left, right in zip(*dims, strict=True):
        second[right] = first[left]
    together = {first[left] for left in dims[0]}
    result = "".join(letter for letter in (*first, *second) if letter not in together)
    return einsum(call, f"{''.join(first)},{''.join(second)}->{result}", a, b)


def matmul_by_blocks(call: Call, first: Any, second: Any) -> Traced:
    """x @ W or W @ x with a constant of any shape: a vector, a matrix, or matrices for places behind the batch."""
    x, in_front = (first, False) if isinstance(first, Traced) else (second, True)
    weight = call.constant(first if in_front else second, "")
    if x.dim() < 2 or weight.dim() > x.dim() or (in_front and x.dim() < 3):
        raise call.refused("a matrix in front of the input would mix the batch; use x @ W.T")
    lead = "".join(chr(97 + place) for place in range(x.dim() - 2))
    if in_front and weight.dim() == 1:
        names, result = "y", f"{lead}z"
    elif weight.dim() == 1:
        names, result = "z", f"{lead}y"
    else:
        blocks = lead[len(lead) - (weight.dim() - 2) :] if weight.dim() > 2 else ""
        names = blocks + ("wy" if in_front else "zw")
        result = lead + ("wz" if in_front else "yw")
    value = torch.matmul(weight, x.value) if in_front else torch.matmul(x.value, weight)
    return product(call, x, f"{lead}yz", [(names, weight)], result, value)


def scaled_and_added(call: Call, input: Any, found: Traced, beta: float, alpha: float) -> Traced:
    """beta * input + alpha * a product."""
    if beta == 0:
        return scale(call, found, float(alpha)) if alpha != 1 else found
    other = scale(call, input, float(beta)) if isinstance(input, Traced) and beta != 1 else input
    if not isinstance(other, Traced) and beta != 1:
        other = call.constant(other, "") * float(beta)
    return summed_with(call, scale(call, found, float(alpha)) if alpha != 1 else found, other)


@operation("baddbmm")
def baddbmm(
    call: Call, input: Any, batch1: Any, batch2: Any, beta: float = 1, alpha: float = 1, out_dtype: Any = None
) -> Traced:
    """beta * input + alpha * x W."""
    if isinstance(batch1, Traced) == isinstance(batch2, Traced):
        raise call.refused("a product of two values that depend on the input has no Lipschitz constant")
    return scaled_and_added(call, input, matmul_by_blocks(call, batch1, batch2), beta, alpha)
