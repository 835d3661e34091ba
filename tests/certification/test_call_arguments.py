"""Models of several arguments: radii and constants in the norm of all floating tensors of a sample together."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onelip
from onelip.certification import Certifier, certified_accuracy, certify, explain, lipschitz_bound
from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.layers import AOLConv2d, AOLLinear, BCOPLinear, MaxMin

A, B = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), torch.randn(6, 4)


class Combined(nn.Module):
    """A function of several arguments, with a linear layer behind it."""

    def __init__(self, combine: Callable[..., Tensor], features: int = 4) -> None:
        super().__init__()
        self.combine, self.head = combine, nn.Linear(features, 3, bias=False)
        nn.init.orthogonal_(self.head.weight)

    def forward(self, *arguments: Any, **keywords: Any) -> Tensor:
        return self.head(self.combine(*arguments, **keywords))


COMBINATIONS: dict[str, tuple[Callable[..., Tensor], int, float]] = {
    "side by side": (lambda a, b: torch.cat([a, b], 1), 8, 1.0),
    "added": (lambda a, b: a + b, 4, 2**0.5),
    "average": (lambda a, b: (a + b) / 2, 4, 0.5**0.5),
    "larger": (torch.maximum, 4, 1.0),
    "twice": (lambda a, b: torch.cat([a, a, b], 1), 12, 2**0.5),
    "one ignored": (lambda a, b: b.relu(), 4, 1.0),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_constant_is_that_of_the_joined_vector(name: str) -> None:
    combine, features, constant = COMBINATIONS[name]
    model = Combined(combine, features).double()
    assert lipschitz_bound(model, ((4,), (4,))) == pytest.approx(constant, rel=1e-6)

    def joined(vector: Tensor) -> Tensor:
        return model(vector[None, :4], vector[None, 4:])[0]

    for a, b in zip(A.double(), B.double(), strict=True):
        jacobian: Any = torch.autograd.functional.jacobian(joined, torch.cat([a, b]))
        assert torch.linalg.matrix_norm(jacobian, 2) <= constant * (1 + 1e-6)


def test_attack_on_both_arguments_breaks_the_radius_of_one_but_not_ours() -> None:
    model = Combined(lambda a, b: a + b).double()
    a, b = A.double(), B.double()
    certificate = certify(model, (a, b))
    scores = model(a, b)
    top = scores.topk(2, 1)
    rows = model.head.weight.detach()
    normal = rows[top.indices[:, 1]] - rows[top.indices[:, 0]]
    direction = normal / normal.norm(dim=1, keepdim=True)
    naive = (top.values[:, 0] - top.values[:, 1]) / normal.norm(dim=1)  # as if only one argument could be moved

    def predictions(radii: Tensor) -> Tensor:
        """Both arguments together move by this radius."""
        step = direction * radii[:, None] / 2**0.5
        return model(a + step, b + step).argmax(1)

    assert bool((predictions(naive * 0.99) != certificate.predictions).all())
    assert bool((predictions(certificate.radii) == certificate.predictions).all())
    assert bool((predictions(certificate.radii * 1.001) != certificate.predictions).all())


class Sensors(nn.Module):
    """A camera image, a table and a kind of vehicle: layers of onelip, an embedding and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.table = AOLConv2d(3, 4, 3, stride=4), BCOPLinear(5, 8)
        self.kind, self.head, self.sort = nn.Embedding(3, 16), AOLLinear(24, 4), MaxMin()

    def forward(
        self, image: Tensor, table: Tensor, *, kind: Tensor, seen: Tensor | None = None, gain: float = 1.0
    ) -> Tensor:
        pixels = self.conv(image).flatten(1) * gain + self.kind(kind)
        numbers = self.table(table if seen is None else table * seen)
        return self.head(self.sort(torch.cat([pixels, numbers], 1)))


