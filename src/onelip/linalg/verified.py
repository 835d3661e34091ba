"""Solutions and factorisations that are verified: what LAPACK returns is a suggestion.

After `torch.set_num_threads` the batched LU factorisation of MKL (seen with torch 2.13 on AMD processors, from
160 x 160 on) raises or is silently wrong. Each result here is therefore multiplied back on a few fixed vectors, which
costs a matrix-vector product: the residual A (X v) - B v of a wrong X is of the size of the error for all but a
vanishing share of vectors v. What fails is computed again in another way; if nothing verifies, that is an error.

Where the program cannot look at its numbers (compilers, torch.func, fake tensors) a wrong result becomes NaN instead.
Accelerators have libraries of their own, which are trusted. Matrices are expected to be scaled to about 1 and not to be
badly conditioned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onelip.errors import UnreliableRoutineError
from onelip.linalg import xla_forms
from onelip.linalg.constants import cached_constant
from onelip.linalg.definition import Definition
from onelip.linalg.devices import is_cpu, is_xla
from onelip.linalg.fourier import as_tuple
from onelip.linalg.norms import real_parts, scale_below_one
from onelip.linalg.tensor_modes import may_cache_tensors, wants_plain_operations

_PROBES = 2


def solve(matrix: Tensor, right: Tensor) -> Tensor:
    """X with A X = B for square A (..., n, n) and B (..., n, m)."""
    if is_xla(matrix.device):
        return xla_forms.inverse(matrix) @ right
    if not is_cpu(matrix.device):
        return torch.linalg.solve_ex(matrix, right).result  # the plain routine looks whether it succeeded

    def is_wrong(solution: Tensor) -> Tensor:
        probes = _probes(right.shape[-1], right)
        image = solution @ probes
        return _differ(matrix @ image, right @ probes, image)

    def by_reflections(matrix: Tensor, right: Tensor) -> Tensor:
        unitary, triangular = torch.linalg.qr(matrix)
        return torch.linalg.solve_triangular(triangular, unitary.mH @ right, upper=True)

    routines = torch.linalg.solve, _one_by_one(torch.linalg.solve), by_reflections
    return _verified("solve", routines, is_wrong, (matrix, right), lambda: (matrix @ right,))[0]


def inverse(matrix: Tensor) -> Tensor:
    """A^(-1) of matrices whose Hermitian part is positive definite, of any norm."""
    if is_xla(matrix.device):
        return xla_forms.inverse(matrix)
    if not is_cpu(matrix.device):
        return torch.linalg.inv_ex(matrix).inverse

    def is_wrong(found: Tensor) -> Tensor:
        probes = _probes(matrix.shape[-1], matrix)
        image = found @ probes
        largest = torch.linalg.vector_norm(real_parts(matrix), dim=(-2, -1)).amax(-1)  # row, as large as A about
        return _differ(matrix @ image, probes.expand_as(image), image * largest[..., None, None])

    def by_reflections(matrix: Tensor) -> Tensor:
        unitary, triangular = torch.linalg.qr(matrix)
        return torch.linalg.solve_triangular(triangular, unitary.mH, upper=True)

    routines = unverified_inverse, _one_by_one(torch.linalg.inv), by_reflections
    return _verified("inverse", routines, is_wrong, (matrix,), lambda: (matrix,))[0]


@Definition
def unverified_inverse(matrix: Tensor) -> Tensor:
    """A^(-1) as one routine returns it, of matrices (..., n, n) with A + A^H positive definite."""
    return torch.linalg.inv(matrix)


def eigenvectors(hermitian: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and orthonormal eigenvectors V of Hermitian matrices, H V = V diag(values)."""

    def is_wrong(values: Tensor, vectors: Tensor) -> Tensor:
        """Whether V diag(values) V^H is not H, or V V^H not I."""
        probes = _probes(hermitian.shape[-1], hermitian).expand(*hermitian.shape[:-1], _PROBES)
        coordinates = vectors.mH @ probes
        images = vectors @ torch.cat([values.unsqueeze(-1) * coordinates, coordinates], dim=-1)
        product, same = images.split(_PROBES, dim=-1)
        largest = values.abs().amax(-1)[..., None, None]
        return _differ(product, hermitian @ probes, largest * probes) | _differ(same, probes, probes)

    routines = torch.linalg.eigh, _one_by_one(torch.linalg.eigh)
    like = lambda: (real_parts(hermitian)[..., 0].diagonal(dim1=-2, dim2=-1), hermitian)  # noqa: E731
    values, vectors = _verified("eigh", routines, is_wrong, (hermitian,), like)
    return values, vectors


def cholesky(positive: Tensor) -> Tensor:
    """Lower triangular L with L L^H = A for Hermitian positive definite matrices."""
    if is_xla(positive.device):
        return xla_forms.cholesky(positive)

    def is_wrong(factor: Tensor) -> Tensor:
        probes = _probes(positive.shape[-1], positive)
        image = factor.mH @ probes
        return _differ(factor @ image, positive @ probes, image)

    routines = lambda matrix: torch.linalg.cholesky_ex(matrix).L, _one_by_one(torch.linalg.cholesky)
    return _verified("cholesky", routines, is_wrong, (positive,), lambda: (positive,))[0]


