"""Plain operations on vectors, as certificate files have them.

An operation knows what the file says about it, its bound and witness, how it acts in float64, and how much a checker
rounds when it computes it with multiples of 2^-40: the same count as in `onelip_check.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.witnesses import UNIT, Geometry, Witness, find_witness

_SAFETY = 1 + 1e-9
"""Covers float64 in the search for a witness; a bound that it did not cover would be refused by the checkers."""


@dataclass(frozen=True)
class Operation:
    """One operation: what the file says about it, and how it acts on a batch (inputs, entries) in float64.

    `run` also returns a bound of what a checker rounds, in units.
    """

    entry: dict[str, Any]
    run: Callable[[Tensor], tuple[Tensor, float]]
    bound: float = 1.0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    rows: Tensor | None = None
    """Of a linear map; a checker looks for the one that makes the scores."""

    def beside(self, rest: int) -> Operation:
        """The operation on the entries from `rest` on; those before stay what they are."""
        if not rest:
            return self

        def run(x: Tensor) -> tuple[Tensor, float]:
            y, rounded = self.run(x[:, rest:])
            return torch.cat([x[:, :rest], y], 1), rounded

        return replace(self, entry=self.entry | {"rest": rest}, run=run, bound=max(1.0, self.bound), rows=None)


def narrowest(tensor: Tensor) -> Tensor:
    """The same numbers in float32 if it can hold them."""
    single = tensor.detach().cpu().float()
    return single if torch.equal(single.double(), tensor.detach().cpu().double()) else tensor.detach().cpu().double()


def _linear_map(
    prefix: str, op: str, weight: Tensor, bias: Tensor | None, geometry: Geometry, witness: Witness, outputs: int = 0
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the file says about weights, geometry and witness, and the tensors of it."""
    entry: dict[str, Any] = {"op": op, "weight": f"{prefix}weight"}
    flat = weight.flatten(1) if op == "linear" else weight
    tensors = {f"{prefix}weight": narrowest(flat)}
    if bias is not None:
        entry["bias"], tensors[f"{prefix}bias"] = f"{prefix}bias", narrowest(bias)
    if op != "linear":
        entry["image"] = [weight.shape[1] - outputs, *geometry.image]
        entry["mode"] = "circular" if geometry.circular else "zeros"
    if op == "sandwich":
        entry["outputs"] = outputs
    if op == "convolution":
        entry |= {"stride": list(geometry.stride), "padding": list(geometry.padding)}
    said: dict[str, Any] = {"side": witness.side}
    if witness.torus is not None:
        said["torus"] = list(witness.torus)
    for name, tensor in (("scaling", witness.scaling), ("columns", witness.columns)):
        if tensor is not None:
            said[name], tensors[f"{prefix}{name}"] = f"{prefix}{name}", tensor
    return entry | {"witness": said}, tensors


def _inexact(weight: Tensor) -> int:
    """Weights that are no multiples of the unit."""
    units = weight.double() / UNIT
    return int((units != units.floor()).sum())