def sensors(count: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {
        "image": torch.rand(count, 3, 8, 8, generator=generator),
        "table": torch.randn(count, 5, generator=generator),
        "kind": torch.randint(3, (count,), generator=generator),
        "seen": torch.rand(count, 5, generator=generator) > 0.3,
        "gain": 0.5,
    }


@pytest.mark.parametrize("arithmetic", ["float64", "float32"])
def test_keywords_with_integers_masks_and_numbers(arithmetic: Any) -> None:
    torch.manual_seed(0)
    model, x = Sensors().eval(), sensors(7)
    certificate = certify(model, x, torch.zeros(7, dtype=torch.long), arithmetic=arithmetic)
    assert torch.equal(certificate.predictions, model(**x).argmax(1))
    assert bool((certificate.radii > 0).any())
    in_parts = certify(model, x, batch_size=3, arithmetic=arithmetic)
    assert torch.allclose(certificate.radii, in_parts.radii, rtol=1e-3)
    assert 0.5 < lipschitz_bound(model, x) <= 1 + 1e-5
    double, generator = copy.deepcopy(model).double(), torch.Generator().manual_seed(3)
    for _ in range(20):  # changes of both, exactly as long as certified
        change = {name: torch.randn(x[name].shape, generator=generator).double() for name in ("image", "table")}
        length = torch.cat([part.flatten(1) for part in change.values()], 1).norm(dim=1)
        scale = certificate.radii / length
        moved = {name: x[name] + part * scale.reshape(-1, *[1] * (part.dim() - 1)) for name, part in change.items()}
        scores = double(**{**x, **moved})
        assert torch.equal(scores.argmax(1), certificate.predictions)


def test_nested_arguments_and_tables() -> None:
    def combine(pair: list[Tensor], extra: dict[str, Tensor]) -> Tensor:
        return torch.cat([*pair, extra["more"]], 1)

    model = Combined(combine, 12)
    certificate = certify(model, ([A, B], {"more": A}))
    assert certificate.radii.shape == (6,)
    rows = explain(model, ([(4,), (4,)], {"more": (4,)})).nodes
    assert [row.path for row in rows[:3]] == ["0.0", "0.1", "1.more"]
    assert rows[0].constant == rows[0].from_input == 1
    accuracy = certified_accuracy(model, [(([A, B], {"more": A}), certificate.predictions)])
    assert accuracy.accuracy == 1


def test_one_tensor_in_a_tuple_is_that_tensor() -> None:
    model = nn.Sequential(AOLLinear(4, 8), MaxMin(), AOLLinear(8, 3)).eval()
    plain = certify(model, A).radii
    assert torch.equal(certify(model, (A,)).radii, plain)
    assert torch.equal(certify(model, {"input": A}).radii, plain)


def test_arguments_are_left_alone() -> None:
    model = Combined(lambda a, b: a.mul_(0.5) + b.relu_())
    a, b = A.clone(), B.clone()
    assert certify(model, (a, b)).radii.max() > 0
    assert torch.equal(a, A)
    assert torch.equal(b, B)


def test_a_scalar_for_each_sample() -> None:
    model = Combined(lambda a, time: a + time[:, None], 4).double()
    assert lipschitz_bound(model, (A, A[:, 0])) <= 3  # 1 and sqrt(4) in a sum
    assert certify(model, (A.double(), A[:, 0].double())).radii.shape == (6,)


MISTAKES: list[tuple[str, Any, str]] = [
    ("batches of two lengths", (A, B[:3]), r"\(6, 4\) and \(3, 4\)"),
    ("only integers", {"a": A.long()}, "no tensor of a floating type"),
    ("an object", (A, object()), "a object among its arguments"),
    ("complex numbers", (A, torch.complex(A, B)), "complex64"),
    ("nothing", (), "no tensor of a floating type"),
]


@pytest.mark.parametrize(("x", "message"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_mistakes_are_told_in_one_line(x: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        certify(Combined(lambda *parts: parts[0]), x)
    assert "\n" not in str(caught.value)


def test_other_mistakes() -> None:
    model = Combined(lambda a, b: a + b)
    certifier = Certifier(model, ((4,), (4,)))
    assert certifier.input_shape == ((4,), (4,))
    with pytest.raises(InvalidInputError, match="expected"):
        certifier((A, B[:, :3]))
    with pytest.raises(InvalidInputError, match="positive numbers"):
        lipschitz_bound(model, ("ab", None))
    two = nn.Bilinear(4, 4, 3)
    with pytest.raises(InvalidInputError, match="missing a required argument: 'input2'"):
        certify(two, A)
    with pytest.raises(InvalidInputError, match="unexpected keyword argument 'b'"):
        certify(two, {"input1": A, "input2": B, "b": B})
    with pytest.raises(InvalidInputError, match="one shape"):
        onelip.export_torch(model, "model.pt2", ((4,), (4,)))  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnknownLipschitzConstant, match="product of two values"):
        certify(Combined(lambda a, b: a * b), (A, B))
    order = torch.arange(6).flip(0)
    with pytest.raises(UnknownLipschitzConstant, match="out of the batch"):
        certify(Combined(lambda a, order: a[order]), (A, order))
