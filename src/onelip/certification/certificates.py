"""Certificates: radii within which no input changes the prediction.

With exact scores y(x) of the deployed weights, E the error of the pass that computed them, F the error that the program
in question makes at any point of the ball, and D_j the constant of the difference y_p - y_j, every x' within

    r = min_j (computed y_p - y_j - E_j - F_j) / D_j

has the same prediction p, in exact arithmetic and by that program. Norms of all activations are measured at x and
carried over to the ball by the Lipschitz constants; rounding errors are linear in them, see `layer_bound`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from onelip.certification.bounds import checked_shape
from onelip.certification.chain import chain_steps, evaluation_model
from onelip.certification.double_precision import in_float64
from onelip.certification.errors import BrokenCertificateError
from onelip.certification.forward_error import error_at_sample, error_in_ball, input_constants, rounding_errors
from onelip.certification.margins import ScoreConstants, certified_radii, margins
from onelip.certification.precision import full_precision
from onelip.errors import InvalidInputError
from onelip.linalg.layer_bound import FLOAT32, FLOAT64
from onelip.linalg.proven import gamma

ArithmeticName = Literal["float64", "float32"]
_ARITHMETICS = {"float64": FLOAT64, "float32": FLOAT32}


@dataclass(frozen=True)
class Certificate:
    """Predictions, margins (best minus second-best score) and certified radii of a batch, on the CPU, in float64.

    `radii` belong to the predictions, right or wrong; `labels` are those passed, or None.
    """

    predictions: Tensor
    margins: Tensor
    radii: Tensor
    labels: Tensor | None = None

    @property
    def correct(self) -> Tensor:
        """Whether each prediction equals its label."""
        if self.labels is None:
            raise InvalidInputError("this certificate was made without labels: pass labels to certify")
        return self.predictions == self.labels

    def certified(self, eps: float) -> Tensor:
        """Whether each sample is predicted correctly at every point within eps of it."""
        return self.correct & (self.radii >= eps) if eps > 0 else self.correct


def certify(
    model: nn.Module,
    x: Tensor,
    labels: Tensor | None = None,
    *,
    input_scale: float = 1.0,
    arithmetic: ArithmeticName = "float64",
    batch_size: int = 256,
) -> Certificate:
    """Predictions and certified radii of a batch of inputs; docs/certificates.md says exactly what is promised.

    Args:
        model: in either mode; what it computes in evaluation mode is certified. Its state does not change.
        x: (batch, ...), on the device of the model.
        labels: (batch,), kept in the result for `certified`.
        input_scale: how many units of x make one unit of the radius, 255 for byte-valued x and radii in [0, 1].
        arithmetic: "float64": the weights' exact function, and the float64 program; "float32": the model's own
            float32 program as well, for every order of summation.
        batch_size: inputs that are evaluated at once.
    """
    certifier = Certifier(model, x.shape[1:], input_scale=input_scale, arithmetic=arithmetic)
    return certifier(x, labels, batch_size=batch_size)


class Certifier:
    """The bounds of a model, proven once, and certificates for any number of batches.

    The bounds are those of the weights at construction: a model that has changed since is refused.
    """

    def __init__(
        self,
        model: nn.Module,
        input_shape: tuple[int, ...] | torch.Size | None = None,
        *,
        input_scale: float = 1.0,
        arithmetic: ArithmeticName = "float64",
    ) -> None:
        if arithmetic not in _ARITHMETICS:
            raise InvalidInputError(f"arithmetic={arithmetic!r} is not known, use float64 or float32")
        if not 0 < input_scale < math.inf:
            raise InvalidInputError(f"input_scale={input_scale} must be a positive number")
        self.input_shape = checked_shape(model, input_shape)
        self.input_scale, self.arithmetic = float(input_scale), arithmetic
        self.model = evaluation_model(model)
        self.steps = chain_steps(self.model, self.input_shape)
        if not self.steps or len(self.steps[-1].output_shape) != 1 or self.steps[-1].output_shape[0] < 2:
            raise InvalidInputError("certificates need a model that maps an input to at least two scores")
        if arithmetic == "float32":
            self._check_float32()
        self._modules = [in_float64(step.module) for step in self.steps]
        self._own_rounding = rounding_errors(self.steps, FLOAT64)
        self._rounding = rounding_errors(self.steps, _ARITHMETICS[arithmetic])
        self._constants = ScoreConstants.of(self.steps)
        self._versions = self._current_versions()

    @property
    def lipschitz(self) -> float:
        """Proven bound of the Lipschitz constant of the whole model."""
        return input_constants(self.steps)[-1]

    @torch.no_grad()
    def __call__(self, x: Tensor, labels: Tensor | None = None, *, batch_size: int = 256) -> Certificate:
        """Certify a batch of inputs."""
        self._check_inputs(x, labels)
        parts = [self._certify(part) for part in x.split(batch_size)]
        predictions, margin, radii = (torch.cat(column) for column in zip(*parts, strict=True))
        return Certificate(predictions, margin, radii, None if labels is None else labels.cpu())

    def _certify(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        arithmetic = _ARITHMETICS[self.arithmetic]
        with full_precision():
            # A copy: the model may work in place.
            norms, scores = self._forward(x.to(torch.float64, copy=True))
            program = self.model(x).cpu() if self.arithmetic == "float32" else None
        predictions = scores.argmax(1)
        here = error_at_sample(self.steps, self._own_rounding, norms)
        own_errors = self._constants.pair_errors(predictions, here, FLOAT64)
        # Without the program's own error: an upper limit of the radius, hence of the ball to look at.
        limit = certified_radii(scores, self._constants, own_errors)
        ball = error_in_ball(self.steps, self._rounding, arithmetic, here, limit)
        ball_errors = self._constants.pair_errors(predictions, ball, arithmetic)
        radii = certified_radii(scores, self._constants, own_errors + ball_errors)
        if program is not None:
            predictions = _compared(program, predictions, radii)
        return predictions, margins(scores), radii / self.input_scale * (1 - 4 * FLOAT64.unit_roundoff)

    def _forward(self, activation: Tensor) -> tuple[list[Tensor], Tensor]:
        """Norms of the inputs of all layers, bounded from above and on the CPU, and the scores."""
        norms = []
        for module in self._modules:
            norm = torch.linalg.vector_norm(activation.flatten(1), dim=1)
            norms.append(norm.cpu() * (1 + gamma(activation[0].numel() + 8)))
            activation = module(activation)
        return norms, activation.cpu()

    def _current_versions(self) -> list[tuple[int, int]]:
        """Changes whenever a parameter or buffer is written to or replaced."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors]

    def _check_inputs(self, x: Tensor, labels: Tensor | None) -> None:
        if self._versions != self._current_versions():
            raise InvalidInputError("the model has changed since its bounds were proven: make a new Certifier")
        if tuple(x.shape[1:]) != self.input_shape or not len(x):
            raise InvalidInputError(f"x has the shape {tuple(x.shape)}, expected (batch, *{self.input_shape})")
        if not x.is_floating_point() or (self.arithmetic == "float32" and x.dtype != torch.float32):
            raise InvalidInputError(f"x has the type {x.dtype}, expected what the model takes, such as float32")
        if labels is not None and labels.shape != x.shape[:1]:
            raise InvalidInputError(f"labels have the shape {tuple(labels.shape)}, expected {(len(x),)}")

    def _check_float32(self) -> None:
        tensors = [*self.model.parameters(), *self.model.buffers()]
        other = {t.dtype for t in tensors if t.is_floating_point()} - {torch.float32}
        if other:
            raise InvalidInputError(f"arithmetic='float32' needs a float32 model, this one has {other.pop()}")


def _compared(program: Tensor, predictions: Tensor, radii: Tensor) -> Tensor:
    """The program's own predictions; where a radius is certified they are proven to be the same, which is checked."""
    computed = program.argmax(1)
    wrong = (computed != predictions) & (radii > 0)
    if bool(wrong.any()):
        raise BrokenCertificateError(
            f"the float32 program differs from its exact function by more than IEEE arithmetic can at "
            f"{int(wrong.sum())} inputs: this device does not compute inner products as the proof assumes"
        )
    return computed
