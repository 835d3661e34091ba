"""Attacks in the L2 norm: an empirical upper bound of robustness, and a test of every certificate.

The only file that imports foolbox (extra `attack`). An attack that succeeds within a certified radius would refute the
certificate: that is never a statistic, it is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onelip.certification.call_arguments import labelled, single_tensor
from onelip.certification.certificates import Certifier
from onelip.certification.frozen import evaluation_model
from onelip.errors import BrokenCertificateError, InvalidInputError

_ATTACKS: dict[str, Callable[[Any], Any]] = {
    "pgd": lambda fa: fa.L2ProjectedGradientDescentAttack(steps=50, rel_stepsize=0.1),
    "ddn": lambda fa: fa.DDNAttack(steps=60),
    "fmn": lambda fa: fa.L2FMNAttack(steps=60),
    "deepfool": lambda fa: fa.L2DeepFoolAttack(steps=30),
    "cw": lambda fa: fa.L2CarliniWagnerAttack(steps=80, binary_search_steps=4, stepsize=0.05, initial_const=0.1),
}
ATTACK_NAMES = tuple(_ATTACKS)


@dataclass(frozen=True)
class AttackReport:
    """Shares of the attacked samples.

    `robust` holds, for each eps, the share predicted correctly that each attack left intact, and "all" for those that
    withstood every attack: certified accuracy is a lower bound of it.
    """

    samples: int
    accuracy: float
    certified: dict[float, float]
    robust: dict[float, dict[str, float]]


def check_attacks(attacks: Sequence[str], eps: Sequence[float]) -> None:
    """Refuse attacks that there are not, and radii that are not positive."""
    unknown = [name for name in attacks if name not in _ATTACKS]
    if unknown or not attacks or not eps or min(eps) <= 0:
        raise InvalidInputError(
            f"attacks={list(attacks)}, eps={list(eps)}: use attacks among {', '.join(_ATTACKS)} and positive radii"
        )


def attack(
    model: nn.Module,
    loader: Iterable[Sequence[Tensor]],
    eps: Sequence[float] = (36 / 255,),
    *,
    attacks: Sequence[str] = ATTACK_NAMES,
    bounds: tuple[float, float] = (-1.0, 1.0),
) -> AttackReport:
    """Attack all samples of (x, labels) batches; raises `BrokenCertificateError` if a certified one falls.

    `bounds` is the range of valid pixels as foolbox wants it. It is the same for all channels, so for inputs with their
    channel means subtracted it must hold them all; a larger range only makes the attacks stronger.
    """
    check_attacks(attacks, eps)
    correct, certified, survived = [], [], []
    certifier: Certifier | None = None
    for batch, labels in labelled(loader):
        x = single_tensor(batch, "attack")
        if x.min() < bounds[0] or x.max() > bounds[1]:
            low, high = float(x.min()), float(x.max())
            raise InvalidInputError(f"inputs range from {low:g} to {high:g}, beyond bounds={bounds}: pass wider bounds")
        certifier = certifier or Certifier(model, x.shape[1:], arithmetic="float32")
        certificate = certifier(x, labels)
        within = torch.stack([certificate.certified(value) for value in eps])
        intact = _attacked(certifier.model, x, labels, eps, attacks, bounds)
        _check(intact, within, eps, attacks)
        correct.append(certificate.correct)
        certified.append(within)
        survived.append(intact & certificate.correct)
    if not correct:
        raise InvalidInputError("the loader has no batches: there is nothing to attack")
    return _report(torch.cat(correct), torch.cat(certified, 1), torch.cat(survived, 2), eps, attacks)


def _attacked(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    eps: Sequence[float],
    attacks: Sequence[str],
    bounds: tuple[float, float],
) -> Tensor:
    """Whether each sample is still predicted as its label: (attacks, eps, batch)."""
    foolbox = _foolbox()
    target = foolbox.PyTorchModel(evaluation_model(model), bounds=bounds, device=x.device)
    intact = torch.ones(len(attacks), len(eps), len(x), dtype=torch.bool)
    for index, name in enumerate(attacks):
        # Attacks draw their random starts from torch's generator: a fixed one makes reports repeatable.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            _, candidates, _ = _ATTACKS[name](foolbox.attacks)(target, x, labels, epsilons=list(eps))
        for level, (radius, candidate) in enumerate(zip(eps, candidates, strict=True)):
            intact[index, level] = ~_succeeds(model, x, candidate, labels, radius)
    return intact


@torch.no_grad()
def _succeeds(model: nn.Module, x: Tensor, candidate: Tensor, labels: Tensor, radius: float) -> Tensor:
    """Judged here rather than by foolbox: the program's own prediction, and the distance in float64."""
    distances = torch.linalg.vector_norm((candidate.double() - x.double()).flatten(1), dim=1)
    return ((distances <= radius) & (model(candidate).argmax(1) != labels)).cpu()


def _check(intact: Tensor, certified: Tensor, eps: Sequence[float], attacks: Sequence[str]) -> None:
    broken = ~intact & certified
    if bool(broken.any()):
        index, level, sample = (int(i) for i in broken.nonzero()[0])
        raise BrokenCertificateError(
            f"{attacks[index]} changed the prediction of sample {sample} of a batch within eps={eps[level]:.4g}, "
            f"where it is certified: the certificate is wrong, please report this ({int(broken.sum())} such cases)"
        )


def _report(
    correct: Tensor, certified: Tensor, survived: Tensor, eps: Sequence[float], attacks: Sequence[str]
) -> AttackReport:
    def share(flags: Tensor) -> float:
        return float(flags.double().mean())

    robust = {
        float(value): {name: share(survived[i, level]) for i, name in enumerate(attacks)}
        | {"all": share(survived[:, level].all(0))}
        for level, value in enumerate(eps)
    }
    shares = {float(value): share(certified[level]) for level, value in enumerate(eps)}
    return AttackReport(len(correct), share(correct), shares, robust)


def _foolbox() -> Any:
    try:
        with warnings.catch_warnings():
            # foolbox 3.3.4 imports a module of scipy under its old name.
            warnings.simplefilter("ignore", DeprecationWarning)
            import foolbox
    except ImportError as error:
        raise InvalidInputError('attacks need foolbox: pip install "onelip[attack]"') from error
    return foolbox
