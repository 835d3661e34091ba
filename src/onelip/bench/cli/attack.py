"""`onelip attack CHECKPOINT`: empirical robustness beside certified robustness."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Annotated

import tyro
from rich.console import Console
from torch import Tensor

from onelip.bench.cli.images import MODEL_HELP, first_test_images, load_trusted, trained_on
from onelip.bench.cli.stages import Tell, stages
from onelip.bench.runs.dataset_option import DatasetOption
from onelip.bench.terminal import plain_table
from onelip.certification import BrokenCertificateError
from onelip.certification.attacks import AttackReport, attack
from onelip.errors import InvalidInputError


@dataclass(frozen=True)
class AttackOptions:
    """Attack a saved network with foolbox's L2 attacks and compare with its certificates.

    Exit code 1 if an attack succeeds within a certified radius, which would refute the certificate.
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """File written by onelip.save_model."""
    eps: tuple[str, ...] = ("36/255",)
    """Radii, as numbers or fractions, for pixels in [0, 1]."""
    attacks: tuple[str, ...] = ("pgd", "ddn", "fmn", "deepfool", "cw")
    """Which attacks: pgd ddn fmn deepfool cw."""
    dataset: DatasetOption | None = None
    """Where the test images come from; by default what the network was trained on, if the file lies in the folder of
    its run, else cifar10-mini."""
    samples: int = 100
    """Number of test images."""
    batch_size: int = 100
    """Images that are attacked at once."""
    model: Annotated[str | None, tyro.conf.arg(help=MODEL_HELP)] = None
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print a JSON object instead of a table."""

    def run(self) -> int:
        """Print accuracy, robust accuracy under each attack, and certified accuracy."""
        eps = [_fraction(value) for value in self.eps]
        model = load_trusted(self.checkpoint, self.model).eval()
        batches = first_test_images(model, self.dataset or trained_on(self.checkpoint), self.samples, self.batch_size)
        try:
            with stages(self.quiet) as tell:
                report = attack(model, _counted(batches, self.samples, tell), eps, attacks=self.attacks)
        except BrokenCertificateError as error:
            print(f"onelip: CERTIFICATE BROKEN: {error}", file=sys.stderr)
            return 1
        if self.json:
            print(json.dumps(asdict(report), indent=2))
        else:
            _print(report, dict(zip(eps, self.eps, strict=True)))
        return 0


def _counted(batches: Iterable[Sequence[Tensor]], samples: int, tell: Tell) -> Iterator[Sequence[Tensor]]:
    """The batches; each is told of when it is asked for."""
    done = 0
    for batch in batches:
        until = done + len(batch[1])
        tell(f"attacking images {done + 1} to {until} of at most {samples}")
        yield batch
        done = until


def _print(report: AttackReport, names: dict[float, str]) -> None:
    attacks = list(next(iter(report.robust.values())))
    table = plain_table(("eps",), (*attacks, "certified"))
    for eps, shares in report.robust.items():
        cells = [f"{100 * shares[name]:.1f}" for name in attacks]
        table.add_row(names[eps], *cells, f"{100 * report.certified[eps]:.1f}")
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"percent of {report.samples} test images predicted correctly: {100 * report.accuracy:.1f} without an attack, "
        "the table's after it. certified <= all holds for every sample: no attack succeeded within a certified radius."
    )


def _fraction(text: str) -> float:
    try:
        value = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise InvalidInputError(f"eps={text!r} is not a number, use for example 0.14 or 36/255") from None
    if not value > 0:
        raise InvalidInputError(f"eps={text!r} must be positive")
    return value


COMMAND = AttackOptions
