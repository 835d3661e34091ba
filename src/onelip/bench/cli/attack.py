"""Attack a saved network and compare with its certificates.

```
onelip attack runs/NAME/model.safetensors
onelip attack model.safetensors --eps 36/255 72/255 --attacks pgd ddn
```

The exit code is 1 if an attack succeeds within a certified radius, which would refute the certificate.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Annotated

from torch import Tensor

from onelip.bench.cli.options import AT_LEAST_1
from onelip.bench.cli.saved_network import NetworkOnImages
from onelip.bench.terminal import Tell, Terminal, plain_table, stages
from onelip.certification import BrokenCertificateError
from onelip.certification.attacks import AttackReport, attack, check_attacks
from onelip.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class Command(NetworkOnImages):
    eps: tuple[str, ...] = ("36/255",)
    """Radii, as numbers or fractions, for pixels in [0, 1]."""
    attacks: tuple[str, ...] = ("pgd", "ddn", "fmn", "deepfool", "cw")
    """Which attacks: pgd ddn fmn deepfool cw."""
    batch_size: Annotated[int, AT_LEAST_1] = 100
    """Images that are attacked at once."""

    def run(self) -> int:
        eps = [_fraction(value) for value in self.eps]
        check_attacks(self.attacks, eps)
        model = self.network().eval()
        batches = self.first_images(model, self.batch_size)
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
    console = Terminal()
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
