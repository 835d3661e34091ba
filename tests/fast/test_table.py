"""Every form against its definition; the library with the forms switched off, and with their folder deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from layer_contract import assert_close, make, samples
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

import onelip
from onelip.fast import ROWS, Row, off
from onelip.layers import get_method, list_methods
from onelip.layers.sandwich_factors import SandwichFactors
from onelip.linalg.convolution import adjoint_kernel
from onelip.linalg.devices import pretend_device
from onelip.linalg.fourier import as_tuple, real_dft, to_frequency
from onelip.linalg.orthogonal import cayley
from onelip.linalg.polar import training_polar
from onelip.linalg.triangular import ridge_orthogonalise

Arguments = tuple[Any, ...]
DTYPES = (torch.float32, torch.float64)


def _tensor(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()


def _rows(dtype: torch.dtype) -> list[Arguments]:
    rows = real_dft((12, 10), dtype).rows
    return [(rows, _tensor(24, 5, dtype=dtype), False), (rows, _tensor(24, 5, dtype=dtype), True)]


def _products(dtype: torch.dtype) -> list[Arguments]:
    whole = _tensor(16, 5, 4, dtype=dtype), _tensor(16, 4, 3, dtype=dtype)
    parts = _tensor(2, 6, 2, 4, dtype=dtype), _tensor(2, 6, 4, 3, dtype=dtype)
    bias = _tensor(3, dtype=dtype)
    plain = [(*whole, bias, False, False), (*parts, bias, False, False), (*parts, None, False, False)]
    return [*plain, (*whole, None, False, True), (*parts, None, True, False)]


def _inverses(dtype: torch.dtype) -> list[Arguments]:
    """Larger than what LAPACK inverts in either way; outside autograd."""
    one = torch.eye(36, dtype=torch.float64)
    return [((one + torch.randn(2, 36, 36, dtype=torch.float64) / 36).to(dtype),)]


def _steps(dtype: torch.dtype) -> list[Arguments]:
    return [(_tensor(2, 5, 3, dtype=dtype), (3.0, -2.0, 0.5))]


def _at_frequencies(dtype: torch.dtype, matrices: int) -> list[Arguments]:
    """Tori of one matrix and of two, with and without a bias."""
    found: list[Arguments] = []
    for torus in ((3, 3), (4, 6), (9, 9)):
        dft = real_dft(torus, dtype)
        x = to_frequency(_tensor(2, 3, *torus, dtype=dtype), dft).detach().requires_grad_()
        each = [_tensor(*x.shape[:-2], 3, 3, dtype=dtype) for _ in range(matrices)]
        found.append((x, *each, None if torus == (3, 3) else _tensor(3, dtype=dtype), torus, dft))
    return found


def _scaled_kernels(dtype: torch.dtype) -> list[Arguments]:
    return [
        (_tensor(2, 3, 4, 3, 3, dtype=dtype), torch.rand(2, 4).to(dtype) + 0.5),
        (_tensor(1, 5, 3, 1, 2, dtype=dtype), torch.rand(1, 3).to(dtype) + 0.5),
        (_tensor(1, 97, 96, 3, 3, dtype=dtype), torch.rand(1, 96).to(dtype) + 0.5),
    ]


def _numbers(dtype: torch.dtype) -> list[Arguments]:
    """Outside autograd, where alone it is used."""
    return [(_tensor(*shape, dtype=dtype).detach(), dims) for shape, dims in (((3, 4, 5), (-2, -1)), ((3, 4), (0,)))]


def _pixels(dtype: torch.dtype) -> list[Arguments]:
    x = _tensor(2, 8, 4, 6, dtype=dtype).detach().contiguous(memory_format=torch.channels_last)
    return [(x.clone().requires_grad_(), group, order) for group, order in ((2, "ximy"), (4, "yxim"), (1, "imyx"))]


def _images(dtype: torch.dtype) -> list[Arguments]:
    x, bias = _tensor(2, 3, 4, 5, dtype=dtype), _tensor(4, dtype=dtype)
    wide, small = _tensor(4, 3, 3, 5, dtype=dtype), _tensor(4, 3, 1, 1, dtype=dtype)
    larger = _tensor(1, 3, 6, 7, dtype=dtype).contiguous(memory_format=torch.channels_last)
    return [
        *((x, wide, bias, mode) for mode in ("circular", "zeros")),
        (x, small, None, "circular"),
        (x, _tensor(4, 3, 9, 3, dtype=dtype), bias, "circular"),  # padded by more than the image has
        *((larger.detach().requires_grad_(), wide, None, mode, (1, 1)) for mode in ("circular", "zeros")),
        *((_tensor(2, 3, 9, 9, dtype=dtype), wide, bias, mode, (2, 1)) for mode in ("circular", "zeros")),
    ]


def _groups(dtype: torch.dtype) -> list[Arguments]:
    kernels = _tensor(2, 2, 2, 3, 3, dtype=dtype)
    return [
        (_tensor(2, 4, 4, 5, dtype=dtype), kernels, _tensor(4, dtype=dtype), mode) for mode in ("circular", "zeros")
    ]


def _branches(dtype: torch.dtype) -> list[Arguments]:
    return [arguments for arguments in _images(dtype) if len(arguments) == 4]


def _skew_kernels(dtype: torch.dtype) -> list[Arguments]:
    return [
        (_tensor(2, 3, 3, 3, 3, dtype=dtype), (4, 4), 3, 2),
        (_tensor(3, 3, 3, 3, dtype=dtype), (3, 5), 2, 3),
        (_tensor(1, 4, 4, 1, 1, dtype=dtype), (1, 1), 4, 4),
    ]


def _square(dtype: torch.dtype) -> list[Arguments]:
    near = torch.linalg.qr(torch.randn(96, 96, dtype=torch.float64)).Q + torch.randn(96, 96) / 96
    return [(near.float().requires_grad_(), 3)]


def _functions_of_kernels(dtype: torch.dtype) -> list[Arguments]:
    """Polar factors by eigenvectors are those of float32."""
    tori, tall, square = ((4, 4), (3, 5), (1, 1)), (2, 5, 3, 3, 3), (3, 3, 1, 1)
    always = [(_tensor(*tall, dtype=dtype), torus, SandwichFactors(3)) for torus in tori]
    always += [(_tensor(*shape, dtype=dtype), (3, 3), cayley) for shape in (tall, square)]
    always += [(_tensor(*shape, dtype=dtype), (3, 3), ridge_orthogonalise) for shape in (tall, (3, 5, 1, 1))]
    single = [(_tensor(*shape, dtype=torch.float32), (2, 3), training_polar) for shape in (tall, (1, 3, 4, 2, 1))]
    return [*always, *single]


CASES: dict[str, Callable[[torch.dtype], list[Arguments]]] = {
    "same_convolution": _images,
    "grouped_convolution": _groups,
    "residual_convolution": _branches,
    "multiply_rows": _rows,
    "product_per_frequency": _products,
    "unverified_inverse": _inverses,
    "quintic_step": _steps,
    "residual_branch": lambda dtype: _at_frequencies(dtype, 1),
    "sandwich_pass": lambda dtype: _at_frequencies(dtype, 2),
    "autocorrelation_row_sums": _scaled_kernels,
    "packed_exponentials": _skew_kernels,
    "polar_rows": _square,
    "packed_values": _functions_of_kernels,
    "largest_entry": _numbers,
    "sums_of_powers": lambda dtype: [tuple(_tensor(2, 5, 5, dtype=dtype) for _ in range(3))],
    "max_min": lambda dtype: [(_tensor(3, 6, 4, dtype=dtype), 1), (_tensor(3, 4, dtype=dtype), -1)],
    "half_unshuffled": _pixels,
}
PROJECTIONS = {"packed_exponentials": lambda kernel: (kernel - adjoint_kernel(kernel)) / 2}
"""What makes an argument of the numbers given, where gradients are those along such arguments alone."""
APPLIED_TO_INPUTS = {
    "same_convolution",
    "grouped_convolution",
    "residual_convolution",
    "residual_branch",
    "sandwich_pass",
    "multiply_rows",
    "product_per_frequency",
    "max_min",
    "half_unshuffled",
}
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def _cases(row: Row, dtype: torch.dtype) -> list[Arguments]:
    """Those that the row accepts; another row of the definition may be there for the others."""
    torch.manual_seed(0)
    accepted = [case for case in CASES[row.definition.body.__name__](dtype) if _accepts(row, case)]
    assert accepted
    return accepted


def _accepts(row: Row, arguments: Arguments) -> bool:
    with pretend_device("accelerator" if row.devices == "accelerator" else "cpu"):
        return row.accepts(*arguments)


def _value_and_gradients(row: Row, function: Callable[..., Any], arguments: Arguments) -> list[Tensor]:
    """The value, the gradients of a weighed sum of it, and those of a weighed sum of these."""
    values = as_tuple(_call(row, function, arguments))
    leaves = [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]
    if not leaves:
        return list(values)
    first = torch.autograd.grad(sum(map(_weighed, values), torch.zeros(())), leaves, create_graph=True)
    again = sum((_weighed(gradient) for gradient in first), torch.zeros(()))
    second = (
        torch.autograd.grad(again, leaves, allow_unused=True, materialize_grads=True) if again.requires_grad else ()
    )
    return [*(tensor.detach() for tensor in (*values, *first)), *second]


def _call(row: Row, function: Callable[..., Any], arguments: Arguments) -> Any:
    project = PROJECTIONS.get(row.definition.body.__name__, lambda tensor: tensor)
    return function(project(arguments[0]), *arguments[1:])


def _weighed(value: Tensor) -> Tensor:
    """A sum with a weight for every place, whatever the strides: `randn_like` would follow them."""
    return (value * torch.linspace(-1, 2, value.numel(), dtype=value.dtype).view(value.shape)).sum()


@each_row
@each_dtype
def test_values_gradients_and_second_derivatives_are_those_of_the_definition(row: Row, dtype: torch.dtype) -> None:
    for arguments in _cases(row, dtype):
        expected = _value_and_gradients(row, row.definition.body, arguments)
        for found, wanted in zip(_value_and_gradients(row, row.compute, arguments), expected, strict=True):
            assert found.dtype == wanted.dtype
            tolerance = max(row.error, 2e-4 if wanted.dtype == torch.float32 else 1e-11)
            assert_close(found, wanted, tolerance * max(1e-30, float(wanted.abs().max())))


@each_row
def test_values_without_gradients_and_under_autocast(row: Row) -> None:
    """Autocast never reaches transformations, which run in float32 or better."""
    for arguments in _cases(row, torch.float32):
        with torch.no_grad():
            expected = _call(row, row.definition.body, arguments)
            torch.testing.assert_close(_call(row, row.compute, arguments), expected, rtol=1e-4, atol=1e-5)
        if row.definition.body.__name__ in APPLIED_TO_INPUTS:
            narrow = [a.bfloat16() if isinstance(a, Tensor) else a for a in arguments]
            with torch.autocast("cpu", torch.bfloat16):
                found, wanted = row.compute(*narrow), row.definition.body(*narrow)
            assert found.dtype == wanted.dtype == torch.bfloat16
            assert (found.float() - expected).norm() <= 0.02 * expected.norm()


@each_row
def test_tensors_without_numbers(row: Row) -> None:
    """Shapes and types on fake and meta tensors, forwards and backwards."""
    for arguments in _cases(row, torch.float32):
        expected = as_tuple(row.definition.body(*arguments))
        detached = tree_map_only(Tensor, Tensor.detach, list(arguments))
        with FakeTensorMode() as mode:
            _check_empty(row, arguments, tree_map_only(Tensor, mode.from_tensor, detached), expected)
        meta = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), detached)
        _check_empty(row, arguments, meta, expected)


def _check_empty(row: Row, arguments: Arguments, empty: list[Any], expected: tuple[Tensor, ...]) -> None:
    leaves = [
        (place, other)
        for other, place in zip(arguments, empty, strict=True)
        if isinstance(other, Tensor) and other.requires_grad
    ]
    for leaf, _ in leaves:
        leaf.requires_grad_()
    if not row.suits(*empty):  # these need numbers to look at
        return
    values = as_tuple(row.compute(*empty))
    assert [(v.shape, v.dtype) for v in values] == [(v.shape, v.dtype) for v in expected]
    if leaves:
        sum((value.sum() for value in values), values[0].new_zeros(())).backward()
    assert all(leaf.grad is not None and leaf.grad.shape == other.shape for leaf, other in leaves)


@pytest.mark.parametrize("key", [method.key for method in list_methods()])
@pytest.mark.parametrize("case", ["circular", "zeros", "square", "linear"])
def test_layers_compute_the_same_by_their_definitions(key: str, case: str) -> None:
    torch.manual_seed(0)
    layer, x = make(get_method(key), case), samples(case, 3).requires_grad_()
    results = []
    for training in (False, True):
        with onelip.exact_transforms():
            layer.train(training)
            fast = _layer_value_and_gradients(layer, x)
            layer.train(training)
            with off():
                plain = _layer_value_and_gradients(layer, x)
        results += list(zip(fast, plain, strict=True))
    for found, wanted in results:
        assert_close(found, wanted, 1e-9 * max(1.0, float(wanted.abs().max())))


def _layer_value_and_gradients(layer: torch.nn.Module, x: Tensor) -> list[Tensor]:
    y = layer(x)
    leaves = [x, *layer.parameters()] if layer.training else [x]
    return [y.detach(), *torch.autograd.grad(_weighed(y), leaves, allow_unused=True, materialize_grads=True)]


def test_no_form_is_taken_where_they_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    spies: dict[Any, list[type]] = {}
    for row in ROWS:
        spy = type("Spy", (), {"accepts": row.accepts, "compute": lambda *a, row=row: taken.append(row.name)})
        spies.setdefault(row.definition, []).append(spy)
    for definition, forms in spies.items():
        monkeypatch.setattr(definition, "forms", tuple(forms))
    for row in ROWS:
        with off(), onelip.fast.off():
            row.definition(*_cases(row, torch.float32)[0])
    assert taken == []
    ROWS[0].definition(*_cases(ROWS[0], torch.float32)[0])
    assert taken == [ROWS[0].name]


PROGRAM = """
import importlib.util, sys
sys.path.insert(0, sys.argv[2])  # before what an editable installation puts there
import torch, onelip
assert (importlib.util.find_spec("onelip.fast") is None) == (sys.argv[3] == "without")
from onelip.layers import list_methods
results = {}
for method in list_methods():
    torch.manual_seed(0)
    for layer, shape in ((method.conv(4, 4, 3), (2, 4, 6, 6)), (method.linear_layer(6, 4), (2, 6))):
        layer, x = layer.double(), torch.randn(shape, dtype=torch.float64)
        for parameter in layer.parameters():  # at a start singular values are equal, and a norm has many gradients
            parameter.data.add_(0.3 * torch.randn_like(parameter))
        for training in (True, False):
            with onelip.exact_transforms():
                y = layer.train(training)(x)
            if training:
                (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum().backward()
        gradients = [p.grad for p in layer.parameters() if p.grad is not None]
        results[f"{method.key} {len(shape)}"] = [y.detach(), *gradients]
torch.save(results, sys.argv[1])
"""


def test_layers_compute_the_same_without_the_folder(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "bench")
    copied = Path(shutil.copytree(Path(onelip.__file__).parent, tmp_path / "plain" / "onelip", ignore=ignored))
    shutil.rmtree(copied / "fast")
    lines = (copied / "public.py").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("from onelip import fast ", "from onelip.fast"))]
    assert len(lines) - len(kept) == 2, "the root has the module and shared_transforms, which is in it"
    (copied / "public.py").write_text("\n".join(kept))
    found = [
        _run(folder, tmp_path / name, name)
        for folder, name in ((Path(onelip.__file__).parents[1], "with"), (copied.parent, "without"))
    ]
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) == 2 * len(list_methods())
    for key, tensors in found[0].items():
        for one, other in zip(tensors, found[1][key], strict=True):
            assert_close(one, other, 1e-9 * max(1.0, float(other.abs().max())))


def _run(source: Path, results: Path, name: str) -> dict[str, list[Tensor]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYTEST", "COV_"))}
    command = [sys.executable, "-c", PROGRAM, str(results), str(source), name]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return torch.load(results)
