"""Models that are another function at the next call: seen, or refused, even where scores do not tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification import Certifier, UnknownLipschitzConstant, certify, lipschitz_bound
from onelip.errors import InvalidInputError


class Settings:
    def __init__(self) -> None:
        self.slope = 0.1


class Sloped(nn.Module):
    """Where inputs are positive its slope does not show, but beyond the radius it does."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where, self.weight = where, nn.Parameter(torch.eye(2))
        self.number, self.table, self.numbers, self.settings = 0.1, {"slope": 0.1}, [0.1], Settings()
        self.tensor = torch.tensor([0.1])

    def slope(self) -> Any:
        return {
            "number": self.number,
            "table": self.table["slope"],
            "numbers": self.numbers[0],
            "settings": self.settings.slope,
            "tensor": self.tensor,
        }[self.where]

    def set(self, slope: float) -> None:
        self.number, self.table["slope"], self.numbers[0], self.settings.slope = slope, slope, slope, slope
        self.tensor.fill_(slope)

    def forward(self, x: Tensor) -> Tensor:
        slope = self.slope()
        bent = F.prelu(x - 1, slope) if isinstance(slope, Tensor) else F.leaky_relu(x - 1, slope)
        return F.linear(bent, self.weight) * torch.tensor([1.0, -1.0])


@pytest.mark.parametrize("where", ["number", "table", "numbers", "settings", "tensor"])
def test_a_certifier_sees_changed_attributes_that_scores_do_not_show(where: str) -> None:
    """With a slope of 50 a step of 1.05, less than the radius, takes the first score below the second."""
    model, x = Sloped(where).eval(), torch.tensor([[2.0, 1.5]])
    certifier = Certifier(model, (2,))
    assert float(certifier(x).radii) > 1.05
    model.set(50.0)
    with torch.no_grad():
        assert model(x).argmax(1).item() == 0
        assert model(x - torch.tensor([[1.05, 0.0]])).argmax(1).item() == 1
    with pytest.raises(InvalidInputError, match="changed"):
        certifier(x)


class Changing(nn.Module):
    """Multiplies by something else at every call, which zeros do not show."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.factor = how, 100.0
        self.register_buffer("kept", torch.full((1,), 100.0))
        self.head = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "random":
            return self.head(x * torch.rand(1) * 100)
        if self.how == "buffer":
            return self.head(x * self.get_buffer("kept").mul_(0.5))
        if self.how == "data":
            self.get_buffer("kept").data *= 0.5
            return self.head(x * self.get_buffer("kept"))
        self.factor /= 2
        return self.head(x * self.factor)


@pytest.mark.parametrize("how", ["random", "buffer", "data", "number"])
def test_a_model_that_changes_itself_is_refused(how: str) -> None:
    with pytest.raises(UnknownLipschitzConstant, match="function at every call"):
        certify(Changing(how).eval(), torch.zeros(1, 2))
    with pytest.raises(UnknownLipschitzConstant, match="function at every call"):
        lipschitz_bound(Changing(how).eval(), (2,))
    with pytest.raises(UnknownLipschitzConstant, match="function at every call"):
        certify(Changing(how).train(), torch.zeros(1, 2))


class Remembers(nn.Module):
    """Keeps a constant for the shape at hand, as tables of positions are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.mask, self.tables = nn.Linear(3, 2), None, dict[int, Tensor]()

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None or self.mask.shape != x.shape:
            self.mask = torch.full(tuple(x.shape), 0.5)
        table = self.tables.setdefault(len(x), torch.arange(3.0))
        return self.head(x * self.mask + table)


def test_what_is_kept_for_a_shape_is_no_state() -> None:
    certifier = Certifier(Remembers().eval(), (3,))
    assert (certifier(torch.randn(5, 3)).radii > 0).any()
    assert (certifier(torch.randn(7, 3), batch_size=4).radii > 0).any()


class Shortens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.head(x).float()


def test_autocast_in_forward_is_refused() -> None:
    """At zero nothing is rounded, so that scores do not tell."""
    with pytest.raises(UnknownLipschitzConstant, match="autocast"):
        certify(Shortens().eval(), torch.zeros(1, 2), arithmetic="float32")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_compiled_code_of_torch_jit_is_refused_with_a_way_forward() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)).eval())
    with pytest.raises(UnknownLipschitzConstant, match="made from"):
        certify(scripted, torch.zeros(1, 2))


class Keeps(nn.Module):
    """Keeps its features for others to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.features = nn.Linear(2, 2), None

    def forward(self, x: Tensor) -> Tensor:
        self.features = x
        return self.head(x)


def test_what_a_model_keeps_is_named_where_it_looks_like_state() -> None:
    model, x = Keeps().eval(), torch.randn(3, 2)
    certifier = Certifier(model, (2,))
    assert len(certifier(x).radii) == len(certifier(-x).radii)
    model(x)
    with pytest.raises(UnknownLipschitzConstant, match=r"changes 'features'.*must be None before"):
        certify(model, -x)


class AsksForGradients(nn.Module):
    """Steeper where gradients are recorded, which is where most people call it: the scores of x stay the same."""

    def __init__(self, how: str, steep: float) -> None:
        super().__init__()
        self.how, self.steep = how, steep

    def records(self, x: Tensor) -> bool:
        if self.how == "inference":
            return not torch.is_inference_mode_enabled()
        return torch.is_grad_enabled() if self.how == "grad" else x.requires_grad

    def forward(self, x: Tensor) -> Tensor:
        bent = F.leaky_relu(x - 1, self.steep) if self.records(x) else F.leaky_relu(x - 1, 0.5)
        return bent * torch.tensor([1.0, -1.0])


@pytest.mark.parametrize("how", ["grad", "inference", "requires_grad"])
def test_code_that_asks_for_gradients_is_one_program_or_none(how: str) -> None:
    """A step of 1.2 changes the answer of the steep program; the radius of the flat one is 2.1."""
    x, step = torch.tensor([[2.0, 3.0]]).requires_grad_(), torch.tensor([[1.2, 0.0]])
    flat, steep = AsksForGradients(how, 0.5), AsksForGradients(how, 50.0)
    with torch.no_grad():
        assert float(certify(flat, x).radii) > 2
    with torch.enable_grad():
        assert steep(x).argmax() != steep(x - step).argmax()
    assert torch.equal(steep(x), flat(x))
    with pytest.raises(UnknownLipschitzConstant, match="gradients"):
        certify(steep, x)
    assert torch.is_grad_enabled()
