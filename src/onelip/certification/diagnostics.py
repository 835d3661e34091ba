"""The comparison paper's sanity checks of a network, layer by layer.

* Batch activation variance: the mean squared distance of a batch's activations from their mean. A 1-Lipschitz layer
  cannot increase it.
* Spectral norm by power iteration on the layer's Jacobian, a *lower* estimate, next to the proven bound.
* Norm of the gradient of the loss with respect to the layer's output: where it vanishes, nothing is learnt.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.functional import jvp, vjp
from torch.nn import functional as F

from onelip.certification.call_arguments import Arguments, single_tensor
from onelip.certification.frozen import check_surroundings, evaluation_model, frozen_copy
from onelip.certification.graph import AffineHead, CallSite, Node, Shape
from onelip.certification.leaves import Leaf, Proofs
from onelip.certification.precision import ieee_arithmetic
from onelip.certification.program import program_dtype
from onelip.certification.tracing import Tracer
from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.losses.checks import check_labels
from onelip.proofs.layer_bound import LayerBound

TOLERANCE = 1e-4
"""Excess over 1 that float32 weights may have."""


@dataclass(frozen=True)
class LayerDiagnostics:
    """One layer. `norm_estimate` is None for a layer without parameters, `gradient_norm` where there were no labels."""

    path: str
    kind: str
    output_shape: tuple[int, ...]
    variance: float
    norm_estimate: float | None
    bound: float
    bound_product: float
    gradient_norm: float | None


@dataclass(frozen=True)
class Diagnostics:
    """All layers of a network in order, and the variance of the inputs."""

    input_variance: float
    layers: tuple[LayerDiagnostics, ...]

    def failures(self, tolerance: float = TOLERANCE) -> list[str]:
        """One sentence for every proven bound above 1 + tolerance and every variance that grows beyond its square."""
        found = []
        before = self.input_variance
        for layer in self.layers:
            if not layer.bound <= 1 + tolerance:
                found.append(f"{layer.path} ({layer.kind}): proven Lipschitz bound {layer.bound:.6g} exceeds 1")
            if not layer.variance <= before * (1 + tolerance) ** 2:
                found.append(
                    f"{layer.path} ({layer.kind}): the variance grows from {before:.6g} to {layer.variance:.6g}"
                )
            before = layer.variance
        if self.layers and not self.layers[-1].bound_product <= 1 + tolerance:
            found.append(f"the network: proven Lipschitz bound {self.layers[-1].bound_product:.6g} exceeds 1")
        return found

    def as_records(self) -> list[dict[str, Any]]:
        """One dictionary of plain values per layer, the input first: what figures and reports are drawn from."""
        first = {"path": "input", "kind": "input", "variance": self.input_variance}
        return [first, *(asdict(layer) for layer in self.layers)]


class _ProofsWhereKnown(Proofs):
    """A layer that states no bound has an infinite one: its variance and norm are what one wants to see then."""

    def leaf_bound(self, leaf: Leaf, shape: Shape, place: CallSite) -> tuple[LayerBound, AffineHead | None]:
        try:
            return super().leaf_bound(leaf, shape, place)
        except UnknownLipschitzConstant:
            return LayerBound(math.inf, 0.0, None), None


def diagnose(model: nn.Module, x: Tensor, labels: Tensor | None = None, *, iterations: int = 50) -> Diagnostics:
    """Variances, norms and, with labels, gradient norms of the cross-entropy on one batch, in evaluation mode.

    The function is that of the deployed weights, computed in float64.
    """
    x = single_tensor(x, "diagnose")
    check_surroundings()
    program = evaluation_model(model)
    with ieee_arithmetic():
        tracer = Tracer(frozen_copy(program), _ProofsWhereKnown(), program_dtype(program), keep=True)
        graph, _ = tracer.run(Arguments.of(x.detach().double().requires_grad_(labels is not None)))
        nodes = [node for node in graph.used() if node.inputs]
        if labels is not None:
            if len(graph.output.shape) != 1:
                raise InvalidInputError("labels need a model that maps an input to scores: diagnose without them")
            check_labels(labels, len(x), graph.output.shape[0])
        gradients = [None] * len(nodes) if labels is None else _gradient_norms(nodes, labels)
        rows = tuple(
            LayerDiagnostics(
                node.place.path,
                node.place.kind,
                node.shape,
                batch_variance(_value(node)),
                _norm_estimate(node, iterations),
                node.constant,
                node.lipschitz,
                gradient,
            )
            for node, gradient in zip(nodes, gradients, strict=True)
        )
    return Diagnostics(batch_variance(x), rows)


def _value(node: Node) -> Tensor:
    assert node.value is not None, "the tracer was asked to keep values"
    return node.value


def batch_variance(activations: Tensor) -> float:
    """(1/b) sum_i ||a_i - mean||^2."""
    flat = activations.detach().double().unsqueeze(-1).flatten(1)
    return float((flat - flat.mean(0)).square().sum(1).mean())


def _gradient_norms(nodes: list[Node], labels: Tensor) -> list[float]:
    with torch.enable_grad():
        outputs = [_value(node) for node in nodes]
        loss = F.cross_entropy(outputs[-1], labels.long())
        gradients = torch.autograd.grad(loss, outputs)
    return [float(torch.linalg.vector_norm(gradient)) for gradient in gradients]


def _norm_estimate(node: Node, iterations: int) -> float | None:
    """Power iteration with the Jacobian J at the first input: v <- J^T J v, then ||J v||."""
    if not node.has_parameters or node.run is None:
        return None
    module, x = node.run, _value(node.inputs[0])[:1].detach()
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device)
    norm = torch.zeros(())
    for _ in range(iterations):
        vector = vector / torch.linalg.vector_norm(vector)
        image = jvp(module, x, vector)[1]
        norm = torch.linalg.vector_norm(image)
        if not float(norm) > 0:
            break
        vector = vjp(module, x, image)[1]
    return float(norm)
