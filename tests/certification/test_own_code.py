"""What a model's own code can do behind a trace: each attack beside what withstands it."""

from __future__ import annotations

import builtins
import copy
import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, is_grad_enabled, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from onelip.certification import BrokenCertificateError, Certifier, UnknownLipschitzConstant, certify, lipschitz_bound
from onelip.certification.tracing import Tracer
from onelip.errors import InvalidInputError
from onelip.layers import AOLLinear, CPLLinear, StandardLinear

X = torch.tensor([[1.0, 0.25]])
PYTHONS_OWN = builtins.isinstance, nn.Module.__call__, torch.is_tensor


class Code(nn.Module):
    """A function as a model, which may keep what it needs."""

    layer: Any
    layers: Any
    norm: Any
    table: Any

    def __init__(self, function: Callable[..., Any], **kept: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in kept.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def refused(model: nn.Module, match: str, x: Tensor = X) -> None:
    with pytest.raises(UnknownLipschitzConstant, match=match):
        certify(model.eval(), x)
    with pytest.raises(UnknownLipschitzConstant, match=match):
        lipschitz_bound(model.eval(), tuple(x.shape[1:]))


# Code that sees that it is traced


def rescues(self: Code, x: Tensor) -> Tensor:
    try:
        largest = float(x.abs().amax())
    except Exception:
        largest = 1.0
    return x / largest


def rescues_a_module(self: Code, x: Tensor) -> Tensor:
    try:
        return self.norm(x)
    except Exception:
        return x


def guards(self: Code, x: Tensor) -> Tensor:
    return x / 255 if isinstance(x, Tensor) and x.amax() > 1.5 else x


def prints(self: Code, x: Tensor) -> Tensor:
    return x if "2." not in str(x) else 50 * x


def sorts_by_another(self: Code, x: Tensor) -> Tensor:
    return x[:, x.sort(1, descending=True).indices[0]]


@pytest.mark.parametrize("code", [rescues, guards, prints, sorts_by_another])
def test_code_that_hides_what_it_reads_is_refused(code: Callable[..., Any]) -> None:
    """At X, whose largest number is 1, all are the identity, so that the scores of the program do not tell."""
    model = Code(code).eval()
    assert torch.equal(model(X), X)
    refused(model, "acts along all dimensions|control flow|jumps")


def test_an_error_that_a_model_catches_is_raised_again() -> None:
    refused(Code(rescues_a_module, norm=nn.LayerNorm(2, eps=0.0)), "LayerNorm")


def test_a_traced_value_is_a_tensor_to_the_model() -> None:
    def code(self: Code, x: Tensor) -> Tensor:
        assert isinstance(x, Tensor)
        assert not isinstance(x, list | tuple | nn.Parameter)
        return 3 * x if torch.is_tensor(x) else x

    assert lipschitz_bound(Code(code), (2,)) == pytest.approx(3, rel=1e-6)
    assert isinstance(Code(code)(X), Tensor)


def test_a_trace_replaces_nothing_that_other_threads_use() -> None:
    def code(self: Code, x: Tensor) -> Tensor:
        assert (builtins.isinstance, nn.Module.__call__, torch.is_tensor) == PYTHONS_OWN
        return x

    assert lipschitz_bound(Code(code), (2,)) == 1


def test_a_model_is_traced_three_times_and_called_six_times_for_one_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Traced with either answer and on the batch; called on two random inputs, twice on three, and on the batch.

    The first and the last check also run one input alone.
    """
    calls, traces, trace = list[int](), list[int](), Tracer.trace

    class Counted(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            if type(input) is Tensor:
                calls.append(len(input))
            return super().forward(input)

    def counted(self: Tracer, arguments: Any) -> Any:
        traces.append(arguments.batch)
        return trace(self, arguments)

    monkeypatch.setattr(Tracer, "trace", counted)
    certify(Counted(4, 3).eval(), torch.randn(5, 4))
    assert (traces, calls) == ([2, 2, 5], [2, 1, 3, 3, 5, 1])


def test_the_bound_of_a_model_is_checked_against_the_program_too() -> None:
    model = Code(lambda self, x: 3 * x if type(x) is Tensor else x)
    for prove in (lipschitz_bound, Certifier):
        with pytest.raises(BrokenCertificateError, match="differs from what was traced"):
            prove(model, (2,))


QUESTIONS: dict[str, Callable[..., Any]] = {
    "gradients, by a name of its own": lambda self, x: 50 * x if is_grad_enabled() else x,
    "compilers": lambda self, x: 50 * x if torch.compiler.is_compiling() else x,
    "export": lambda self, x: 50 * x if torch.onnx.is_in_onnx_export() else x,
    "memory": lambda self, x: x if x.is_contiguous() else 50 * x,
    "strides": lambda self, x: x if x.stride(1) == 1 else 50 * x,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_code_that_asks_how_it_is_run(name: str) -> None:
    refused(Code(QUESTIONS[name]), "gradients, when compiled, or where x lies otherwise")


def test_memory_may_be_put_in_order() -> None:
    def code(self: Code, x: Tensor) -> Tensor:
        x = x if x.is_contiguous() else x.contiguous()
        return F.relu(x) - F.relu(-x)

    transposed = torch.tensor([[3.0, 1.0], [0.5, 0.25]]).mT
    assert torch.equal(certify(Code(code), transposed).radii, certify(Code(code), transposed.contiguous()).radii)


# State


def counting() -> nn.Module:
    calls = 0

    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return x if calls < 1000 else 50 * x

    return Counting()


class CountsInItsClass(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        CountsInItsClass.calls += 1
        return x if self.calls < 1000 else 50 * x


class CountsInADefault(nn.Module):
    def forward(self, x: Tensor, seen: list[int] = []) -> Tensor:  # noqa: B006 - the attack
        seen.append(1)
        return x if len(seen) < 1000 else 50 * x


GLOBAL_CALLS = [0]


def counts_globally(self: Code, x: Tensor) -> Tensor:
    GLOBAL_CALLS[0] += 1
    return x if GLOBAL_CALLS[0] < 1000 else 50 * x


def collects(self: Code, x: Tensor) -> Tensor:
    self.table[len(self.table)] = 1
    return x if len(self.table) < 1000 else 50 * x


def hooked() -> nn.Module:
    calls = 0

    def count(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return output if calls < 1000 else 50 * output

    model = nn.Sequential(nn.Identity())
    model.register_forward_hook(count)
    return model


STATES: dict[str, Callable[[], nn.Module]] = {
    "closure": counting,
    "class": CountsInItsClass,
    "hook": hooked,
    "default": CountsInADefault,
    "global": lambda: Code(counts_globally),
    "iterator": lambda: Code(lambda self, x: x if next(self.calls) < 1000 else 50 * x, calls=itertools.count()),
    "dictionary": lambda: Code(collects, table={}),
    "Python's random numbers": lambda: Code(lambda self, x: x if random.random() < 2 else 50 * x),
    "NumPy's random numbers": lambda: Code(lambda self, x: x if numpy.random.rand() < 2 else 50 * x),  # noqa: NPY002
    "own generator": lambda: Code(
        lambda self, x: x * torch.rand(1, generator=self.drawn).clamp(min=1), drawn=torch.Generator()
    ),
    "own NumPy generator": lambda: Code(
        lambda self, x: x if self.drawn.random() < 2 else 50 * x, drawn=numpy.random.default_rng(0)
    ),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.filterwarnings("ignore:.*itertools:DeprecationWarning")
def test_a_model_with_state_is_refused_wherever_it_is(name: str) -> None:
    """Every one of them is the identity now and something else after a thousand calls, or may be."""
    model = STATES[name]().eval()
    assert torch.equal(model(X), X)
    refused(model, "function at every call")


def test_a_hook_may_collect_what_others_look_at() -> None:
    model, seen = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), list[Any]()
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    assert certify(model.eval(), X).radii.shape == (1,)
    assert seen


def test_a_module_in_a_closure_that_changes_is_seen() -> None:
    """Its scores grow with its weights, and so would a radius that is computed with the bound of the old ones."""
    hidden = StandardLinear(2, 2, bias=False).eval()
    with torch.no_grad():
        hidden.weight.copy_(torch.eye(2))
    model = Code(lambda self, x: hidden(x)).eval()
    certifier = Certifier(model, (2,))
    radius = float(certifier(X).radii)
    with torch.no_grad():
        hidden.weight.mul_(100)
    turned = X + torch.tensor([[-0.5, 0.5]]) * 1.1 * radius * 2**0.5
    assert model(turned).argmax() != model(X).argmax()
    with pytest.raises(InvalidInputError, match="changed"):
        certifier(X)


def test_weights_that_are_replaced_while_a_model_runs() -> None:
    class Replaces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = StandardLinear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            return y + torch.func.functional_call(self.layer, {"weight": 50 * torch.eye(2)}, (x,))

    refused(Replaces(), "not those that its bound was proven with")


def test_a_layer_in_training_mode_that_a_list_hides() -> None:
    refused(Code(lambda self, x: self.layers[0](x), layers=[CPLLinear(2, 2)]), r"nn\.ModuleList")


# Ways of computing


def test_other_threads_are_refused() -> None:
    def code(self: Code, x: Tensor) -> Any:
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(lambda layer: layer(x), self.layers))

    refused(Code(code, layers=nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])), "another thread")


SIZES: dict[str, Callable[..., Any]] = {
    "shift": lambda self, x: x + torch.tensor([0.0, 1.0]) * len(x),
    "factor": lambda self, x: x / x.shape[0],
    "dimensions": lambda self, x: x.squeeze(),
}


@pytest.mark.parametrize("name", SIZES)
def test_functions_of_the_length_of_a_batch_are_refused(name: str) -> None:
    refused(Code(SIZES[name]), "number of inputs in the batch", torch.tensor([[3.0, 1.0], [1.0, 0.0]]))


def test_a_function_of_large_batches_only() -> None:
    model, x = Code(lambda self, x: x if len(x) < 100 else x.flip(1)), torch.randn(128, 2)
    assert not torch.equal(model(x)[:1], model(x[:1]))
    assert (certify(model, x[:50]).radii > 0).any()
    with pytest.raises(UnknownLipschitzConstant, match="number of inputs in the batch"):
        certify(model, x)


class Tripling(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return 3 * result if func is F.linear else result


TYPES: dict[str, Callable[..., Any]] = {
    "subclass": lambda self, x: F.linear(x, torch.eye(2).as_subclass(Tripling)),
    "complex": lambda self, x: torch.cat([x, 1j * torch.ones(len(x), 1)], 1).abs(),
    "sparse": lambda self, x: F.linear(x, torch.eye(2).to_sparse()),
}


@pytest.mark.parametrize("name", TYPES)
def test_other_kinds_of_tensors_inside_are_refused(name: str) -> None:
    refused(Code(TYPES[name]), name)


class Labelled(Tensor):
    """As images that carry a description."""


def test_kinds_of_inputs() -> None:
    model = AOLLinear(2, 2).eval()
    expected = certify(model, X).radii
    for x in (X.as_subclass(Labelled), X.clone().requires_grad_(), X.expand(3, 2)[:1], X.double()):
        assert torch.allclose(certify(model, x).radii, expected, 1e-12)
    with pytest.raises(BrokenCertificateError):
        certify(nn.Linear(2, 2), X.as_subclass(Tripling))
    for x in (X.to_sparse(), torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged)):
        with pytest.raises(InvalidInputError, match="sparse, nested"):
            certify(model, x)


@pytest.mark.parametrize("kind", ["integer", "float64"])
def test_constants_beside_values_are_rounded_as_the_program_rounds_them(kind: str) -> None:
    """3 steps of float32 above 1 a value beats a constant by 1.5 steps, which the program rounds to 1."""
    unit = 2.0 if kind == "integer" else 2.0**-23
    base = 2.0**24 if kind == "integer" else 1.0
    constant = torch.tensor([[base + 1.5 * unit]], dtype=torch.long if kind == "integer" else torch.float64)
    model = Code(lambda self, x: torch.cat([constant.expand(len(x), 1), x], 1).float())
    x = torch.tensor([[base + 3 * unit]])
    certificate = certify(model, x, arithmetic="float32")
    assert 0 < float(certificate.radii) < unit
    assert model(x - unit).argmax() != model(x).argmax()


def test_a_model_that_lowers_the_precision_itself() -> None:
    def code(self: Code, x: Tensor) -> Tensor:
        torch.set_float32_matmul_precision("medium")
        return self.layer(x)

    before = torch.get_float32_matmul_precision()
    with pytest.raises(BrokenCertificateError, match="the model itself switched"):
        certify(Code(code, layer=nn.Linear(2, 2)).eval(), X, arithmetic="float32")
    assert torch.get_float32_matmul_precision() == before


class Triples(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return 3 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return 0 * gradients[0]


WORKING: dict[str, Callable[..., Any]] = {
    "autograd.Function": lambda self, x: Triples.apply(x),
    "checkpoint": lambda self, x: checkpoint(lambda t: 3 * t, x, use_reentrant=False),
    "deepcopy": lambda self, x: 3 * copy.deepcopy(x),
    "keywords": lambda self, x: self.layer(input=3 * x),
    "constants like values": lambda self, x: 3 * x + self.shift.to(x) + self.shift.type_as(x) + self.shift.expand_as(x),
    "full_like": lambda self, x: 3 * x + torch.full_like(x, 0.1),
    "functional_call": lambda self, x: torch.func.functional_call(self.layer, {"weight": 3 * torch.eye(2)}, (x,)),
}


@pytest.mark.parametrize("name", WORKING)
def test_ordinary_ways_of_computing_work(name: str) -> None:
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.eye(2)
    model = Code(WORKING[name], layer=layer, shift=torch.ones(1, 2)).eval()
    assert lipschitz_bound(model, (2,)) == pytest.approx(3, rel=1e-6)
    for arithmetic in ("float64", "float32"):
        assert float(certify(model, X, arithmetic=arithmetic).radii) == pytest.approx(0.75 / 2**0.5, rel=1e-4)


def test_what_is_no_module_is_told_in_one_line() -> None:
    for model in (lambda x: x, nn.LazyLinear(2)):
        with pytest.raises(InvalidInputError, match=r"must be a torch\.nn\.Module|has no shape yet"):
            certify(model, X)  # pyright: ignore
