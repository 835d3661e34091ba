"""Calls whose arguments change what they compute: each attack beats a bound that overlooks the argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from plain_models import Calls
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification import Certifier, UnknownLipschitzConstant, certify, lipschitz_bound
from onelip.proofs.layer_bound import FLOAT32


def stretched(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> float:
    """Norm of the Jacobian of a function that is linear near a random point, by differences."""
    torch.manual_seed(0)
    x = torch.randn(1, *shape)
    steps = torch.eye(math.prod(shape)).reshape(-1, *shape) * 2.0**-6
    columns = [(function(x + step) - function(x)).flatten() * 2.0**6 for step in steps]
    return float(torch.linalg.matrix_norm(torch.stack(columns).double(), 2))


PLACES: dict[str, Any] = {
    "tuple": (0, 0, 0),
    "list": [0, 0, 0],
    "array": np.array([0, 0, 0]),
    "tensor": torch.tensor([0, 0, 0]),
    "range": range(3),
    "mask": torch.tensor([True, False, True, False]),
    "number": 2,
    "numpy number": np.int64(1),
}


@pytest.mark.parametrize("kind", PLACES)
def test_an_entry_taken_three_times_counts_sqrt_3_however_places_are_listed(kind: str) -> None:
    def taken(x: Tensor) -> Tensor:
        return x[:, PLACES[kind]]

    truth = stretched(taken, (4, 2))
    assert truth * (1 - 1e-3) <= lipschitz_bound(Calls(taken), (4, 2)) <= truth * (1 + 1e-3)


def test_a_weight_is_not_taken_for_an_equal_bias() -> None:
    """Two normalisations with the same numbers in other roles: the second one multiplies by 100."""
    mean, one, hundred = torch.zeros(3), torch.ones(3), torch.full((3,), 100.0)

    def normalised(x: Tensor) -> Tensor:
        return F.batch_norm(F.batch_norm(x, mean, one, None, hundred), mean, one, hundred, None)

    assert stretched(normalised, (3,)) <= lipschitz_bound(Calls(normalised), (3,)) * (1 + 1e-4)


def test_nearest_pixels_of_float32_are_counted_too() -> None:
    """82 copies of two pixels: 41 each in float64, but 42 of one in float32, so sqrt(41) is no bound."""

    def enlarged(x: Tensor) -> Tensor:
        return F.interpolate(x, size=82)

    assert stretched(enlarged, (1, 2)) > math.sqrt(41.5)
    with pytest.raises(UnknownLipschitzConstant, match="different pixels"):
        lipschitz_bound(Calls(enlarged), (1, 2))
    assert lipschitz_bound(Calls(lambda x: F.interpolate(x, scale_factor=3)), (1, 2)) == pytest.approx(math.sqrt(3))


def written(x: Tensor, to: slice, given: slice) -> Tensor:
    """A copy in which some entries are written onto others."""
    x = x.clone()
    x[:, to] = x[:, given]
    return x


def test_entries_that_do_not_overlap_are_written_in_place() -> None:
    assert lipschitz_bound(Calls(lambda x: written(x, slice(2), slice(2, None))), (4,)) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda x: (x * torch.tensor([3j])).abs(), "complex"),
        (lambda x: (x * 3j).abs(), "complex"),
        (lambda x: x.sum(1, dtype=torch.int64), "int64"),
        (lambda x: x.mean(1, keepdim=True, dtype=torch.float16), "float16"),
        (lambda x: x.topk(2, 1, sorted=False).values, "sorted=True"),
        (torch.msort, "msort"),
        (lambda x: torch.linalg.norm(x.reshape(-1, 2, 2), 2, (1, 2)), "vector_norm"),
        (lambda x: F.batch_norm(x, torch.zeros(4), torch.full((4,), -9.9999e-6)), "variances"),
        (lambda x: F.pad(x, (1, 1), value=x), "depends on the input"),
        (lambda x: torch.where((x > 0) & (x < 1), x, -x), "comparison"),
        (lambda x: x + (x > 0), "comparison"),
        (lambda x: F.linear(x, torch.ones(4)), "one matrix"),
        (lambda x: torch.addmm(torch.ones(2, 3), x, torch.ones(4, 3)), "vector of biases"),
        (torch.vmap(lambda row: row * 2), "true tensors"),
        (lambda x: torch.vmap(lambda row: row * x[0])(torch.ones(4, 4)), "vmap"),
        (lambda x: torch.add(x, x, out=x), "out"),
        (lambda x: F.normalize(x, eps=1.0, out=x.clone()), "out="),
        (lambda x: torch.linalg.norm(x.reshape(-1, 2, 2), 1, (1, 2)), "vector_norm"),
        (lambda x: torch.linalg.norm(x.reshape(-1, 2, 2), math.inf, (1, 2)), "vector_norm"),
        (lambda x: torch.linalg.norm(x.reshape(-1, 2, 2), "nuc", (1, 2)), "vector_norm"),
        (lambda x: torch.norm(x.reshape(-1, 2, 2), "nuc", (1, 2)), "order 1 and more"),
        (lambda x: x / (1 + x.std(True)), "all dimensions"),
        (lambda x: x.rot90(2, (0, 1)), "mixes"),
        (lambda x: torch.zeros_like(x).index_add(0, torch.arange(len(x)).flip(0), x), "the batch"),
        (lambda x: x[:, 0].index_add(0, torch.arange(len(x)).flip(0), torch.ones(len(x))), "the batch"),
        (lambda x: torch.addcmul(x, torch.ones(4), torch.full((4,), 0.1)), "constants"),
        (lambda x: torch.addcdiv(x, torch.ones(4), torch.full((4,), 0.1)), "constants"),
        (lambda x: torch.zeros_like(x).scatter_add(0, torch.zeros(len(x), 4, dtype=torch.long), x), "the batch"),
        (lambda x: x[torch.arange(len(x))[:, None], torch.tensor([[0, 1], [1, 2]])], "picks inputs"),
        (lambda x: x[torch.arange(len(x))[None], 0], "picks inputs"),
        (lambda x: torch.zeros_like(x).index_put((torch.arange(len(x))[:, None], PLACES["tensor"]), x[:, :3]), "one"),
        (lambda x: written(x, slice(1, None), slice(-1)), "clone"),
    ],
)
def test_what_an_argument_makes_unprovable_is_refused(function: Callable[[Tensor], Any], word: str) -> None:
    with pytest.raises(UnknownLipschitzConstant, match=word):
        lipschitz_bound(Calls(function), (4,))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.leaky_relu(x, math.nan),
        lambda x: F.prelu(x, torch.tensor([math.nan])),
        lambda x: F.elu(x, math.nan),
    ],
)
def test_a_slope_that_is_no_number_is_no_slope(function: Callable[[Tensor], Tensor]) -> None:
    """At positive inputs it does not show, so that nothing but the bound can tell."""
    model = nn.Sequential(Calls(function), nn.Linear(4, 2)).eval()
    x = torch.rand(3, 4) + 0.1
    assert torch.isfinite(model(x)).all()
    assert not certify(model, x).radii.any()


@pytest.mark.filterwarnings("ignore:__array_wrap__")  # torch's own, where an array meets a tensor
def test_numbers_of_numpy_are_numbers() -> None:
    assert lipschitz_bound(Calls(lambda x: np.float64(3) * x), (4,)) == pytest.approx(3.0)
    assert lipschitz_bound(Calls(lambda x: x + np.ones(4, np.float32)), (4,)) == 1.0


def test_a_norm_as_torch_itself_passes_it_on() -> None:
    assert lipschitz_bound(Calls(lambda x: torch.norm(x, dim=1, keepdim=True)), (4,)) == 1.0


class Shifted(nn.Module):
    """Scores that hang on the last bits of a constant which float32 does not hold."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.head = nn.Linear(66, 2)
        torch.nn.init.constant_(self.head.bias, 0.0)
        self.head.weight.data = torch.cat([torch.ones(2, 2), torch.tensor([[1e6], [0.0]]).expand(2, 64)], 1)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "pad":
            return self.head(F.pad(x, (0, 64), value=0.1))
        wide = F.pad(x, (0, 64))
        return self.head(wide + torch.tensor(0.1, dtype=torch.float64))