def solve_triangular(factor: Tensor, right: Tensor, *, upper: bool) -> Tensor:
    """X with L X = B or U X = B for triangular factors; not verified, as it is exact row by row."""
    solver = xla_forms.solve_triangular if is_xla(factor.device) else torch.linalg.solve_triangular
    return solver(factor, right, upper=upper)


def orthonormal_columns(matrix: Tensor) -> Tensor:
    """Orthonormal columns Q (..., m, n) that span those of V (..., m, n), m >= n, of entries up to 1."""
    if is_xla(matrix.device):
        return xla_forms.orthonormal_columns(scale_below_one(matrix))

    def is_wrong(basis: Tensor) -> Tensor:
        probes = _probes(matrix.shape[-1], matrix)
        image = matrix @ probes
        not_spanned = _differ(basis @ (basis.mH @ image), image, probes)
        return not_spanned | _differ(basis.mH @ (basis @ probes), probes.expand(*basis.shape[:-2], -1, -1), probes)

    def routine(matrix: Tensor) -> Tensor:
        return torch.linalg.qr(matrix).Q

    return _verified("qr", (routine, _one_by_one(routine)), is_wrong, (matrix,), lambda: (matrix,))[0]


def _verified(
    name: str,
    routines: Sequence[Callable[..., Any]],
    is_wrong: Callable[..., Tensor],
    inputs: tuple[Tensor, ...],
    like: Callable[[], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:
    """The first result that is not wrong. Inputs that are not finite have none: tensors `like` results, all NaN."""
    if not is_cpu(inputs[0].device):
        return as_tuple(routines[0](*inputs))
    if wants_plain_operations() or not may_cache_tensors() or inputs[0].is_meta:
        result = as_tuple(routines[0](*inputs))
        wrong = is_wrong(*(part.detach() for part in result))
        masks = (wrong.reshape(*wrong.shape, *[1] * (part.dim() - wrong.dim())) for part in result)
        return tuple(part.masked_fill(mask, math.nan) for part, mask in zip(result, masks, strict=True))
    failure: RuntimeError | None = None
    for routine in routines:
        try:
            result = as_tuple(routine(*inputs))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # torch.linalg.LinAlgError, or pivots that are no pivots
            failure = error
        else:
            with torch.no_grad():
                if not bool(is_wrong(*(part.detach() for part in result)).any()):
                    return result
        if not all(bool(tensor.isfinite().all()) for tensor in inputs):
            return tuple(part * math.nan for part in like())
    shape = "x".join(map(str, inputs[0].shape))
    raise UnreliableRoutineError(
        f"no {name} routine of this torch gives a result that verifies for {inputs[0].dtype} matrices of {shape}: set "
        "the number of threads by OMP_NUM_THREADS rather than torch.set_num_threads, or use another build of torch"
    ) from failure


def _differ(computed: Tensor, expected: Tensor, scale: Tensor) -> Tensor:
    """Whether two products (..., n, probes) differ by more than rounding, relative to their norms and that of `scale`.

    A stable routine stays within a small multiple of the condition number times n^(1/2) u; 256 (n + 8)^(1/2) eps are
    allowed. NaN differs from everything.
    """
    allowed = 256 * math.sqrt(computed.shape[-2] + 8) * torch.finfo(computed.dtype).eps
    return ~(_norm(computed - expected) <= allowed * (_norm(computed) + _norm(expected) + _norm(scale)))


def _norm(matrix: Tensor) -> Tensor:
    """Frobenius norm of a few vectors of moderate size."""
    return torch.linalg.vector_norm(real_parts(matrix), dim=(-3, -2, -1))


def _probes(length: int, like: Tensor) -> Tensor:
    """Fixed vectors (length, probes) without structure, of entries about 1: no generator of random numbers is moved."""

    def make(device: torch.device) -> Tensor:
        index = torch.arange(1, length * _PROBES + 1, device=device).double()
        return ((index * index * 0.6180339887498949).frac() * 2 - 1).reshape(length, _PROBES).to(like.dtype)

    return cached_constant(("probes", length, like.dtype), like.device, make)


def _one_by_one(routine: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
    """A routine on each matrix of a batch alone: it is the batched forms that fail."""

    def each_alone(*batches: Tensor) -> tuple[Tensor, ...]:
        lead = torch.broadcast_shapes(*(batch.shape[:-2] for batch in batches))
        flat = (batch.expand(*lead, *batch.shape[-2:]).reshape(-1, *batch.shape[-2:]) for batch in batches)
        results = [as_tuple(routine(*each)) for each in zip(*flat, strict=True)]
        return tuple(torch.stack(parts).reshape(*lead, *parts[0].shape) for parts in zip(*results, strict=True))

    return each_alone
