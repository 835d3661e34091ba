"""Certified accuracy over a data set: at given radii, and as a curve over all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from onelip.certification.call_arguments import Arguments, labelled, on_device
from onelip.certification.certificates import ArithmeticName, Certifier
from onelip.certification.program import program_device
from onelip.errors import InvalidInputError
from onelip.protocol import RADII

DEFAULT_EPS = RADII
"""The radii of the comparison paper."""


@dataclass(frozen=True)
class CertifiedAccuracy:
    """Shares of a data set: predicted correctly, and correctly at every point within eps.

    `radii` are the certified radii of all samples in order, 0 for those predicted wrongly.

    Examples:
        >>> import torch, onelip
        >>> loader = [(torch.eye(4), torch.tensor([0, 1, 2, 0]))]
        >>> result = onelip.certified_accuracy(onelip.create_linear("aol", 4, 3), loader, eps=[0.1])
        >>> 0 <= result.certified[0.1] <= result.accuracy <= 1
        True
        >>> eps, shares = result.curve(count=5)  # certified accuracy at five radii
    """

    accuracy: float
    certified: dict[float, float]
    lipschitz: float
    radii: Tensor

    def curve(self, count: int = 101, largest: float | None = None) -> tuple[Tensor, Tensor]:
        """Certified accuracy against the radius at `count` radii from 0 to the largest, as two tensors."""
        end = float(self.radii.amax()) if largest is None else largest
        eps = torch.linspace(0.0, end, count, dtype=torch.float64)
        shares = (self.radii[None] >= eps[:, None]).double().mean(1)
        # At radius 0 it is the share that is certified at all, which ties can make smaller than the accuracy.
        shares[0] = (self.radii > 0).double().mean()
        return eps, shares


def certified_accuracy(
    model: nn.Module,
    loader: Iterable[Sequence[Any]],
    eps: Sequence[float] = DEFAULT_EPS,
    *,
    input_scale: float = 1.0,
    arithmetic: ArithmeticName = "float64",
    progress: bool | None = None,
) -> CertifiedAccuracy:
    """Accuracy and certified accuracy of a model on batches (x, labels), x as `certify` takes it.

    The bounds are proven once. A progress bar is shown on a terminal, always or never with `progress`.

    Examples:
        >>> import torch, onelip
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), onelip.create_linear("bcop", 12, 10))
        >>> batches = [(torch.rand(8, 3, 2, 2), torch.arange(8)) for _ in range(2)]
        >>> result = onelip.certified_accuracy(model, batches, eps=(36 / 255, 1.0))
        >>> result.accuracy >= result.certified[36 / 255] >= result.certified[1.0]
        True
    """
    if isinstance(eps, (str, Real)) or not all(isinstance(value, Real) and 0 <= value < float("inf") for value in eps):
        raise InvalidInputError(f"eps={eps!r} must be a list of radii of at least 0, such as [36 / 255]")
    certifier: Certifier | None = None
    correct, radii = [], []
    for x, labels in labelled(_shown(loader, progress)):
        if certifier is None:
            Arguments.of(x)  # refuses what is no tensor, which would be taken for a shape
            certifier = Certifier(model, x, input_scale=input_scale, arithmetic=arithmetic)
        certificate = certifier(on_device(x, program_device(certifier.model)), labels)
        correct.append(certificate.correct)
        radii.append(torch.where(certificate.correct, certificate.radii, 0.0))
    if certifier is None:
        raise InvalidInputError("the loader has no batches: certified accuracy needs at least one sample")
    hits, all_radii = torch.cat(correct), torch.cat(radii)
    certified = {float(e): float((hits & (all_radii >= e)).double().mean()) for e in eps}
    return CertifiedAccuracy(float(hits.double().mean()), certified, certifier.lipschitz, all_radii)


def _shown(loader: Iterable[Sequence[Any]], progress: bool | None) -> Iterable[Sequence[Any]]:
    if not (sys.stderr.isatty() if progress is None else progress):
        return loader
    from rich.console import Console
    from rich.progress import track

    return track(loader, description="certifying", console=Console(stderr=True))
