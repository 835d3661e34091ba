"""Certificates: tight where the truth is known, zero where nothing can be promised."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip.certification import (
    BrokenCertificateError,
    Certifier,
    Normalise,
    certified_accuracy,
    certify,
)
from onelip.certification.call_arguments import Arguments
from onelip.certification.frozen import frozen_copy
from onelip.certification.graph import Graph
from onelip.certification.leaves import Proofs, in_float64
from onelip.certification.proven_model import trace
from onelip.certification.rounding import error_at_sample, error_in_ball, own_rounding
from onelip.certification.tracing import Tracer
from onelip.errors import InvalidInputError
from onelip.layers import AOLLinear, FirstChannels, Householder, MaxMin, create_conv, create_linear, list_methods
from onelip.layers.methods.cayley import CayleyLinear
from onelip.models import ConvNet
from onelip.proofs.layer_bound import FLOAT32, FLOAT64

METHODS = [method.key for method in list_methods()]


def orthogonal_model(features: int = 12, classes: int = 4) -> nn.Sequential:
    """A linear classifier with orthonormal rows, for which the distance to the boundary is known."""
    return nn.Sequential(CayleyLinear(features, features), FirstChannels(classes)).eval()


def exact_distance(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """Distance of each x to the nearest point where the prediction of W x + b changes, in float64."""
    weight, bias = weight.double(), bias.double()
    scores = x.double() @ weight.mT + bias
    best = scores.argmax(1)
    distances = (scores.gather(1, best[:, None]) - scores) / torch.linalg.vector_norm(
        weight[best][:, None] - weight, dim=2
    )
    return distances.scatter(1, best[:, None], torch.inf).amin(1)


@pytest.mark.parametrize("arithmetic", ["float64", "float32"])
def test_radius_is_tight_for_an_orthogonal_linear_model(arithmetic: Any) -> None:
    model = orthogonal_model()
    x = torch.randn(200, 12)
    layer = model[0]
    truth = exact_distance(layer.operator().tensors()["matrix"][:4], layer.bias.detach()[:4], x)  # pyright: ignore
    radii = certify(model, x, arithmetic=arithmetic).radii
    assert (radii <= truth).all()
    if arithmetic == "float64":
        assert (radii >= 0.999 * truth).all()
        assert (radii >= truth * (1 - 1e-6) - 1e-12).all()
    else:
        assert (radii >= truth - 1e-4).all()


def test_radius_is_the_distance_for_any_linear_head() -> None:
    model = nn.Linear(7, 5).eval()
    x = 3 * torch.randn(100, 7)
    truth = exact_distance(model.weight.detach(), model.bias.detach(), x)
    radii = certify(model, x).radii
    assert (radii <= truth).all()
    assert torch.allclose(radii, truth, rtol=1e-6)


def test_trap_13_unit_norm_rows_do_not_get_sqrt_two() -> None:
    """Opposite rows of norm 1 differ by 2; margin / sqrt(2) would be 1.41 times the true distance."""
    model = nn.Linear(2, 2, bias=False).eval()
    model.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    certificate = certify(model, torch.tensor([[0.5, 0.0]]))
    assert float(certificate.margins) == 1.0
    assert 0.4999 < float(certificate.radii) <= 0.5


def test_head_behind_other_layers_uses_their_constant() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False)).eval()
    model[0].weight.data = 4 * torch.eye(3)
    model[1].weight.data = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
    x = torch.tensor([[1.0, 0.0, 0.0]])
    assert float(certify(model, x).radii) == pytest.approx(4 / (4 * math.sqrt(2)), rel=1e-6)


def test_head_that_is_not_linear_uses_sqrt_two() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU()).eval()
    model[0].weight.data = torch.eye(3)
    assert float(certify(model, torch.tensor([[1.0, 0.0, 0.0]])).radii) == pytest.approx(1 / math.sqrt(2), rel=1e-6)


@pytest.mark.parametrize("arithmetic", ["float64", "float32"])
def test_trap_12_ties_and_what_is_not_finite_certify_nothing(arithmetic: Any) -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(2, 2, bias=False)).eval()
    model[1].weight.data = torch.eye(2)
    x = torch.tensor([[1.0, 1.0], [math.nan, 0.0], [math.inf, 0.0], [-math.inf, 0.0], [1e30, 0.0], [1.0, 0.0]])
    certificate = certify(model, x, arithmetic=arithmetic)
    assert certificate.radii[:4].tolist() == [0.0] * 4
    assert float(certificate.radii[5]) > 0.7
    assert torch.isfinite(certificate.radii).all()
    assert certificate.margins[:4].tolist() == [0.0] * 4


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_weights_that_are_not_finite_are_named(value: float) -> None:
    model = nn.Sequential(AOLLinear(2, 2), nn.Linear(2, 2)).eval()
    next(model.parameters()).data[0, 0] = value
    with pytest.raises(InvalidInputError, match=r"the weights of 0 \(AOLLinear\) are not finite"):
        certify(model, torch.randn(3, 2))


def test_scores_that_never_change_stay_finite() -> None:
    model = nn.Linear(2, 2).eval()
    model.weight.data.zero_()
    model.bias.data = torch.tensor([1.0, 0.0])
    radii = certify(model, torch.randn(3, 2)).radii
    assert (radii > 1000).all()
    assert torch.isfinite(radii).all()


def test_trap_14_input_scale_and_standard_deviations() -> None:
    model = orthogonal_model()
    x = torch.rand(20, 12)
    radii = certify(model, x).radii
    assert torch.allclose(certify(model, x, input_scale=255).radii * 255, radii, rtol=1e-12)
    # dividing by a deviation of 0.2 makes the model five times as steep
    images = torch.rand(20, 12, 1, 1)
    steep = nn.Sequential(Normalise([0.0] * 12, [0.2] * 12), nn.Flatten(), *model).eval()
    assert torch.allclose(
        certify(steep, images * 0.2).radii * 5, certify(model, (images * 0.2 / 0.2).flatten(1)).radii, rtol=1e-5
    )


def test_labels() -> None:
    model = orthogonal_model()
    x = torch.randn(50, 12)
    labels = torch.randint(0, 4, (50,))
    certificate = certify(model, x, labels)
    correct = certificate.predictions == labels
    assert torch.equal(certificate.correct, correct)
    assert torch.equal(certificate.certified(0.1), correct & (certificate.radii >= 0.1))
    assert torch.equal(certificate.certified(0.0), correct)
    with pytest.raises(InvalidInputError, match="labels"):
        _ = certify(model, x).correct


def test_the_model_is_left_as_it_was() -> None:
    model = ConvNet("soc", None, 3, input_size=8, width=4, padding_mode="zeros")
    state = copy.deepcopy(model.state_dict())
    x = torch.rand(3, 3, 8, 8)
    certificate = certify(model, x)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())
    evaluated = certify(model.eval(), x)
    assert torch.allclose(certificate.radii, evaluated.radii, rtol=1e-9)


def test_trap_16_autocast_and_precision_settings_do_not_leak_in_or_out() -> None:
    """The pass that certifies is in full precision whatever is switched on."""
    model = ConvNet("aol", None, 3, input_size=8, width=4).eval()
    x = torch.rand(3, 3, 8, 8)
    plain = certify(model, x, arithmetic="float32")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = certify(model, x, arithmetic="float32")
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(plain.radii, inside.radii)
    assert torch.equal(plain.margins, inside.margins)


def test_batches_do_not_matter() -> None:
    model = orthogonal_model()
    x = torch.randn(30, 12)
    whole, parts = certify(model, x), certify(model, x, batch_size=7)
    assert torch.equal(whole.predictions, parts.predictions)
    assert torch.allclose(whole.radii, parts.radii, rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": torch.zeros(2, 5)}, "shape|features"),
        ({"x": torch.zeros(2, 12, dtype=torch.long)}, "type"),
        ({"x": torch.zeros(2, 12, dtype=torch.float64), "arithmetic": "float32"}, "type"),
        ({"labels": torch.zeros(3)}, "labels"),
        ({"labels": torch.tensor([0, 4])}, "from 0 to 3, got 4"),
        ({"labels": torch.tensor([0, -1])}, "from 0 to 3, got -1"),
        ({"labels": torch.tensor([0, 255], dtype=torch.uint8)}, "from 0 to 3, got 255"),
        ({"labels": torch.zeros(3, dtype=torch.complex64)}, "class numbers"),
        ({"labels": [0, 1, 2]}, "got a list: use torch.as_tensor"),
        ({"input_scale": "255"}, "input_scale='255'"),
        ({"arithmetic": "bfloat16"}, "float64 or float32"),
        ({"input_scale": 0.0}, "input_scale"),
        ({"x": torch.zeros(0, 12)}, "shape"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        certify(orthogonal_model(), **{"x": torch.zeros(2, 12), **arguments})


def test_models_without_scores_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="two scores"):
        certify(nn.Linear(3, 1), torch.zeros(2, 3))
    with pytest.raises(InvalidInputError, match="two scores"):
        certify(nn.ReLU(), torch.zeros(2, 3, 4))
    with pytest.raises(InvalidInputError, match="float32 model"):
        certify(nn.Linear(3, 2).double(), torch.zeros(2, 3), arithmetic="float32")


class Doubled(nn.Module):
    lipschitz_constant = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_a_declared_module_without_a_rounding_error_is_an_assumption_in_words() -> None:
    model = nn.Sequential(Doubled(), nn.Linear(3, 2)).eval()
    x = torch.randn(2, 3)
    certificate = certify(model, x)
    assert (certificate.radii > 0).all()
    (assumption,) = certificate.assumptions
    assert "'0'" in assumption
    assert "Doubled" in assumption
    assert "exact arithmetic" in assumption
    model[0].rounding_error = 0.0  # pyright: ignore - doubling is exact
    assert certify(model, x).assumptions == ()
    assert torch.equal(certify(model, x).radii, certificate.radii)


def test_float64_pass_uses_the_deployed_weights() -> None:
    """Not weights transformed anew in float64: those are another function, 1e-7 away."""
    layer = create_conv("lot", 4, 4, kernel_size=3).eval()
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
    transformed = layer.operator((6, 6)).map(Tensor.double)
    twin = in_float64(nn.Sequential(layer))
    with torch.no_grad():
        assert torch.equal(twin(x), copy.deepcopy(layer).double().apply_to(x, transformed))
        assert not torch.equal(twin(x), copy.deepcopy(layer).double().eval()(x))
        layer.operator((6, 6)).tensors()["matrices"].mul_(2)
        assert torch.allclose(twin(x), 2 * copy.deepcopy(layer).double().apply_to(x, transformed), atol=1e-6)


@pytest.mark.parametrize("activation", ["maxmin", "householder"])
@pytest.mark.parametrize("method", METHODS)
def test_forward_errors_are_bounded(method: str, activation: str) -> None:
    """The float32 program against the exact function (the float64 pass), at every layer, in the ball."""
    model = ConvNet(method, None, 4, input_size=8, width=4, activation=activation).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    x, radius = 3 * torch.randn(8, 3, 8, 8), 0.5
    graph, _ = traced_values(model, x)
    here = error_at_sample(graph.used(), FLOAT64, len(x))
    ball = error_in_ball(graph.used(), FLOAT32, here, torch.full((8,), radius, dtype=torch.float64))
    direction = torch.randn_like(x)
    moved = x + 0.49 * direction / torch.linalg.vector_norm(direction.flatten(1), dim=1)[:, None, None, None]
    single, (graph, _) = moved, traced_values(model, moved)
    layers = dict(model.named_modules())
    largest = 0.0
    with torch.no_grad():
        for node in graph.used()[1:]:
            single = layers[node.place.path](single)
            assert node.value is not None
            error = torch.linalg.vector_norm((single.double() - node.value).flatten(1), dim=1)
            assert (error <= ball.errors[node.index]).all(), node.place
            largest = max(largest, float(error.max() / ball.errors[node.index].max()))
    assert largest > 1e-4, "a bound ten thousand times too large bounds nothing of interest"


def traced_values(model: nn.Module, x: Tensor) -> tuple[Graph, Tensor]:
    """The graph of a model on a batch, with the float64 values of all nodes."""
    return Tracer(frozen_copy(model), Proofs(), torch.float32, keep=True).run(Arguments.of(x.double()))


def test_householder_on_its_line() -> None:
    """Where rounding decides on which side of the line a point is, both outcomes are within the bound."""
    layer = Householder(2).eval()
    layer.angle.data.fill_(0.7)
    t = torch.randn(2000, 1)
    x = torch.cat([t * math.cos(0.35), t * math.sin(0.35)], 1)
    with torch.no_grad():
        error = torch.linalg.vector_norm(layer(x).double() - in_float64(layer)(x.double()), dim=1)
    slope = own_rounding(trace(layer, (2,)).output, FLOAT32, 0.0).slope
    assert (error <= slope * torch.linalg.vector_norm(x.double(), dim=1)).all()


FACTORS: dict[int, float] = {}


class Scaled(nn.Module):
    """A model that can change where nobody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * FACTORS.get(id(self), 1.0)


