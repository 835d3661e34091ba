"""Train the first epochs of the paper's runs and compare.

```
onelip reproduce --methods aol bcop --size XS --epochs 1
```

Learning rate, weight decay, schedule (over the published number of epochs), starts, paddings and augmentation are those
of the published run; certified accuracy is proven. A run is within tolerance if accuracy and certified accuracy at
36/255 are at most 4 points away. The same command continues a stopped run.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path

from onelip.bench.cli.options import Device, Output, RunsFolder
from onelip.bench.paper.reproduction import (
    DEFECTIVE,
    METHODS,
    EpochComparison,
    defect_spec,
    reproduce,
    reproduction_spec,
    train_and_diagnose,
)
from onelip.bench.records import dump_json
from onelip.bench.records.machine import usable_device
from onelip.bench.terminal import Terminal, plain_table
from onelip.errors import InvalidInputError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Command(Output, Device, RunsFolder):
    methods: tuple[str, ...] = ()
    """Keys of methods; by default all seven of the published runs."""
    size: str = "XS"
    """XS, S or M."""
    epochs: int = 1
    """Epochs to train; the published values at the last one are compared."""
    defects: bool = False
    """Instead, train ECO and Sandwich as published and as here for minutes each, for `onelip paper eco sandwich`."""
    width: int | None = None
    """With --defects: channels after the first layer, instead of XS."""
    seed: int = 0
    """Starting values, order of images and augmentation."""
    runs_dir: Path = Path("reproduction")

    def run(self) -> int:
        """Train one method after the other; 1 if one is below the published values by more than the tolerance."""
        usable_device(self.device)
        if self.defects:
            return self._train_defects()
        chosen = [method.lower() for method in self.methods] or METHODS
        if unknown := [method for method in chosen if method not in METHODS]:
            known = f"use some of {', '.join(METHODS)}{did_you_mean(unknown[0], METHODS)}"
            raise InvalidInputError(f"the paper has published no training of {', '.join(unknown)}; {known}")
        specs = [reproduction_spec(method, self.size.upper(), self.epochs, self.seed) for method in chosen]
        found = []
        for number, spec in enumerate(specs, 1):
            if not self.quiet:
                print(f"{number} of {len(specs)}: {spec.network.label}, epochs: {self.epochs}", file=sys.stderr)
            found.append(reproduce(spec, self.runs_dir, device=self.device, progress=not self.quiet))
            if not self.quiet:
                print(_line(found[-1]), file=sys.stderr)
        if self.json:
            print(dump_json([dataclasses.asdict(c) | {"verdict": c.verdict} for c in found]))
        else:
            _print_table(found)
        return 1 if any(comparison.verdict == "lower" for comparison in found) else 0

    def _train_defects(self) -> int:
        """Train four networks, which takes their diagnostics into their records."""
        if unknown := set(self.methods) - set(DEFECTIVE):
            raise InvalidInputError(
                f"--defects: {', '.join(sorted(unknown))} has none to show; use {', '.join(DEFECTIVE)}"
            )
        for spec in [
            defect_spec(method, setting, self.width)
            for method in self.methods or DEFECTIVE
            for setting in ("published", "own")
        ]:
            record = train_and_diagnose(spec, self.runs_dir, device=self.device, progress=not self.quiet)
            where = self.runs_dir / record.name
            print(f"{spec.network.method}, {spec.setting}: {where}: {record.status.value}")
        print(f"onelip paper {' '.join(self.methods or DEFECTIVE)} --study {self.runs_dir}")
        return 0


def _line(found: EpochComparison) -> str:
    return (
        f"{found.method}: accuracy {100 * found.accuracy:.1f} % (published {100 * found.published_accuracy:.1f}), "
        f"certified {100 * found.certified_36:.1f} % ({100 * found.published_certified_36:.1f}): {found.verdict}"
    )


def _print_table(found: list[EpochComparison]) -> None:
    numbers = ("acc %", "published", "cert %", "published", "train loss", "published", "core s")
    table = plain_table(("method", "size", "epoch"), numbers)
    table.add_column("verdict")
    for c in found:
        shares = (c.accuracy, c.published_accuracy, c.certified_36, c.published_certified_36)
        losses = (c.train_loss, c.published_train_loss)
        cells = [*(f"{100 * share:.1f}" for share in shares), *(f"{loss:.3f}" for loss in losses)]
        table.add_row(c.method, c.size, str(c.epoch), *cells, f"{c.core_seconds:.0f}", c.verdict)
    console = Terminal()
    console.print(table)
    console.print("verdict: accuracy and certified accuracy at 36/255 within 4 points")
