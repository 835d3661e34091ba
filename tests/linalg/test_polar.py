"""Polar factors against scipy, their implicit gradient against finite differences, and the extremes of scale."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.linalg import polar
from onelip.linalg.minimax import best_quintic, quintic_schedule
from onelip.linalg.norms import scale_below_one
from onelip.linalg.orthogonal import cayley
from onelip.linalg.polar import (
    Iteration,
    bjorck,
    inverse_square_root,
    minimax_polar,
    polar_factor,
    quintic_step,
)
from onelip.linalg.tensor_modes import rows_in_use

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
ITERATIONS: list[Iteration] = ["minimax", "newton", "bjorck"]
SHAPES = [(8, 8), (12, 5), (5, 12), (1, 4), (1, 1)]


def _double(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _with_singular_values(shape: tuple[int, int], values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A matrix with the given singular values, and its exact polar factor in double precision."""
    wide = _double(dtype)
    left = torch.linalg.qr(torch.randn(shape[0], len(values), dtype=wide))[0]
    right = torch.linalg.qr(torch.randn(shape[1], len(values), dtype=wide))[0]
    return ((left * values) @ right.mH).to(dtype), left @ right.mH


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix.to(_double(matrix.dtype)), ord=2).max())


def _tolerance(dtype: torch.dtype) -> float:
    return 64 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", SHAPES)
def test_polar_factor_agrees_with_scipy(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=dtype)
    side = "right" if shape[0] >= shape[1] else "left"
    expected = scipy.linalg.polar(matrix.numpy(), side=side)[0]
    np.testing.assert_allclose(polar_factor(matrix).resolve_conj().numpy(), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("iteration", "smallest"), [("minimax", 1e-3), ("newton", 3e-2), ("bjorck", 1e-2)])
def test_ill_conditioned_matrices_converge(iteration: Iteration, smallest: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    values = torch.logspace(0, np.log10(smallest), 24, dtype=torch.float64)
    for shape in ((24, 24), (40, 24), (24, 70)):
        matrix, expected = _with_singular_values(shape, values, dtype)
        actual = polar_factor(matrix, iteration=iteration)
        error = (actual.to(expected.dtype) - expected).abs().max()
        assert error < 500 * torch.finfo(dtype).eps
        assert _norm(actual) <= 1 + _tolerance(dtype)


def test_minimax_in_double_precision_reaches_condition_number_1e5() -> None:
    torch.manual_seed(2)
    values = torch.logspace(0, -5, 32, dtype=torch.float64)
    matrix, expected = _with_singular_values((32, 32), values, torch.float64)
    assert (minimax_polar(matrix) - expected).abs().max() < 1e-10


@pytest.mark.parametrize("iteration", ITERATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_never_exceeds_one_for_any_spectrum(iteration: Iteration, dtype: torch.dtype) -> None:
    """Singular or nearly singular matrices do not converge; they must still end below 1, in every step count."""
    torch.manual_seed(3)
    spectra = [
        torch.logspace(0, -40, 16, dtype=torch.float64),
        torch.tensor([1.0] + [0.0] * 15, dtype=torch.float64),
        torch.tensor([1.0] * 8 + [1e-7] * 8, dtype=torch.float64),
        torch.ones(16, dtype=torch.float64),
    ]
    for values in spectra:
        for shape in ((16, 16), (30, 16)):
            matrix, _ = _with_singular_values(shape, values, dtype)
            for steps in (None, 1, 3, 10):
                actual = polar_factor(matrix, iteration=iteration, iterations=steps)
                assert _norm(actual) <= 1 + _tolerance(dtype), (values, shape, steps)


@pytest.mark.parametrize("iteration", ITERATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-20, 1e-12, 1e12, 1e30])
def test_scale_invariance_down_to_zero(iteration: Iteration, dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(4)
    for shape in ((6, 6), (9, 4), (4, 9)):
        values = torch.linspace(0.3, 1, min(shape), dtype=torch.float64)
        matrix, expected = _with_singular_values(shape, values, dtype)
        matrix = (matrix * scale).requires_grad_()
        actual = polar_factor(matrix, iteration=iteration)
        actual.abs().square().sum().add(actual.real.sum()).backward()
        assert matrix.grad is not None
        assert torch.isfinite(torch.view_as_real(matrix.grad) if dtype.is_complex else matrix.grad).all()
        assert _norm(actual.detach()) <= 1 + _tolerance(dtype)
        if scale == 0:
            assert not actual.detach().any()
        else:
            assert (actual.detach().to(expected.dtype) - expected).abs().max() < 500 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (2, 2, 4, 3)])