@pytest.mark.parametrize("arithmetic", ["float64", "float32"])
def test_a_program_that_breaks_the_proof_is_noticed(arithmetic: Any) -> None:
    """Whatever makes the program differ from what was proven is an error, with the largest difference in it."""
    model = Scaled().eval()
    certifier = Certifier(model, (12,), arithmetic=arithmetic)
    certifier(torch.randn(5, 12))
    FACTORS[id(model)] = 1.0 + 1e-4
    with pytest.raises(BrokenCertificateError, match="differ"):
        certifier(torch.randn(5, 12))


def test_a_model_that_changed_is_refused() -> None:
    model = orthogonal_model()
    certifier = Certifier(model, (12,))
    certifier(torch.randn(2, 12))
    with torch.no_grad():
        model[0].weight.mul_(2)  # pyright: ignore
    with pytest.raises(InvalidInputError, match="has changed"):
        certifier(torch.randn(2, 12))


def test_inputs_are_not_written_to() -> None:
    x = torch.randn(4, 3, dtype=torch.float64)
    before = x.clone()
    certify(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)).double().eval(), x)
    assert torch.equal(x, before)


def loader(count: int = 3) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(20, 12), torch.randint(0, 4, (20,))) for _ in range(count)]


@pytest.mark.parametrize("progress", [None, False, True])
def test_certified_accuracy(progress: bool | None) -> None:
    model, batches = orthogonal_model(), loader()
    result = certified_accuracy(model, batches, eps=(0.1, 0.5), progress=progress)
    parts = [certify(model, x, labels) for x, labels in batches]
    correct = torch.cat([part.correct for part in parts]).double().mean()
    assert result.accuracy == pytest.approx(float(correct))
    for eps in (0.1, 0.5):
        expected = torch.cat([part.certified(eps) for part in parts]).double().mean()
        assert result.certified[eps] == pytest.approx(float(expected))
    assert result.lipschitz < 1 + 1e-6
    assert list(certified_accuracy(model, batches).certified) == [36 / 255, 72 / 255, 108 / 255, 1.0]


