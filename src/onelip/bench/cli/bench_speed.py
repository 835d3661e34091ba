"""`onelip bench speed`: every method against plain convolutions, against its targets and against other packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onelip.errors import one_line

if TYPE_CHECKING:
    from onelip.bench.speed import Contestant, SpeedReport, Suite


@dataclass(frozen=True)
class Speed:
    """Time a training step and cached inference of every method, and count its training memory.

    All figures are ratios to the same network with plain convolutions, which is timed in turns with each method. For
    ConvNet XS with 256 images per batch on a CPU, the targets and the ratios of existing public code stand beside them.

    Example: onelip bench speed --methods aol lot --peers --figure speed.svg
    """

    methods: tuple[str, ...] = ()
    """Keys of methods or peers, such as aol lot orthogonium-aol; all methods if none is given."""
    peers: bool = False
    """Add the layers of orthogonium and deel-torchlip in the same network: needs the extra onelip[peers]."""
    size: Literal["XS", "S", "M", "L"] | None = None
    """Size of the paper's ConvNet; XS if nothing is said."""
    width: int | None = None
    """Channels after the first layer, instead of --size."""
    batch: int = 256
    """Images per batch, of 32 x 32."""
    seconds: float = 60.0
    """Time limit for the training steps of a network, and again for its inference; at least 7 rounds are timed."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto is cuda where there is one."""
    seed: int = 0
    """Seed of the parameters and the images."""
    json: bool = False
    """Print everything as JSON (figures, goals, machine, versions) instead of a table."""
    figure: Path | None = None
    """Draw the ratios and goals into this file (png, svg or pdf), with the JSON beside it."""
    out: Path | None = None
    """Write speed.svg and speed.json into this folder."""

    def run(self) -> int:
        """Measure, print and write; 1 if a network could not be measured."""
        from onelip.bench.speed import choose_contestants, print_speed, save_speed
        from onelip.bench.speed.figure import check_format

        suite = self._suite()
        paths = [path for path in (self.figure, self.out and self.out / "speed.svg") if path is not None]
        for path in paths:
            check_format(path)
        report = _measure(choose_contestants(self.methods, self.peers, suite.workload), suite)
        for path in paths:
            save_speed(report, path)
        if self.json:
            print(report.as_json(), end="")
        else:
            print_speed(report)
        return 1 if report.failures else 0

    def _suite(self) -> Suite:
        import torch

        from onelip.bench.cli.measure import check_seconds, usable_device
        from onelip.bench.measurement import REFERENCE, Workload
        from onelip.bench.speed import Suite

        check_seconds(self.seconds)
        workload = Workload(REFERENCE, self.size, "cifar10", self.batch, self.width)
        return Suite(workload, torch.device(usable_device(self.device)), self.seed, self.seconds)


def _measure(contestants: list[Contestant], suite: Suite) -> SpeedReport:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from onelip.bench.speed import SpeedReport, measure_contestant

    report = SpeedReport(suite)
    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(contestants))
        for contestant in contestants:
            progress.update(bar, description=contestant.key)
            try:
                report.results.append(measure_contestant(contestant, suite))
            except Exception as error:  # named below the table; the others go on
                report.failures[contestant.key] = one_line(error)
            progress.advance(bar)
    return report
