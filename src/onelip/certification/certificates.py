"""Certificates: radii within which no input changes the prediction.

With exact scores y(x) of the deployed weights, E the error of the pass that computed them, F the error that the program
in question makes at any point of the ball, and D_j the constant of the difference y_p - y_j, every x' within

    r = min_j (computed y_p - y_j - E_j - F_j) / D_j

has the same prediction p, in exact arithmetic and by that program. Norms of activations are measured at x and carried
over to the ball by the Lipschitz constants; rounding errors are linear in them, see `rounding`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from onelip.atomic_files import write_atomically
from onelip.certification.call_arguments import Arguments
from onelip.certification.certificate_files import proven_file
from onelip.certification.fingerprint import Fingerprint
from onelip.certification.frozen import check_surroundings, evaluation_model, unwrapped
from onelip.certification.graph import Jumps
from onelip.certification.margins import certified_radii, margins
from onelip.certification.outputs import Output, with_output
from onelip.certification.precision import check_switches, ieee_arithmetic
from onelip.certification.program import ExactOutputs, fixed_batch, is_scores, program_device, program_dtype
from onelip.certification.proven_model import check_stateless, output_check, prove
from onelip.certification.rounding import error_in_ball
from onelip.errors import BrokenCertificateError, InvalidInputError
from onelip.losses.checks import check_labels
from onelip.proofs.layer_bound import FLOAT32, FLOAT64

ArithmeticName = Literal["float64", "float32"]
_ARITHMETICS = {"float64": FLOAT64, "float32": FLOAT32}
_SMALLEST_SCALE, _LARGEST_SCALE = 2.0**-500, 2.0**500


@dataclass(frozen=True)
class Certificate:
    """Predictions, margins (best minus second-best score) and certified radii of a batch, on the CPU, in float64.

    `radii` belong to the predictions, right or wrong; `labels` are those passed, or None. `assumptions` lists what the
    certificate assumes beyond docs/certificates.md; it is empty unless your module declares a constant without a
    rounding error. `arithmetic` names the programs for which the radii hold, and `switches` is the state of torch's
    precision switches, which they assume of a float32 program.

    Examples:
        >>> import torch, onelip
        >>> certificate = onelip.certify(onelip.create_linear("aol", 4, 3), torch.eye(4), torch.tensor([0, 1, 2, 0]))
        >>> certificate.certified(0.0).equal(certificate.correct)  # right, and provably so up to a distance of 0
        True
    """

    predictions: Tensor
    margins: Tensor
    radii: Tensor
    labels: Tensor | None = None
    assumptions: tuple[str, ...] = ()
    arithmetic: ArithmeticName = "float64"
    switches: Mapping[str, str] = field(default_factory=dict)
    input_scale: float = 1.0
    inputs: Tensor | None = field(default=None, repr=False)
    """What was certified, where that is one tensor."""

    def save(self, path: str | Path, *, model: nn.Module) -> None:
        """Write a file that `onelip-check` checks without torch and without onelip; docs/certificate_format.md.

        `model` is the one that was certified. Radii in the file may be smaller by about a part in ten thousand.
        """
        if self.inputs is None:
            raise InvalidInputError("certificate files hold models of one tensor, this certificate is of several")
        content, scores = proven_file(model, self.inputs, self.predictions, self.radii, self.input_scale)
        output_check(model, self.inputs.shape[1:])(self.inputs, scores.to(program_dtype(model)))
        if bool(((scores.argmax(1) != self.predictions.cpu()) & (self.radii.cpu() > 0)).any()):
            raise InvalidInputError("the model predicts other classes than the certificate: pass the one it is about")
        write_atomically(Path(path), content)

    @property
    def correct(self) -> Tensor:
        """Whether each prediction equals its label."""
        if self.labels is None:
            raise InvalidInputError("this certificate was made without labels: pass labels to certify")
        return self.predictions == self.labels

    def certified(self, eps: float) -> Tensor:
        """Whether each sample is predicted correctly at every point within eps of it."""
        if not (isinstance(eps, Real) and eps >= 0):
            raise InvalidInputError(f"eps={eps!r} must be a radius of at least 0")
        return self.correct & (self.radii >= eps) if eps > 0 else self.correct


def certify(
    model: nn.Module,
    x: Any,
    labels: Tensor | None = None,
    *,
    input_scale: float = 1.0,
    arithmetic: ArithmeticName = "float64",
    batch_size: int = 256,
    output: Output | None = None,
    threshold: float | None = None,
) -> Certificate:
    """Predictions and certified radii of a batch of inputs; docs/certificates.md says exactly what is promised.

    Args:
        model: in either mode; what it computes in evaluation mode is certified. Its state does not change.
        x: (batch, ...), on the device of the model. For a model of several arguments a tuple of them, or a dictionary
            by name, which may hold tuples, lists and dictionaries in turn. A radius is then in the L2 norm of all
            floating tensors of a sample together; tensors of integers or booleans and all else are held fixed.
        labels: (batch,), kept in the result for `certified`.
        input_scale: how many units of x make one unit of the radius, 255 for byte-valued x and radii in [0, 1].
        arithmetic: "float64": the weights' exact function, and the float64 program; "float32": the model's own
            float32 program as well, for every order of summation.
        batch_size: inputs that are evaluated at once.
        output: which part of what the model returns are the scores: an attribute or a key ("logits"), a place in a
            tuple, or a function of it.
        threshold: for models of one number z: class 1 is z > threshold, class 0 the rest.

    Examples:
        >>> import torch, onelip
        >>> from onelip.layers import AOLLinear, MaxMin
        >>> model = torch.nn.Sequential(AOLLinear(4, 8), MaxMin(), AOLLinear(8, 3))
        >>> certificate = onelip.certify(model, torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]))
        >>> certificate.predictions.shape, certificate.radii.shape
        (torch.Size([5]), torch.Size([5]))
        >>> share = certificate.certified(0.1).double().mean()  # right answers that no change of length 0.1 alters
        >>> bool((certificate.radii >= 0).all() and 0 <= share <= 1)
        True
    """
    Arguments.of(x)  # refuses shapes in place of tensors
    certifier = Certifier(model, x, input_scale=input_scale, arithmetic=arithmetic, output=output, threshold=threshold)
    return certifier(x, labels, batch_size=batch_size)


class Certifier:
    """The bounds of a model, proven once, and certificates for any number of batches.

    The weights are pinned at construction. Every batch is also run through the model itself: where its scores differ
    from the pinned ones' by more than rounding can explain, `BrokenCertificateError` is raised. A model that has
    visibly changed is refused.

    Attributes:
        input_shape: the shape of one input without the batch, or the shapes of all floating tensors.
        input_scale: how many units of x make one unit of the radius.
        arithmetic: "float64" or "float32", the programs that certificates hold for; see `certify`.
        dtype: the type that the model computes in.
        switches: the precision switches of torch, set to IEEE arithmetic, under which the bounds were proven.
        graph: the calls that the model makes, with their proven constants.

    Examples:
        >>> import torch, onelip
        >>> from onelip.certification import Certifier
        >>> certifier = Certifier(onelip.create_linear("aol", 4, 3), (4,))
        >>> for x in torch.randn(2, 5, 4):  # the bounds are proven once
        ...     radii = certifier(x).radii
        >>> radii.shape
        torch.Size([5])
    """

    def __init__(
        self,
        model: nn.Module,
        input_shape: Any = None,
        *,
        input_scale: float = 1.0,
        arithmetic: ArithmeticName = "float64",
        output: Output | None = None,
        threshold: float | None = None,
    ) -> None:
        model = with_output(model, output, threshold)
        if arithmetic not in _ARITHMETICS:
            raise InvalidInputError(f"arithmetic={arithmetic!r} is not known, use float64 or float32")
        if not (isinstance(input_scale, Real) and _SMALLEST_SCALE <= input_scale <= _LARGEST_SCALE):
            raise InvalidInputError(f"input_scale={input_scale!r} must be a positive number such as 1 or 255")
        check_surroundings()
        self.input_scale = float(input_scale)
        self.arithmetic: ArithmeticName = arithmetic
        self._original = unwrapped(model)
        self.model = evaluation_model(model)
        _check_finite(self.model)
        self.dtype = program_dtype(self.model)
        if arithmetic == "float32":
            self._check_float32()
        self._fingerprint = Fingerprint(self._original)
        self._program = self._fingerprint if self.model is self._original else Fingerprint(self.model)
        self._proven = prove(self.model, input_shape)
        self.input_shape, self.graph = self._proven.input_shape, self._proven.graph
        self.switches = self._proven.switches
        if not is_scores(self.graph):
            advice = ": pass threshold=0.0" if math.prod(self.graph.output.shape) == 1 else ""
            raise InvalidInputError(f"certificates need a model that maps an input to at least two scores{advice}")

    @property
    def lipschitz(self) -> float:
        """Proven bound of the Lipschitz constant of the whole model, infinite where it jumps."""
        return math.inf if any(node.fact(Jumps) for node in self.graph.used()) else self.graph.output.lipschitz

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What certificates of this model take for granted beyond docs/certificates.md, in words."""
        declared = (node for node in self.graph.used() if node.inputs and node.rounding is None)
        return tuple(f"exact arithmetic in {node.place.words()}, which declares no rounding_error" for node in declared)

    @torch.no_grad()
    def __call__(self, x: Any, labels: Tensor | None = None, *, batch_size: int = 256) -> Certificate:
        """Certify a batch of inputs."""
        arguments = Arguments.of(x)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise InvalidInputError(f"batch_size={batch_size!r} must be a number of inputs, at least 1")
        self._check_inputs(arguments, labels)
        parts = [self._certify(part) for part in arguments.split(fixed_batch(self.model) or batch_size)]
        check_stateless(self._program, self.model)
        predictions, margin, radii = (torch.cat(column) for column in zip(*parts, strict=True))
        kept = None if labels is None else labels.cpu()
        inputs = x.detach().cpu() if isinstance(x, Tensor) else None
        switches = dict(self.switches)
        return Certificate(
            predictions, margin, radii, kept, self.assumptions, self.arithmetic, switches, self.input_scale, inputs
        )

    def _certify(self, arguments: Arguments) -> tuple[Tensor, Tensor, Tensor]:
        with ieee_arithmetic():
            exact = self._proven.exact(arguments, FLOAT32 if self.arithmetic == "float32" else None)
            program = exact.check_program(self.model, arguments, self.dtype)
            check_switches(self.switches)
        predictions = exact.value.argmax(1)
        radii = self._radii(exact, predictions)
        if self.arithmetic == "float32":
            predictions = _compared(program, predictions, radii)
        return predictions, margins(exact.value), radii / self.input_scale * (1 - 4 * FLOAT64.unit_roundoff)

    def _radii(self, exact: ExactOutputs, predictions: Tensor) -> Tensor:
        scores, constants, arithmetic = exact.value, exact.constants, _ARITHMETICS[self.arithmetic]
        assert constants is not None
        own_errors = constants.pair_errors(predictions, exact.here, FLOAT64)
        # Without the program's own error: an upper limit of the radius, hence of the ball to look at.
        limit = certified_radii(scores, constants, own_errors)
        ball = error_in_ball(exact.graph.used(), arithmetic, exact.here, limit)
        return certified_radii(scores, constants, own_errors + constants.pair_errors(predictions, ball, arithmetic))

    def _check_inputs(self, arguments: Arguments, labels: Tensor | None) -> None:
        check_surroundings()
        if not self._fingerprint.matches(self._original):
            raise InvalidInputError("the model has changed since its bounds were proven: make a new Certifier")
        if arguments.input_shape != self.input_shape:
            raise InvalidInputError(
                f"x has the shape {arguments.input_shape} without the batch, expected {self.input_shape}"
            )
        fixed, batch = fixed_batch(self.model), arguments.batch
        if fixed is not None and batch % fixed:
            raise InvalidInputError(
                f"x holds {batch} inputs, but this program was exported for batches of {fixed}: pass a multiple, or "
                "export it with a batch of any length (dynamic_shapes)"
            )
        other = {tensor.dtype for tensor in arguments.tensors} - {torch.float32}
        if self.arithmetic == "float32" and other:
            raise InvalidInputError(f"x has the type {other.pop()}, expected float32, what the model takes")
        if labels is not None:
            check_labels(labels, batch, self.graph.output.shape[0])

    def _check_float32(self) -> None:
        if program_device(self.model).type == "xla":
            raise InvalidInputError(
                "arithmetic='float32' is not proven on XLA, whose compiler joins operations: use float64 or the CPU"
            )
        tensors = [*self.model.parameters(), *self.model.buffers()]
        other = {t.dtype for t in tensors if t.is_floating_point()} - {torch.float32}
        if other:
            raise InvalidInputError(f"arithmetic='float32' needs a float32 model, this one has {other.pop()}")


def _check_finite(model: nn.Module) -> None:
    """Refuse a model whose training has diverged: nothing is certified there."""
    for name, module in model.named_modules():
        if not all(bool(weight.isfinite().all()) for weight in module.parameters(recurse=False)):
            place = f"{name} ({type(module).__name__})" if name else f"this {type(module).__name__}"
            raise InvalidInputError(f"the weights of {place} are not finite: there is nothing to certify")


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