@pytest.mark.parametrize("how", ["pad", "add"])
def test_constants_that_float32_does_not_hold_count_as_rounded(how: str) -> None:
    """The program is off by 64e6 times the rounding of 0.1 before it sums anything."""
    certifier = Certifier(Shifted(how).eval(), (2,), arithmetic="float32")
    rounded = next(node for node in certifier.graph.nodes if node.rounding is not None and node.place.kind == how)
    made = rounded.rounding(FLOAT32).constant if rounded.rounding else 0.0
    missing = abs(float(torch.tensor(0.1)) - 0.1) * math.sqrt(64)
    assert made >= missing * (2 if how == "add" else 1)
    certifier(torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (lambda x: x.prod(1), "multiplies"),
        (lambda x: x.half(), "one type"),
        (lambda x: torch.fft.rfft(x).abs(), "CayleyConv2d"),
        (lambda x: x.masked_fill(x > 0, 1.0), "choice by a condition"),
        (lambda x: F.max_pool2d(x.reshape(-1, 1, 2, 2), 2, return_indices=True)[0], "pool without"),
    ],
)
def test_a_refusal_says_where_and_what_to_use(function: Callable[[Tensor], Any], advice: str) -> None:
    with pytest.raises(UnknownLipschitzConstant, match=rf"test_odd_calls.py line \d+\) is not known: .*{advice}"):
        lipschitz_bound(nn.Sequential(nn.Identity(), Calls(function)), (4,))


def test_values_of_one_number_per_input_are_computed_with() -> None:
    def scores(x: Tensor) -> Tensor:
        first, second = x[:, 0], x[:, 1]
        return torch.stack([first * 5, second - 1 + first], 1)

    truth = stretched(scores, (4,))
    assert truth <= lipschitz_bound(Calls(scores), (4,)) <= truth * 1.05
    assert certify(Calls(scores), torch.tensor([[1.0, 0.5, 0.0, 0.0]])).radii > 0