@pytest.mark.parametrize(("iteration", "steps"), [("minimax", None), ("newton", None), ("bjorck", 60)])
def test_implicit_gradient(shape: tuple[int, ...], dtype: torch.dtype, iteration: Iteration, steps: int | None) -> None:
    """The implicit gradient is that of the converged factor, which takes the plain cubic more than its default."""
    torch.manual_seed(5)
    matrix = torch.randn(shape, dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: polar_factor(a, iteration=iteration, iterations=steps), (matrix,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
def test_gradients_through_the_iterations(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """`bjorck` and `minimax_polar` by themselves are differentiable step by step, converged or not."""
    torch.manual_seed(14)
    matrix = (0.2 * torch.randn(shape, dtype=dtype)).requires_grad_()
    for steps in (1, 3):
        assert torch.autograd.gradcheck(lambda a, count=steps: bjorck(a, count), (matrix,))
        assert torch.autograd.gradcheck(lambda a, count=steps: minimax_polar(a, count), (matrix,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(24, 24), (40, 24), (24, 70)])
def test_minimax_polar_by_itself(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(15)
    matrix, expected = _with_singular_values(shape, torch.logspace(1, -2, 24, dtype=torch.float64), dtype)
    actual = minimax_polar(matrix)
    assert (actual.to(expected.dtype) - expected).abs().max() < 500 * torch.finfo(dtype).eps
    assert _norm(actual) <= 1 + _tolerance(dtype)


def test_each_minimax_step_is_its_quintic_on_singular_values() -> None:
    """One quintic and the final cubic, on the spectrum that `scale_below_one` leaves."""
    torch.manual_seed(16)
    matrix = torch.randn(7, 5, dtype=torch.complex128)
    x = torch.linalg.svdvals(scale_below_one(matrix))
    a, b, c = polar._schedule(torch.float64, 1)[0]
    x = a * x + b * x**3 + c * x**5
    expected = (1.5 * x - 0.5 * x**3).abs().sort(descending=True).values
    torch.testing.assert_close(torch.linalg.svdvals(minimax_polar(matrix, 1)), expected, rtol=0, atol=1e-13)


def test_implicit_gradient_equals_unrolled_gradient() -> None:
    torch.manual_seed(6)
    matrix = torch.randn(3, 10, 6, dtype=torch.complex128, requires_grad=True)
    cotangent = torch.randn(3, 10, 6, dtype=torch.complex128)
    (implicit,) = torch.autograd.grad(polar_factor(matrix), matrix, cotangent)
    (unrolled,) = torch.autograd.grad(minimax_polar(matrix), matrix, cotangent)
    torch.testing.assert_close(implicit, unrolled, atol=1e-9, rtol=1e-9)


def test_gradient_is_finite_for_singular_matrices() -> None:
    torch.manual_seed(7)
    for shape in ((5, 5), (8, 5)):
        matrix = torch.zeros(shape)
        matrix[0] = torch.randn(5)
        matrix.requires_grad_()
        polar_factor(matrix).square().sum().backward()
        assert matrix.grad is not None
        assert torch.isfinite(matrix.grad).all()


@pytest.mark.parametrize("iteration", ITERATIONS)
def test_memory_does_not_grow_with_iterations(iteration: Iteration) -> None:
    matrix = torch.randn(7, 7, dtype=torch.float64, requires_grad=True)

    def saved_tensors(steps: int) -> int:
        saved: list[Tensor] = []

        def pack(tensor: Tensor) -> Tensor:
            saved.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            polar_factor(matrix, iteration=iteration, iterations=steps)
        return len(saved)

    assert saved_tensors(3) == saved_tensors(30) == 2


@pytest.mark.parametrize("shape", [(2, 3, 6, 4), (2, 3, 4, 6), (2, 3, 4, 4)])
def test_batches_are_independent(shape: tuple[int, ...]) -> None:
    torch.manual_seed(8)
    # Very different scales in one batch: a scale shared by the batch would ruin the small ones.
    matrix = torch.randn(shape, dtype=torch.float64) * torch.logspace(-20, 20, 6).double().reshape(2, 3, 1, 1)
    batched = polar_factor(matrix)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(batched[i, j], polar_factor(matrix[i, j]), atol=1e-11, rtol=0)


# torch's own tracer instantiates autograd.Function, against torch's own advice.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    ("iteration", "shape", "dtype"),
    [
        ("eigh", (2, 8, 5), torch.complex64),
        ("minimax", (2, 8, 5), torch.complex128),
        ("newton", (2, 5, 8), torch.float64),
        ("bjorck", (2, 6, 6), torch.float64),
    ],
)
def test_compiles_to_one_graph(iteration: Iteration, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(9)
    torch._dynamo.reset()

    def function(matrix: Tensor) -> Tensor:
        return polar_factor(matrix, iteration=iteration, iterations=3)

    matrix = torch.randn(shape, dtype=dtype, requires_grad=True)
    cotangent = torch.randn(shape, dtype=dtype)
    actual, expected = torch.compile(function, fullgraph=True, backend="aot_eager")(matrix), function(matrix)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, matrix, cotangent), torch.autograd.grad(expected, matrix, cotangent)
    )


def test_unknown_iteration_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="minimax"):
        polar_factor(torch.eye(2), iteration="svd")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7)])