def _applied(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """A convolution of vectors, and its outputs as vectors."""
    image = x.unflatten(1, (weight.shape[1], *geometry.image))
    down, right = geometry.padding
    padded = F.pad(image, (right, right, down, down), mode="circular" if geometry.circular else "constant")
    return F.conv2d(padded, weight, bias, geometry.stride).flatten(1)


def _rounded(x: Tensor, y: Tensor, inexact: int) -> float:
    """Units that a checker may be off by in a linear map: it rounds results, biases and weights downwards."""
    return 2 * math.sqrt(y.shape[1]) + 3 + inexact * (math.sqrt(x.shape[1]) + 1) * float(x.abs().amax())


def convolution(
    prefix: str,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    op: Literal["linear", "convolution"] = "convolution",
) -> Operation:
    """A convolution (out, in, y, x), or a linear map as one of images of one pixel."""
    weight, bias = weight.double(), None if bias is None else bias.double()
    witness, inexact = find_witness(weight, geometry), _inexact(weight)
    entry, tensors = _linear_map(prefix, op, weight, bias, geometry, witness)

    def run(x: Tensor) -> tuple[Tensor, float]:
        y = _applied(x, weight, bias, geometry)
        return y, _rounded(x, y, inexact)

    rows = weight.flatten(1) if op == "linear" else None
    return Operation(entry, run, witness.bound * _SAFETY + (inexact + 4) * UNIT, tensors, rows)


def combination(prefix: str, factors: list[float], entries: int, shift: float = 0.0) -> Operation:
    """a x + b y + ... + shift for vectors one behind the other: a convolution of images with a channel for each."""
    weight = torch.tensor(factors, dtype=torch.float64).reshape(1, -1, 1, 1)
    bias = torch.tensor([shift], dtype=torch.float64) if shift else None
    return convolution(prefix, weight, bias, Geometry((entries, 1)))


def residual(prefix: str, weight: Tensor, shift: Tensor | None, image: tuple[int, int], circular: bool) -> Operation:
    """x - A^T relu(A x + b)."""
    weight, shift = weight.double(), None if shift is None else shift.double()
    return _around_relu(prefix, "residual", weight, shift, _same(weight, image, circular), 0)


def sandwich(
    prefix: str, outer: Tensor, inner: Tensor, bias: Tensor | None, image: tuple[int, int], circular: bool
) -> Operation:
    """V relu(U x + b) with the kernels of V and U."""
    both = torch.cat([_adjoint(outer.double()), inner.double()], 1)
    shift = None if bias is None else bias.double()
    return _around_relu(prefix, "sandwich", both, shift, _same(both, image, circular), len(outer))


def _same(weight: Tensor, image: tuple[int, int], circular: bool) -> Geometry:
    return Geometry(image, (1, 1), (weight.shape[2] // 2, weight.shape[3] // 2), circular)


def _adjoint(weight: Tensor) -> Tensor:
    return weight.flip(2, 3).transpose(0, 1)


def _around_relu(
    prefix: str, op: str, weight: Tensor, shift: Tensor | None, geometry: Geometry, outputs: int
) -> Operation:
    """A residual step with the kernel A, or a sandwich with [V^T U], whose first channels are V^T."""
    witness, inexact = find_witness(weight, geometry, rows="output"), _inexact(weight)
    norm = witness.bound * _SAFETY + (inexact + 4) * UNIT
    entry, tensors = _linear_map(prefix, op, weight, shift, geometry, witness, outputs)
    there, back = weight[:, outputs:], _adjoint(weight[:, :outputs] if outputs else weight)

    def run(x: Tensor) -> tuple[Tensor, float]:
        z = _applied(x, there, shift, geometry)
        y = _applied(z.relu(), back, None, geometry)
        rounded = _rounded(z, y, inexact) + norm * _rounded(x, z, inexact) + 1
        return y if outputs else x - y, rounded

    constant = norm * norm / 2 if outputs else max(1.0, norm * norm - 1)
    return Operation(entry, run, constant * _SAFETY + 4 * UNIT if constant != 1 else 1.0, tensors)


def sorting(group: int) -> Operation:
    """Entries i, i + n, i + 2 n, ... in falling order."""

    def run(x: Tensor) -> tuple[Tensor, float]:
        return x.unflatten(1, (group, -1)).sort(dim=1, descending=True).values.flatten(1), 0.0

    return Operation({"op": "sort", "group": group}, run)


RELU = Operation({"op": "relu"}, lambda x: (x.relu(), 0.0))
ABS = Operation({"op": "abs"}, lambda x: (x.abs(), 0.0))


def gather(prefix: str, index: Tensor) -> Operation:
    """Entries by their places; those at -1 are zeros."""
    copies = int(torch.bincount(index[index >= 0], minlength=1).amax())

    def run(x: Tensor) -> tuple[Tensor, float]:
        return F.pad(x, (0, 1))[:, index], 0.0

    bound = math.sqrt(copies) * (1.0 if copies == 1 else _SAFETY)
    return Operation({"op": "gather", "index": f"{prefix}index"}, run, bound, {f"{prefix}index": index.int()})