def test_curve() -> None:
    result = certified_accuracy(orthogonal_model(), loader(), eps=(0.1,))
    eps, shares = result.curve(11, largest=1.0)
    assert eps.tolist() == pytest.approx([0.1 * i for i in range(11)])
    assert (shares.diff() <= 0).all()
    assert float(shares[1]) == pytest.approx(result.certified[0.1])
    assert float(shares[0]) <= result.accuracy
    ends, last = result.curve(5)
    assert float(ends[-1]) == float(result.radii.max())
    assert float(last[-1]) == pytest.approx(1 / 60)


def test_certified_accuracy_of_nothing() -> None:
    with pytest.raises(InvalidInputError, match="no batches"):
        certified_accuracy(orthogonal_model(), [])
    with pytest.raises(InvalidInputError, match="eps"):
        certified_accuracy(orthogonal_model(), loader(), eps=(-1.0,))


def test_what_is_no_loader_is_told_in_one_line() -> None:
    (x, labels), model = loader(1)[0], orthogonal_model()
    bad: list[tuple[Any, str]] = [
        ((x, labels), r"batches \(x, labels\).*got a tensor"),
        ([x], r"batches \(x, labels\).*got a tensor"),
        ([{"x": x, "labels": labels}], "got a dict"),
        (torch.utils.data.TensorDataset(x, labels), "got a TensorDataset"),
        ([(x.numpy(), labels)], "ndarray"),
        ([(x, labels.numpy())], "as_tensor"),
        ([(x, labels + 4)], "from 0 to 3"),
    ]
    for batches, words in bad:
        with pytest.raises(InvalidInputError, match=words) as caught:
            certified_accuracy(model, batches)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="got a str"):
        certified_accuracy("model", [(x, labels)])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInputError, match="radius of at least 0"):
        certify(model, x, labels).certified("0.1")  # pyright: ignore[reportArgumentType]


def test_maxmin_network_by_hand() -> None:
    """Two layers whose certificate can be worked out: rotation, MaxMin, difference of two outputs."""
    linear = create_linear("standard", 2, 2, bias=False)
    linear.weight.data = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    head = nn.Linear(2, 2, bias=False)
    head.weight.data = torch.eye(2)
    model = nn.Sequential(linear, MaxMin(), head).eval()
    x = torch.tensor([[1.0, 2.0]])  # -> (-1, 2) -> (2, -1): margin 3, constant sqrt(2)
    assert float(certify(model, x).radii) == pytest.approx(3 / math.sqrt(2), rel=1e-6)
