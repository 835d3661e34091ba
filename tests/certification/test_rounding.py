"""The floating-point attack: search the edge of certified balls for points that the *program* predicts otherwise.

A certificate computed as margin / constant in float32 forgets that the margin, the constant and the program at the
perturbed point are all rounded. Points at the very edge of the ball, moved by single bits, then refute it (Jin et al.,
"Getting a-Round Guarantees: Floating-Point Attacks on Certified Robustness"). Ours withstands the same search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip.certification import certify
from onelip.certification.call_arguments import Arguments
from onelip.certification.frozen import frozen_copy
from onelip.certification.leaves import Proofs, in_float64
from onelip.certification.proven_model import trace
from onelip.certification.rounding import error_at_sample, error_in_ball, own_rounding
from onelip.certification.tracing import Tracer
from onelip.layers import FirstChannels, create_conv, create_linear
from onelip.proofs.layer_bound import FLOAT32, FLOAT64
from onelip.proofs.measured_rounding import error_at

SAMPLES, CANDIDATES = 60, 200

Radii = Callable[[nn.Module, Tensor], Tensor]


def linear_model(dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    """A plain linear classifier on inputs far from zero, where rounding is largest."""
    model = nn.Linear(120, 2).eval().to(dtype)
    x = 20 + torch.randn(SAMPLES, 120, dtype=dtype)
    with torch.no_grad():
        difference = model.weight[0] - model.weight[1]
        scores = model(x)
        x -= (scores[:, :1] - scores[:, 1:]) * difference / difference.square().sum()
        # Close to the boundary, as adversaries like them: margins of some thousand roundoffs.
        distance = 3000 * torch.finfo(dtype).eps * torch.linalg.vector_norm(x, dim=1, keepdim=True)
        x += distance * torch.randn(SAMPLES, 1, dtype=dtype) * difference
    return model, x


def conv_model(dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    """An orthogonal convolution and an orthogonal head: linear, so that the edge of the ball is the boundary."""
    layers = [
        create_conv("bcop", 4, 4, kernel_size=3),
        nn.Flatten(),
        create_linear("bjorck", 100, 100),
        FirstChannels(2),
    ]
    model = nn.Sequential(*layers).eval().to(dtype)
    return model, 5 + torch.randn(SAMPLES, 4, 5, 5, dtype=dtype)


@torch.no_grad()
def naive_radii(model: nn.Module, x: Tensor) -> Tensor:
    """margin / ||gradient of the margin|| in the program's arithmetic: exact for a linear model but for rounding."""
    scores = model(x)
    margins = (scores[:, 0] - scores[:, 1]).abs()
    return margins / torch.linalg.vector_norm(_direction(model, x), dim=1)


def certified(model: nn.Module, x: Tensor) -> Tensor:
    return certify(model, x, arithmetic="float32" if x.dtype == torch.float32 else "float64").radii


def _direction(model: nn.Module, x: Tensor) -> Tensor:
    """Gradient (batch, features) of score 0 minus score 1."""
    with torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        scores = model(x)
        (gradient,) = torch.autograd.grad((scores[:, 0] - scores[:, 1]).sum(), x)
    return gradient.flatten(1)


@torch.no_grad()
def violations(model: nn.Module, x: Tensor, radii: Tensor) -> int:
    """Number of points found within the radius, measured exactly enough, that the program predicts otherwise."""
    generator = torch.Generator().manual_seed(0)
    predictions = model(x).argmax(1)
    directions = _direction(model, x).double()
    directions /= torch.linalg.vector_norm(directions, dim=1, keepdim=True)
    directions *= (1.0 - 2.0 * predictions.double())[:, None]  # towards the other class: against the gradient for 0
    found = 0
    for sample in torch.arange(len(x))[radii > 0].tolist():
        centre, radius = x[sample].flatten().double(), float(radii[sample])
        shrink = 1 - torch.logspace(-16, -3, CANDIDATES, dtype=torch.float64)[:, None]
        points = centre - radius * shrink * directions[sample]
        bits = torch.randint(-1, 2, points.shape, generator=generator).double() * torch.finfo(x.dtype).eps / 2
        points = (points * (1 + bits)).to(x.dtype)
        offsets = points.double() - centre
        inside = torch.linalg.vector_norm(offsets, dim=1) * (1 + 1e-13) <= radius
        # One at a time, as a user would: a batch may sum in another order.
        for point in points[inside].reshape(-1, *x.shape[1:])[:25]:
            found += int(model(point[None]).argmax(1)[0] != predictions[sample])
    return found


CASES = [(linear_model, torch.float32), (linear_model, torch.float64), (conv_model, torch.float32)]


