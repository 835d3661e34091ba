#!/usr/bin/env python3
"""Check a certificate of onelip: every bound from its witness, every score, margin and radius from weights and inputs.

    onelip-check images.cert                 (or: python onelip_check.py images.cert, this file copied alone)
    onelip-check images.cert --images 20     checks all bounds, and 20 of the images

This program needs Python 3.11 and nothing else: no torch, no numpy, no onelip. All arithmetic is on integers. A real
number is a multiple of U = 2^-40, rounded where it has to be, and what rounding can change is counted as an integer
too. docs/certificate_format.md defines the file and proves the four facts that are used here:

1. Completed rows. A convolution A with p rows, any further columns R and positive d_1, ..., d_p:
   ||A||^2 <= ||[A R]||^2 <= max_i sum_j sum_t |G_ij(t)| d_j / d_i, where G is the autocorrelation of the rows of [A R].
2. x - A^T relu(A x + b) has the constant max(1, ||A||^2 - 1), and V relu(U x + b) has ||[V^T U]||^2 / 2.
3. Constants of operations, one applied after the other, multiply; so does an error on its way to the scores.
4. If y_p - y_j > D_j r for all j, where D_j is a constant of the difference y_p - y_j, then no input within the
   distance r has a class j before p.

Exit code 0: everything follows. 1: something does not. 2: wrong use. 3: nothing wrong in the part that was checked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isqrt, prod
from operator import mul
from typing import Any

BITS = 40  # a number n stands for n U, with U = 2^-40
ONE = 1 << BITS
LARGEST = 1 << 22  # every number of the file is below
LARGEST_NUMBER = LARGEST << BITS
LARGEST_ROW = 1 << 60  # the sum of the magnitudes in a row of weights is below 2^20
LARGEST_VALUE = 1 << 55  # activations are below 2^15
LONGEST = 1 << 26  # entries of a vector
ENTRIES = 1 << 15  # of an object or a list of JSON
SLOT = 128  # bits that an integer has in a packed vector
BATCH = 64  # inputs that are computed at once
KINDS = {"F32": ("f", 4), "F64": ("d", 8), "I32": ("i", 4), "I64": ("q", 8), "U8": ("B", 1)}
OPERATIONS: dict[str, tuple[str, ...]] = {  # the fields of each operation; `bias` and `rest` may be left out
    "linear": ("weight", "bias", "witness"),
    "convolution": ("weight", "bias", "image", "stride", "padding", "mode", "witness"),
    "residual": ("weight", "bias", "image", "mode", "witness"),
    "sandwich": ("weight", "bias", "image", "outputs", "mode", "witness"),
    "gather": ("index",),
    "sort": ("group",),
    "relu": (),
    "abs": (),
}


class NotProvenError(Exception):
    """Something in the file does not follow, or is not what the format says."""


def need(condition: bool, message: str) -> None:
    """Stop unless the condition holds."""
    if not condition:
        raise NotProvenError(message)


# The file: a safetensors file with the certificate as JSON in the tensor "certificate".


def strict_json(text: bytes) -> Any:
    """JSON of objects, lists, strings and integers from 0 to 10 digits; no key twice, no fraction, no constant."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        need(len(found) <= ENTRIES, "JSON: too many entries")
        need(len(found) == len(pairs), "JSON: a key occurs twice")
        return found

    def integer(digits: str) -> int:
        need(digits.isdigit() and len(digits) <= 10, "JSON: numbers must be integers from 0 of at most 10 digits")
        return int(digits)

    def refuse(_: str) -> None:
        raise NotProvenError("JSON: fractions, exponents and constants such as NaN are not allowed")

    need(b"\\" not in text and text.isascii(), "JSON: text must be ASCII without escapes")
    said = text.decode("ascii")  # of bytes, json would guess the encoding
    try:
        return json.loads(said, object_pairs_hook=unique, parse_int=integer, parse_float=refuse, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise NotProvenError(f"JSON: {error}") from None


def fields(value: Any, required: tuple[str, ...], optional: tuple[str, ...], what: str) -> dict[str, Any]:
    """The object, if it has the required fields and no others than these and the optional ones."""
    need(isinstance(value, dict), f"{what} must be a JSON object")
    need(set(required) <= set(value), f"{what} lacks {', '.join(sorted(set(required) - set(value)))}")
    unknown = set(value) - set(required) - set(optional)
    need(not unknown, f"{what} has the unknown field {min(unknown, default='')}")
    return value


def counts(value: Any, length: int, what: str, least: int = 1) -> list[int]:
    """A list of so many integers of at least `least`."""
    need(isinstance(value, list) and len(value) == length, f"{what} must be a list of {length} integers")
    need(all(type(entry) is int and entry >= least for entry in value), f"{what} must hold integers from {least}")
    return value


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file: its type, its shape and its bytes."""

    kind: str
    shape: list[int]
    data: bytes

    def entries(self) -> array:
        """The numbers, as they are."""
        values = array(KINDS[self.kind][0])
        values.frombytes(self.data)
        if sys.byteorder == "big":
            values.byteswap()
        return values


def read_tensors(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors file, which fill it without gaps, and its metadata."""
    need(len(data) >= 8, "the file is shorter than a safetensors file can be")
    length = int.from_bytes(data[:8], "little")
    need(length <= min(len(data) - 8, 1 << 24), "the header is longer than the file or 16 MiB")
    header = strict_json(data[8 : 8 + length])
    need(isinstance(header, dict), "the header must be a JSON object")
    metadata = fields(header.pop("__metadata__", None), ("certificate_sha256",), (), "__metadata__")
    body, tensors, ends = memoryview(data)[8 + length :], {}, {0}
    for name, value in header.items():
        entry = fields(value, ("dtype", "shape", "data_offsets"), (), f"tensor {name}")
        start, end = counts(entry["data_offsets"], 2, f"data_offsets of {name}", 0)
        kind, shape = entry["dtype"], entry["shape"]
        need(isinstance(kind, str) and kind in KINDS, f"tensor {name}: dtype is none of {', '.join(KINDS)}")
        need(isinstance(shape, list) and 0 < len(shape) <= 4, f"tensor {name} must have one to four dimensions")
        counts(shape, len(shape), f"shape of {name}")
        need(end - start == prod(shape) * KINDS[kind][1], f"tensor {name}: data_offsets do not fit the shape")
        need(end <= len(body) and end not in ends, f"tensor {name} lies outside of the file or on another one")
        tensors[name] = Tensor(kind, shape, bytes(body[start:end]))
        ends.add(end)
    starts = {entry["data_offsets"][0] for entry in header.values()}
    need(starts | {len(body)} == ends and len(starts) == len(tensors), "tensors must fill the file without gaps")
    return tensors, metadata


class File:
    """Certificate and tensors of a file whose hashes are right; every tensor is used exactly once."""

    def __init__(self, data: bytes) -> None:
        self.tensors, metadata = read_tensors(data)
        text = self.take("certificate", "U8", 1).data
        need(metadata["certificate_sha256"] == hashlib.sha256(text).hexdigest(), "SHA-256 of the certificate differs")
        self.certificate = fields(
            strict_json(text), ("format", "version", "operations", "tensors"), (), "the certificate"
        )
        need(self.certificate["format"] == "onelip certificate", 'format must be "onelip certificate"')
        need(counts([self.certificate["version"]], 1, "version") == [1], "version must be 1")
        hashes = fields(self.certificate["tensors"], tuple(self.tensors), (), "tensors")
        for name, tensor in self.tensors.items():
            need(hashes[name] == hashlib.sha256(tensor.data).hexdigest(), f"SHA-256 of the tensor {name} differs")

    def take(self, name: Any, kinds: str, dimensions: int) -> Tensor:
        """The tensor of this name, of one of these types and so many dimensions."""
        need(isinstance(name, str) and name in self.tensors, f"there is no tensor {name}, or it is used twice")
        tensor = self.tensors.pop(name)
        need(tensor.kind in kinds.split(), f"tensor {name} must have the type {kinds}")
        need(len(tensor.shape) == dimensions, f"tensor {name} must have {dimensions} dimensions")
        return tensor

    def numbers(self, name: Any, dimensions: int, sign: int = 1) -> tuple[list[int], list[int], int]:
        """Floats as multiples of U, rounded downwards (upwards with sign -1); the shape; how many had to be rounded."""
        tensor = self.take(name, "F32 F64", dimensions)
        found, rounded = [], 0
        try:
            for value in tensor.entries():
                numerator, denominator = value.as_integer_ratio()
                need(abs(numerator) < denominator * LARGEST, f"tensor {name} holds a number of 2^22 or more")
                found.append(sign * ((sign * numerator << BITS) // denominator))
                rounded += denominator > ONE
        except (ValueError, OverflowError):
            raise NotProvenError(f"tensor {name} holds an infinity or NaN") from None
        return found, tensor.shape, rounded

    def integers(self, name: Any, kind: str) -> list[int]:
        """A list of integers."""
        return list(self.take(name, kind, 1).entries())


# Vectors of B integers as one integer: entry b stands in the bits from 128 b on, and negative ones borrow.


def packed(values: list[int]) -> int:
    """Vector of integers between -2^127 and 2^127 as one integer; adding and scaling act on all at once."""
    half = 1 << (SLOT - 1)
    return int.from_bytes(b"".join([(value + half).to_bytes(SLOT // 8, "little") for value in values]), "little") - (
        half * ones(len(values))
    )


def ones(count: int) -> int:
    """Packed vector of ones."""
    return ((1 << (SLOT * count)) - 1) // ((1 << SLOT) - 1)


def unpacked(vector: int, count: int) -> list[int]:
    """Inverse of `packed`."""
    half = 1 << (SLOT - 1)
    data, size = (vector + half * ones(count)).to_bytes(SLOT // 8 * count, "little"), SLOT // 8
    return [int.from_bytes(data[at : at + size], "little") - half for at in range(0, len(data), size)]


def up(number: int, divisor: int = ONE) -> int:
    """Quotient, rounded upwards."""
    return -(-number // divisor)


def root(number: int) -> int:
    """Square root, rounded upwards."""
    return isqrt(number - 1) + 1 if number > 0 else 0


# Linear operations and the bounds of their norms.


@dataclass
class Convolution:
    """Rows of weights on patches of an image; a linear map is a convolution of an image of one pixel."""

    weight: list[list[int]]  # one row per output channel, in the order (input channel, y, x)
    bias: list[int]
    inexact: int  # weights that were rounded, each by less than U
    channels: int
    image: list[int]  # height and width, and so on
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    circular: bool

    @property
    def output(self) -> list[int]:
        """Height and width of the output."""
        sides = zip(self.image, self.kernel, self.stride, self.padding, strict=True)
        return [(side + 2 * pad - kernel) // stride + 1 for side, kernel, stride, pad in sides]

    def place(self, at: int, tap: int, axis: int) -> int:
        """Input coordinate that a tap reads for the output coordinate `at`; -1 stands for a zero."""
        read = at * self.stride[axis] + tap - self.padding[axis]
        if self.circular:
            return read % self.image[axis]
        return read if 0 <= read < self.image[axis] else -1

    def patches(self) -> Iterator[list[int]]:
        """For each output pixel the entries that its row is multiplied with, -1 for zeros."""
        (height, width), (kernel_height, kernel_width) = self.image, self.kernel
        for at_y in range(self.output[0]):
            rows = [self.place(at_y, tap, 0) for tap in range(kernel_height)]
            for at_x in range(self.output[1]):
                columns = [self.place(at_x, tap, 1) for tap in range(kernel_width)]
                inside = [y * width + x if y >= 0 and x >= 0 else -1 for y in rows for x in columns]
                size = height * width
                yield [channel * size + at if at >= 0 else -1 for channel in range(self.channels) for at in inside]

    def taps(self, torus: list[int], side: str) -> dict[tuple[int, int], list[list[int]]]:
        """The map as a convolution of stride 1 of the pixel-unshuffled image: columns[k][i] for every shift.

        With side "input" the roles of outputs and inputs are exchanged; shifts change sign, which no norm notices.
        Shifts are taken modulo the torus, if there is one.
        """
        (kernel_height, kernel_width), (down, right) = self.kernel, self.stride
        outputs, inner = len(self.weight), self.channels * down * right
        columns, rows = (inner, outputs) if side == "output" else (outputs, inner)
        found: dict[tuple[int, int], list[list[int]]] = {}
        for tap in range(kernel_height * kernel_width):
            y, x = tap // kernel_width - self.padding[0], tap % kernel_width - self.padding[1]
            shift = wrapped(y // down, x // right, torus)
            matrix = found.setdefault(shift, [[0] * rows for _ in range(columns)])
            for channel in range(self.channels):
                inside = (channel * down + y % down) * right + x % right
                entry = channel * kernel_height * kernel_width + tap
                for output, row in enumerate(self.weight):
                    k, i = (inside, output) if side == "output" else (output, inside)
                    matrix[k][i] += row[entry]
        return found


def wrapped(y: int, x: int, torus: list[int]) -> tuple[int, int]:
    """Shift modulo the torus."""
    return (y % torus[0], x % torus[1]) if torus else (y, x)


Taps = dict[tuple[int, int], list[list[int]]]


def row_sums(kernels: list[Taps], torus: list[int], scaling: list[int]) -> list[int]:
    """For every row i an upper bound of sum_j sum_t |G_ij(t)| d_j / d_i, in units of U^2.

    G is the sum of the autocorrelations of the kernels, which is that of the rows of all of them side by side.
    """
    count = len(scaling)
    products: dict[tuple[int, int], list[tuple[list[list[int]], list[int]]]] = {}
    for taps in kernels:
        vectors = {shift: [packed(column) for column in columns] for shift, columns in taps.items()}
        for (y, x), columns in taps.items():
            for (other_y, other_x), partner in vectors.items():
                shift = wrapped(other_y - y, other_x - x, torus)
                products.setdefault(shift, []).append((columns, partner))
    sums = [0] * count
    for pairs in products.values():
        partner = [vector for _, vectors_of_pair in pairs for vector in vectors_of_pair]
        for i in range(count):
            own = [column[i] for columns, _ in pairs for column in columns]
            correlation = unpacked(sum(map(mul, own, partner)), count)
            sums[i] += sum(map(mul, map(abs, correlation), scaling))
    need(max(sums) < 1 << 127, "the sum of a row is too large")
    return [up(total, own) for total, own in zip(sums, scaling, strict=True)]


def witnessed_sums(file: File, value: Any, conv: Convolution) -> list[int]:
    """`row_sums` of a convolution that is completed by the columns of its witness."""
    witness = fields(value, ("side",), ("scaling", "columns", "torus"), "witness")
    need(witness["side"] in ("input", "output"), "side must be input or output")
    torus = counts(witness["torus"], 2, "torus") if "torus" in witness else []
    for length, image, stride, padding in zip(torus, conv.image, conv.stride, conv.padding, strict=False):
        need(length == up(image if conv.circular else image + 2 * padding, stride), "torus is not that of the image")
    kernels = [conv.taps(torus, witness["side"])]
    rows = len(next(iter(kernels[0].values()))[0])
    if "columns" in witness:
        entries, (height, width, columns, own), _ = file.numbers(witness["columns"], 4)
        need(own == rows, f"columns of a witness must have the last dimension {rows}")
        need(not torus or (height <= torus[0] and width <= torus[1]), "columns of a witness are larger than its torus")
        steps = [entries[at : at + rows] for at in range(0, len(entries), rows)]
        shifts = [(y, x) for y in range(height) for x in range(width)]
        kernels.append({shift: steps[k * columns : (k + 1) * columns] for k, shift in enumerate(shifts)})
    for i in range(rows):
        total = sum(abs(column[i]) for taps in kernels for columns_of_tap in taps.values() for column in columns_of_tap)
        need(total < LARGEST_ROW, "a row of weights and witness has magnitudes of 2^20 or more in all")
    scaling = file.integers(witness["scaling"], "I32") if "scaling" in witness else [1] * rows
    need(len(scaling) == rows and min(scaling) > 0, f"scaling of a witness must be {rows} positive integers")
    return row_sums(kernels, torus, scaling)


# Operations: each knows its sizes, a proven constant, and how to compute itself with the error that rounding makes.

Values = list[list[int]]  # for every entry the values of a batch of inputs, as multiples of U


@dataclass
class Operation:
    """One step of the network."""

    name: str
    length: int  # entries of the output
    constant: int  # proven, in units of U
    run: Callable[[Values], tuple[Values, int]]  # outputs for exact inputs, and a bound of their error's norm
    conv: Convolution | None = None
    index: list[int] = field(default_factory=list)


def largest(values: Values) -> int:
    """Largest magnitude."""
    return max(max(map(abs, entry)) for entry in values)


def convolve(conv: Convolution, values: Values) -> tuple[Values, int]:
    """Weights times patches plus bias, rounded downwards to multiples of U."""
    count, size = len(values[0]), largest(values)
    need(size < LARGEST_VALUE, "an activation reaches 2^15")
    vectors = [packed(entry) for entry in values] + [0]  # the last one is what index -1 finds
    shifts = [bias * ONE * ones(count) for bias in conv.bias]
    for row, bias in zip(conv.weight, conv.bias, strict=True):
        need((sum(map(abs, row)) * size >> BITS) + abs(bias) < LARGEST_VALUE, "an activation may reach 2^15")
    outputs: list[list[list[int]]] = [[] for _ in conv.weight]
    for patch in conv.patches():
        inputs = [vectors[at] for at in patch]
        for row, shift, output in zip(conv.weight, shifts, outputs, strict=True):
            sums = unpacked(sum(map(mul, row, inputs)) + shift, count)
            output.append([total >> BITS for total in sums])
    result = [entry for output in outputs for entry in output]
    # Rounded are each result and each bias, by less than U, and weights that are no multiples of U.
    return result, 2 * root(len(result)) + up(conv.inexact * root(len(values)) * size)


def read_convolution(file: File, entry: dict[str, Any], length: int) -> Convolution:
    """Weights and geometry of a linear map, a convolution or the inner map of a residual step."""
    if entry["op"] == "linear":
        weight, (outputs, channels), inexact = file.numbers(entry["weight"], 2)
        kernel, image, stride, padding, circular = [1, 1], [channels, 1, 1], [1, 1], [0, 0], False
        need(channels == length, f"weight takes {channels} entries, but there are {length}")
    else:
        weight, (outputs, channels, *sides), inexact = file.numbers(entry["weight"], 4)
        kernel, image = sides, counts(entry["image"], 3, "image")
        stride = counts(entry.get("stride", [1, 1]), 2, "stride")
        padding = counts(entry.get("padding", [sides[0] // 2, sides[1] // 2]), 2, "padding", 0)
        need(entry["mode"] in ("zeros", "circular"), "mode must be zeros or circular")
        circular = entry["mode"] == "circular"
        behind = counts([entry.get("outputs", 0)], 1, "outputs", 0)[0]  # channels of weight that no input has
        need(
            image[0] + behind == channels and prod(image) == length,
            "image does not fit the weight or what comes before",
        )
    each = len(weight) // outputs
    rows = [weight[at : at + each] for at in range(0, len(weight), each)]
    need(
        max(sum(map(abs, row)) for row in rows) < LARGEST_ROW, "a row of weights has magnitudes of 2^20 or more in all"
    )
    bias = file.numbers(entry["bias"], 1)[0] if "bias" in entry else [0] * outputs
    need(len(bias) == outputs, f"bias must have {outputs} entries")
    conv = Convolution(rows, bias, inexact, channels, image[1:], kernel, stride, padding, circular)
    for side, tap, step, pad, out in zip(conv.image, kernel, conv.stride, conv.padding, conv.output, strict=True):
        need(
            pad < tap and tap <= side + 2 * pad,
            "padding must be smaller than the kernel, the kernel no larger than the padded image",
        )
        need(step <= side + 2 * pad, "stride must be no larger than the padded image")
        need(
            not circular or (side % step == 0 and out * step <= side),
            "circular: the stride must divide the image, the output be no larger",
        )
    need(channels * prod(conv.stride) <= LONGEST, "stride makes more than 2^26 channels")
    need(outputs * prod(conv.output) <= LONGEST, "it has more than 2^26 outputs")
    return conv


def linear(file: File, entry: dict[str, Any], length: int) -> Operation:
    """Linear map or convolution: the root of the largest row sum, and what rounding took from the weights."""
    conv = read_convolution(file, entry, length)
    constant = root(max(witnessed_sums(file, entry["witness"], conv))) + conv.inexact
    outputs = len(conv.weight) * prod(conv.output)
    return Operation(entry["op"], outputs, constant, lambda values: convolve(conv, values), conv)


def adjoint(conv: Convolution, first: int, last: int) -> Convolution:
    """The adjoint of what a convolution of stride 1 makes of some of its channels."""
    area = prod(conv.kernel)
    flipped = [
        [row[channel * area + tap] for row in conv.weight for tap in reversed(range(area))]
        for channel in range(first, last)
    ]
    return replace(conv, weight=flipped, bias=[0] * len(flipped), channels=len(conv.weight))


def residual(file: File, entry: dict[str, Any], length: int) -> Operation:
    """x - A^T relu(A x + b), where A is a convolution with a kernel of odd sides."""
    conv = read_convolution(file, entry, length)
    need(conv.output == conv.image, "the kernel of a residual step must have odd sides")
    norm = root(max(witnessed_sums(file, entry["witness"], conv))) + conv.inexact
    back = adjoint(conv, 0, conv.channels)

    def run(values: Values) -> tuple[Values, int]:
        inner, error = convolve(conv, values)
        change, own = convolve(back, [[max(0, value) for value in row] for row in inner])
        result = [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(values, change, strict=True)]
        return result, own + up(norm * error)

    return Operation("residual", length, max(ONE, up(norm * norm) - ONE), run)


def sandwich(file: File, entry: dict[str, Any], length: int) -> Operation:
    """V relu(U x + b), where [V^T U] is a convolution with a kernel of odd sides; V^T has the first channels of it."""
    both = read_convolution(file, entry, length)
    outputs, area = entry["outputs"], prod(both.kernel)
    need(outputs > 0 and both.output == both.image, "a sandwich needs outputs, and a kernel of odd sides")
    norm = root(max(witnessed_sums(file, entry["witness"], both))) + both.inexact
    there = replace(both, weight=[row[outputs * area :] for row in both.weight], channels=both.channels - outputs)
    back = adjoint(both, 0, outputs)

    def run(values: Values) -> tuple[Values, int]:
        inner, error = convolve(there, values)
        result, own = convolve(back, [[max(0, value) for value in row] for row in inner])
        return result, own + up(norm * error)

    return Operation("sandwich", outputs * prod(both.image), up(norm * norm, 2 * ONE), run)


def gather(file: File, entry: dict[str, Any], length: int) -> Operation:
    """Entries of the input in another order, some of them several times or not at all; -1 makes a zero."""
    index = file.integers(entry["index"], "I32")
    need(min(index) >= -1 and max(index) < length, f"index must hold integers from -1 to {length - 1}")
    copies = [0] * (length + 1)
    for at in index:
        copies[at] += 1

    def run(values: Values) -> tuple[Values, int]:
        zeros = [0] * len(values[0])
        return [values[at] if at >= 0 else zeros for at in index], 0

    return Operation("gather", len(index), root(max(copies[:length]) * ONE * ONE), run, index=index)


def sort(file: File, entry: dict[str, Any], length: int) -> Operation:
    """Entries i, i + n, i + 2 n, ... in falling order, for n = length / group and every i below n."""
    group = entry["group"]
    need(type(group) is int and group >= 2 and length % group == 0, "group must divide the length, and be at least 2")
    step = length // group

    def run(values: Values) -> tuple[Values, int]:
        result: Values = [[]] * length
        for i in range(step):
            members = [sorted(column, reverse=True) for column in zip(*values[i::step], strict=True)]
            result[i::step] = [list(row) for row in zip(*members, strict=True)]
        return result, 0

    return Operation("sort", length, ONE, run)


def entrywise(name: str, function: Callable[[int], int], length: int) -> Operation:
    """relu or abs."""
    return Operation(name, length, ONE, lambda values: ([list(map(function, row)) for row in values], 0))


def read_operation(file: File, entry: Any, length: int) -> Operation:
    """One step of the network, on inputs of this length."""
    name = entry.get("op") if isinstance(entry, dict) else None
    if not isinstance(name, str) or name not in OPERATIONS:
        raise NotProvenError(f"op must be one of {', '.join(OPERATIONS)}")
    required = tuple(key for key in OPERATIONS[name] if key != "bias")
    fields(entry, ("op", *required), ("rest", "bias") if "bias" in OPERATIONS[name] else ("rest",), "the operation")
    rest = counts([entry.get("rest", 0)], 1, "rest", 0)[0]
    need(rest < length, "rest must be smaller than the length")
    length -= rest
    if name in ("relu", "abs"):
        operation = entrywise(name, abs if name == "abs" else lambda value: max(value, 0), length)
    else:
        known = {"residual": residual, "sandwich": sandwich, "gather": gather, "sort": sort}
        operation = known.get(name, linear)(file, entry, length)
    need(rest + operation.length <= LONGEST, "it has more than 2^26 outputs")
    return beside(rest, operation) if rest else operation


def beside(rest: int, operation: Operation) -> Operation:
    """The operation on the entries from `rest` on; those before stay what they are."""

    def run(values: Values) -> tuple[Values, int]:
        result, error = operation.run(values[rest:])
        return values[:rest] + result, error

    constant = max(ONE, operation.constant)
    return Operation(f"{operation.name} beside others", rest + operation.length, constant, run)


# The whole certificate.


@contextmanager
def at_place(place: str) -> Iterator[None]:
    """What is refused inside is said with its place."""
    try:
        yield
    except NotProvenError as error:
        raise NotProvenError(f"{place}: {error}") from None


class Check:
    """Checks one file: bounds when it is made, then images, as many as are asked for."""

    def __init__(self, data: bytes, tell: Callable[[str], None] = lambda _: None) -> None:
        self.file = file = File(data)
        self.scale = file.numbers("input_scale", 1, -1)[0][0]
        need(self.scale > 0, "input_scale must be positive")
        inputs, (self.images, length), self.rounded = file.numbers("inputs", 2)
        self.inputs = [inputs[at : at + length] for at in range(0, len(inputs), length)]
        entries = file.certificate["operations"]
        need(isinstance(entries, list) and len(entries) > 0, "operations must be a list that is not empty")
        need(len(entries) <= ENTRIES, "JSON: too many entries")
        claimed = file.numbers("bounds", 1)[0]
        need(len(claimed) == len(entries), "bounds must hold one number for each operation")
        self.operations: list[Operation] = []
        for number, (entry, bound) in enumerate(zip(entries, claimed, strict=True)):
            with at_place(f"operation {number}"):
                operation = read_operation(file, entry, length)
            proven = f"{bound / ONE:.9f} is claimed, {operation.constant / ONE:.9f} is proven"
            tell(f"operation {number} of {len(entries)}, {operation.name}: {proven}")
            need(
                operation.constant <= bound,
                f"operation {number}, {operation.name}: its bound does not follow: {proven}",
            )
            self.operations.append(operation)
            length = operation.length
        self.constants = [bound + 1 for bound in claimed]
        self.classes = length
        self.read_claims()

    def read_claims(self) -> None:
        """What the file says about each image."""
        scores, shape, _ = self.file.numbers("scores", 2)
        need(
            shape == [self.images, self.classes] and self.classes > 1,
            "scores must have a row per image, an entry per class",
        )
        self.scores = [scores[at : at + self.classes] for at in range(0, len(scores), self.classes)]
        self.errors = self.file.numbers("errors", 1)[0]
        self.margins, self.radii = (self.file.numbers(name, 1, -1)[0] for name in ("margins", "radii"))
        self.predictions = self.file.integers("predictions", "I64")
        columns = (self.errors, self.margins, self.radii, self.predictions)
        need(
            all(len(column) == self.images for column in columns), "errors, margins, radii, predictions: one per image"
        )
        need(min(self.radii) >= 0, "radii must not be negative")
        need(min(self.predictions) >= 0 and max(self.predictions) < self.classes, "predictions must be classes")
        need(not self.file.tensors, f"the tensor {min(self.file.tensors, default='')} is not used")
        self.head, self.rows = self.find_head()
        self.constant = ONE
        for bound in self.constants[: self.head]:
            self.constant = up(self.constant * bound)
            need(self.constant < LARGEST_NUMBER, "the product of the bounds is too large")

    def find_head(self) -> tuple[int, list[list[int]]]:
        """Number of operations before the linear map that makes the scores, and its rows; else all, and unit rows."""
        index, zero = list(range(self.classes)), 0
        for number in reversed(range(len(self.operations))):
            operation = self.operations[number]
            if operation.name == "gather":
                index = [operation.index[at] if at >= 0 else -1 for at in index]
            elif operation.name == "linear" and operation.conv is not None:
                rows = operation.conv.weight
                return number, [rows[at] if at >= 0 else [zero] * len(rows[0]) for at in index]
            else:
                break
        return len(self.operations), []

    def distance(self, one: int, other: int) -> int:
        """Constant of the difference of two scores with respect to the input of the head."""
        if not self.rows:
            return root(2 * ONE * ONE)
        squares = sum((a - b) ** 2 for a, b in zip(self.rows[one], self.rows[other], strict=True))
        conv = self.operations[self.head].conv
        return root(squares) + (conv.inexact if conv is not None else 0)

    def check_images(self, first: int, last: int) -> None:
        """Scores, margins and radii of some images."""
        values: Values = [list(entry) for entry in zip(*self.inputs[first:last], strict=True)]
        error = root(len(values)) if self.rounded else 0
        for number, operation in enumerate(self.operations):
            with at_place(f"operation {number}"):
                values, own = operation.run(values)
            error = up(error * self.constants[number]) + own
            need(error < LARGEST_NUMBER, "the error of the scores is too large")
        for image, scores in enumerate(zip(*values, strict=True), start=first):
            with at_place(f"image {image}"):
                self.check_image(image, list(scores), error)

    def check_image(self, image: int, scores: list[int], error: int) -> None:
        """Claims about an image, from scores whose error has at most this norm."""
        claimed, chosen = self.scores[image], self.predictions[image]
        apart = max(abs(a - b) for a, b in zip(scores, claimed, strict=True)) + 1
        need(apart + error <= self.errors[image], "its scores differ from those of the file by more than their error")
        for other, score in enumerate(scores):
            if other == chosen:
                continue
            margin = scores[chosen] - score - 2 * error
            need(self.margins[image] <= margin, f"its margin does not follow from the scores of {chosen} and {other}")
            if self.radii[image] > 0:
                reach = up(up(up(self.radii[image] * self.scale) * self.distance(chosen, other)) * self.constant)
                need(reach < margin, f"its radius does not follow from the scores of {chosen} and {other}")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description="Check a certificate of onelip.", epilog="See docs/certificate_format.md."
    )
    parser.add_argument("file", help="file that `certificate.save` or `onelip certify --proof` wrote")
    parser.add_argument("--images", type=int, metavar="N", help="check only the first N images")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin nothing new after S seconds")
    parser.add_argument("--quiet", action="store_true", help="print the last line only")
    options = parser.parse_args()
    start = time.monotonic()

    def tell(line: str) -> None:
        if not options.quiet:
            print(f"{time.monotonic() - start:7.1f} s  {line}", file=sys.stderr, flush=True)
        if options.seconds is not None and time.monotonic() - start > options.seconds:
            raise TimeoutError(line)

    done = 0
    try:
        with open(options.file, "rb") as handle:
            data = handle.read()
        check = Check(data, tell)
        wanted = check.images if options.images is None else max(0, min(options.images, check.images))
        size = 1
        while done < wanted:
            began, last = time.monotonic(), min(done + size, wanted)
            check.check_images(done, last)
            left = (time.monotonic() - began) / (last - done) * (wanted - last)
            done, size = last, min(2 * size, BATCH)
            tell(f"image {done} of {wanted} follows; about {left:.0f} s left")
    except OSError as error:
        if not isinstance(error, TimeoutError):
            parser.error(str(error))
        print(f"not finished: nothing wrong up to {error}")
        return 3
    except (NotProvenError, MemoryError) as error:
        print(f"NOT CHECKED: {error or 'there is not enough memory'}")
        return 1
    digest = hashlib.sha256(data).hexdigest()
    if done < check.images:
        print(f"partly checked: {len(check.operations)} bounds, {done} of {check.images} images; SHA-256 {digest}")
        return 3
    print(f"checked: {len(check.operations)} bounds, {done} images; SHA-256 {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