@pytest.mark.parametrize("threshold", [-1e5, -1.0, 0.1, 20.0])
def test_the_jump_of_softplus_is_an_error_not_a_slope(threshold: float) -> None:
    """Just above its threshold torch returns x: two inputs a hair apart get different answers."""

    jump = float(F.softplus(torch.tensor([threshold], dtype=torch.float64), 1.0, 1e9)) - threshold
    head = nn.Linear(1, 2)
    model = nn.Sequential(Calls(lambda x: F.softplus(x, 1.0, threshold)), head).double().eval()
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        head.bias.copy_(torch.tensor([-1.0, 1.0], dtype=torch.float64) * (threshold + jump / 2))
    below = torch.tensor([[threshold]], dtype=torch.float64)
    above = torch.nextafter(below, below + 1)
    assert model(below).argmax() != model(above).argmax()
    assert certify(model, below).radii == 0


class Rewritten(nn.Module):
    """A function of sequences (batch, 3, 4)."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight)


def hard_tanh(x: Tensor) -> Tensor:
    ones = torch.ones_like(x)
    return torch.where(x > 1, ones, torch.where(x < -1, -ones, x))


WRITTEN: dict[str, tuple[Any, float]] = {
    "ReLU by masked_fill": (lambda x, w: x.masked_fill(x < 0, 0.0), 1.0),
    "ReLU by numbers 0 and 1": (lambda x, w: x * (x > 0).float(), 1.0),
    "leaky ReLU by numbers 0 and 1": (lambda x, w: x * (x > 0).to(x.dtype) + 0.1 * x * (x <= 0).type_as(x), 1.1),
    "Hardtanh by ones_like": (lambda x, w: hard_tanh(x), 1.0),
    "the batch moved by movedim": (lambda x, w: x.movedim(0, 2).relu().moveaxis(2, 0), 1.0),
    "the time in front, flipped": (lambda x, w: x.movedim(1, 0).flip(0).transpose(0, 1), 1.0),
    "the time in front, softmax with a type": (
        lambda x, w: x.transpose(0, 1).softmax(0, dtype=x.dtype).transpose(0, 1),
        0.5,
    ),
    "softmax with its own type by place": (lambda x, w: x.softmax(2, x.dtype), 0.5),
    "a matrix times a vector": (lambda x, w: torch.mv(x[:, 0], w)[:, None].expand(-1, 2), 8**0.5),
    "some places filled": (lambda x, w: x.index_fill(2, torch.tensor([0]), 1.0), 1.0),
    "entries at other places": (
        lambda x, w: torch.zeros_like(x).scatter(2, torch.arange(4).flip(0).expand(x.shape), x),
        1.0,
    ),
}


@pytest.mark.parametrize(("function", "constant"), WRITTEN.values(), ids=WRITTEN)
def test_other_ways_to_write_it_are_known(function: Any, constant: float) -> None:
    bound = lipschitz_bound(Rewritten(function).eval(), (3, 4))
    assert constant * (1 - 1e-6) <= bound <= constant * (1 + 1e-3)


def test_two_entries_that_are_scattered_to_one_place_are_refused() -> None:
    twice = Rewritten(lambda x, w: torch.zeros_like(x).scatter(2, torch.zeros(x.shape, dtype=torch.long), x))
    with pytest.raises(UnknownLipschitzConstant, match="two entries go to one place"):
        lipschitz_bound(twice.eval(), (3, 4))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, w: F.instance_norm(torch.ones(1, 3, 4), weight=x[0, :, 0]), "picks inputs out of the batch"),
        (lambda x, w: F.layer_norm(torch.ones(2, 4), (4,), weight=x.sum((1, 2))), "its weight must not depend"),
        (lambda x, w: torch.dstack([x[:, 0, 0], x[:, 0, 1]]), "would take the place of the batch"),
        (lambda x, w: torch.hstack([x[:, 0, 0], x[:, 0, 1]]), "acts along dimension 0"),
        (lambda x, w: x.softmax(2, torch.float64), "keep one type throughout"),
        (lambda x, w: x.transpose(0, 1).max(w).transpose(0, 1), "the batch must be its first dimension"),
    ],
    ids=[
        "an input",
        "a weight of the input",
        "dstack of numbers",
        "hstack of numbers",
        "another type by place",
        "max of two with the time in front",
    ],
)
def test_odd_arguments_are_refused_in_words(function: Any, words: str) -> None:
    with pytest.raises(UnknownLipschitzConstant, match=words):
        lipschitz_bound(Rewritten(function).eval(), (3, 4))


@pytest.mark.parametrize("name", ["t_", "transpose_", "swapaxes_"])
def test_the_batch_is_not_moved_in_place(name: str) -> None:
    """Two inputs of two features are of the same shape with the batch behind."""

    def turned(x: Tensor, w: Tensor) -> Tensor:
        y = x.clone()
        return getattr(y, name)(*() if name == "t_" else (0, 1))

    with pytest.raises(UnknownLipschitzConstant, match="writes to a tensor in place"):
        lipschitz_bound(Rewritten(turned).eval(), (2,))