@pytest.mark.parametrize(("make", "dtype"), CASES, ids=["linear32", "linear64", "conv32"])
def test_no_point_of_a_certified_ball_is_predicted_otherwise(make: Callable, dtype: torch.dtype) -> None:
    tried = 0
    for seed in range(3):
        torch.manual_seed(seed)
        model, x = make(dtype)
        radii = certified(model, x)
        tried += int((radii > 0).sum())
        assert violations(model, x, radii) == 0
    assert tried > 5, "certificates that are all zero would pass this test without being tried"


@pytest.mark.parametrize(("make", "dtype"), CASES, ids=["linear32", "linear64", "conv32"])
def test_naive_certificates_are_violated(make: Callable, dtype: torch.dtype) -> None:
    """The same search refutes the usual certificate: the test above can fail."""
    found = 0
    for seed in range(3):
        torch.manual_seed(seed)
        model, x = make(dtype)
        found += violations(model, x, naive_radii(model, x))
    assert found > 0


@pytest.mark.parametrize("method", ["bcop", "cayley", "cpl", "sandwich"])
@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_measured_errors_hold_everywhere_in_the_ball(method: str, padding_mode: Any) -> None:
    """What a layer rounds is measured at x; what the ball adds to it bounds what is computed elsewhere."""
    torch.manual_seed(3)
    layer = create_conv(method, 3, 5, 3, padding_mode=padding_mode).eval().requires_grad_(False)
    assert layer.bias is not None
    layer.bias.normal_(std=3.0)
    x, radius = torch.randn(4, 3, 6, 6), 0.7
    tracer = Tracer(frozen_copy(layer), Proofs(), torch.float32, measures=FLOAT32)
    graph, _ = tracer.run(Arguments.of(x.double()))
    (node,) = graph.used()[1:]
    assert node.measured is not None
    here = error_at_sample(graph.used(), FLOAT64, len(x))
    ball = error_in_ball(graph.used(), FLOAT32, here, torch.full((4,), radius, dtype=torch.float64))
    assert (node.measured.errors < ball.errors[node.index]).all()
    for _ in range(50):
        step = torch.randn_like(x)
        moved = x + step * (radius * (1 - 1e-6) / torch.linalg.vector_norm(step.flatten(1), dim=1)[:, None, None, None])
        error = torch.linalg.vector_norm((layer(moved).double() - in_float64(layer)(moved.double())).flatten(1), dim=1)
        assert (error <= ball.errors[node.index]).all()


@pytest.mark.parametrize("method", ["aol", "cayley", "cpl", "sandwich"])
def test_measured_errors_leave_more_of_a_radius(method: str) -> None:
    """The worst case over all inputs of a norm is far from what happens."""
    torch.manual_seed(0)
    layer = create_conv(method, 4, 4, 3).eval().requires_grad_(False)
    x = torch.rand(8, 4, 8, 8, dtype=torch.float64)
    bound = layer.bound((4, 8, 8))
    errors = error_at(bound, x, FLOAT32)
    assert errors is not None
    assert bound.rounding is not None
    plain = bound.rounding(FLOAT32)
    assert (errors < 0.7 * (plain.slope * torch.linalg.vector_norm(x.flatten(1), dim=1) + plain.constant)).all()


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("make", [nn.ELU, nn.CELU, lambda alpha: nn.SELU()], ids=["elu", "celu", "selu"])
def test_exponentials_that_cancel_are_within_the_error(make: Callable[[float], nn.Module], alpha: float) -> None:
    """torch 2.6 computes e^x - 1 in float32 as it is written: near zero all digits of x are lost."""
    module = make(alpha)
    scale = 1.0507009873554805 if isinstance(module, nn.SELU) else 1.0
    size, inner = (1.6732632423543772, 1.0) if scale != 1 else (alpha, alpha if isinstance(module, nn.CELU) else 1.0)
    x = -torch.logspace(-12, 0, 200)
    written_out = scale * size * ((x / inner).exp() - 1)
    exact = scale * size * torch.expm1(x.double() / inner)
    error = torch.linalg.vector_norm(written_out.double() - exact)
    made = own_rounding(trace(module, (200,)).output, FLOAT32, 0.0)
    assert error > 10 * FLOAT32.unit_roundoff * torch.linalg.vector_norm(x[:100].double())
    for part, wrong in ((x[:100], (written_out.double() - exact)[:100]), (x, written_out.double() - exact)):
        allowed = made.slope * torch.linalg.vector_norm(part.double()) + made.constant * (len(part) / 200) ** 0.5
        assert torch.linalg.vector_norm(wrong) <= allowed