def test_bjorck_step_is_the_cubic_on_singular_values(shape: tuple[int, int]) -> None:
    torch.manual_seed(10)
    values = torch.linspace(0.1, 1.7, min(shape), dtype=torch.float64)
    matrix, polar = _with_singular_values(shape, values, torch.complex128)
    stepped = torch.linalg.svdvals(bjorck(matrix, 1))
    torch.testing.assert_close(stepped, (1.5 * values - 0.5 * values**3).abs().sort(descending=True)[0])
    torch.testing.assert_close(bjorck(matrix, 30), polar)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_inverse_square_root(dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(11)
    root = torch.randn(3, 5, 5, dtype=dtype)
    gram = (root @ root.mH + 0.1 * torch.eye(5, dtype=dtype)) * scale
    for item, actual in zip(gram, inverse_square_root(gram), strict=True):
        expected = np.linalg.inv(scipy.linalg.sqrtm(item.numpy()))
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_inverse_square_root_gradient_and_zero() -> None:
    torch.manual_seed(12)
    for dtype in (torch.float64, torch.complex128):
        root = torch.randn(2, 4, 4, dtype=dtype, requires_grad=True)
        identity = torch.eye(4, dtype=dtype)
        assert torch.autograd.gradcheck(lambda a, one=identity: inverse_square_root(a @ a.mH + one), (root,))
    zero = torch.zeros(2, 4, 4, requires_grad=True)
    result = inverse_square_root(zero)
    result.sum().backward()
    assert torch.isfinite(result).all()


@pytest.mark.parametrize("lower", [1e-6, 3e-4, 1e-2, 0.3])
def test_quintics_equioscillate_which_proves_them_optimal(lower: float) -> None:
    """Four alternating extremes for three coefficients: by Chebyshev's theorem nothing does better."""
    a, b, c = best_quintic(lower, 1.0)
    x = np.concatenate([np.linspace(lower, 1, 200_001), [lower, 1.0]])
    x.sort()
    error = 1 - (a * x + b * x**3 + c * x**5)
    worst = np.abs(error).max()
    extremes = np.sign(error[np.abs(error) > worst * (1 - 1e-6)])
    assert np.count_nonzero(np.diff(extremes)) == 3
    assert extremes[0] == 1


def test_quintic_schedule_contracts_to_one() -> None:
    schedule = quintic_schedule(lower=1e-3, tolerance=1e-3, cushion=0.01)
    assert len(schedule) == 6  # a Newton-Schulz quintic (factor 15/8) would need 13
    x = np.linspace(0, 1, 1_000_001)
    for a, b, c in schedule:
        x = a * x + b * x**3 + c * x**5
        assert x.min() >= 0
        assert x.max() < 2
    assert np.abs(x[1000:] - 1).max() < 1e-3
    assert x.max() < 1 + 1e-3


SINGLE = [torch.float32, torch.complex64]


@pytest.mark.parametrize("dtype", SINGLE)
@pytest.mark.parametrize("shape", [(24, 24), (40, 24), (24, 70)])
def test_eigh_is_the_default_in_float32_and_accurate(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    torch.manual_seed(10)
    values = torch.logspace(0, -3, 24, dtype=torch.float64)
    matrix, expected = _with_singular_values(shape, values, dtype)
    actual = polar_factor(matrix)
    assert torch.equal(actual, polar_factor(matrix, iteration="eigh"))
    assert (actual.to(expected.dtype) - expected).abs().max() < 500 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", SINGLE)
@pytest.mark.parametrize("smallest", [0.2, 0.03])
@pytest.mark.parametrize("shape", [(24, 24), (40, 24), (24, 70)])
def test_eigenvectors_in_float32_are_good_enough_to_train(
    dtype: torch.dtype, smallest: float, shape: tuple[int, int]
) -> None:
    """Factor and gradient: off by rounding times the square of the condition number, orthogonal in any case."""
    torch.manual_seed(10)
    matrix, expected = _with_singular_values(shape, torch.linspace(1, smallest, 24, dtype=torch.float64), dtype)
    cotangent = torch.randn_like(matrix)
    gradients = []
    iterations: list[Iteration] = ["single", "eigh"]
    eps, condition = torch.finfo(dtype).eps, 1 / smallest
    for iteration in iterations:
        leaf = matrix.clone().requires_grad_()
        actual = polar_factor(leaf, iteration=iteration)
        gradients.append(torch.autograd.grad(actual, leaf, cotangent)[0])
        assert (actual.to(expected.dtype) - expected).abs().max() < 20 * eps * condition**2
        assert _norm(actual.detach()) <= 1 + _tolerance(dtype)
    difference = torch.linalg.vector_norm(gradients[0] - gradients[1])
    assert difference < 50 * eps * condition**2 * torch.linalg.vector_norm(gradients[1])


@pytest.mark.parametrize("iteration", ["eigh", "single"])
@pytest.mark.parametrize("dtype", SINGLE)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_eigh_never_exceeds_one(dtype: torch.dtype, scale: float, iteration: Iteration) -> None:
    torch.manual_seed(11)
    spectra = [torch.logspace(0, -40, 16), torch.tensor([1.0] * 8 + [1e-7] * 8), torch.eye(16)[0], torch.ones(16)]
    for values in spectra:
        for shape in ((16, 16), (30, 16)):
            matrix = (scale * _with_singular_values(shape, values.double(), dtype)[0]).requires_grad_()
            actual = polar_factor(matrix, iteration=iteration)
            assert _norm(actual.detach()) <= 1 + _tolerance(dtype)
            actual.abs().sum().backward()
            assert matrix.grad is not None
            assert torch.isfinite(torch.view_as_real(matrix.grad) if dtype.is_complex else matrix.grad).all()


@pytest.mark.parametrize("dtype", SINGLE)
@pytest.mark.parametrize("shape", [(2, 5, 5), (7, 4), (4, 7)])
def test_eigh_has_the_gradient_of_the_iteration(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(12)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    matrix, cotangent = torch.randn(shape, dtype=wide), torch.randn(shape, dtype=wide)
    gradients = []
    for given in (matrix.to(dtype), matrix):
        leaf = given.clone().requires_grad_()
        gradients.append(torch.autograd.grad(polar_factor(leaf), leaf, cotangent.to(given.dtype))[0])
    torch.testing.assert_close(gradients[0].to(wide), gradients[1], rtol=1e-4, atol=1e-4)


def test_eigh_is_refused_in_float64() -> None:
    with pytest.raises(InvalidInputError, match="float32"):
        polar_factor(torch.eye(2, dtype=torch.float64), iteration="eigh")


@pytest.mark.parametrize("function", [lambda a: polar_factor(a, iteration="single"), cayley], ids=["polar", "cayley"])
def test_gradients_with_few_rows_are_those_of_all_rows(function: Callable[[Tensor], Tensor]) -> None:
    """As a last layer has them of which the network uses the first outputs; a batch of matrices takes all rows."""
    torch.manual_seed(0)
    matrix = (torch.eye(12) + torch.randn(12, 12) / 8).requires_grad_()
    few = torch.zeros(12, 12)
    few[1:4] = torch.randn(3, 12)
    assert rows_in_use(few) is not None
    assert rows_in_use(torch.ones(12, 12)) is None
    (alone,) = torch.autograd.grad(function(matrix), matrix, few)
    (stacked,) = torch.autograd.grad(function(torch.stack([matrix, matrix])), matrix, torch.stack([few, 0 * few]))
    wide = matrix.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(polar_factor(wide) if function is not cayley else cayley(wide), wide, few.double())
    assert (alone - stacked).norm() <= 1e-5 * stacked.norm()
    assert (alone - exact).norm() <= 1e-5 * exact.norm()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_quintic_step_keeps_its_matrix_alone(dtype: torch.dtype) -> None:
    matrix = torch.randn(2, 5, 3, dtype=dtype, generator=torch.Generator().manual_seed(5)).requires_grad_()
    step: Callable[[Tensor], Tensor] = lambda x: quintic_step(x, (3.0, -2.0, 0.5))  # noqa: E731  # pyright: ignore
    assert torch.autograd.gradcheck(step, matrix)
    assert torch.autograd.gradgradcheck(step, matrix)
