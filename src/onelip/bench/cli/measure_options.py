"""Options that the sub-commands of `onelip measure` share: which networks, how often, on which device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from onelip.bench.cli.outcome_tables import print_outcomes
from onelip.bench.measurement import REFERENCE, Measurement, Outcome, Quantity, Rounds, run_measurement
from onelip.bench.measurement.peers import PEERS, installed_peers, peer_versions
from onelip.bench.measurement.throughput import default_rounds
from onelip.bench.runs import NetworkSpec, dump_json
from onelip.bench.runs.dataset_option import DATASETS_ALIAS, DatasetOption
from onelip.bench.runs.devices import usable_device
from onelip.bench.terminal import Terminal
from onelip.errors import InvalidInputError, did_you_mean
from onelip.factories import find_factory, is_factory_name, search_working_folder
from onelip.layers import list_methods


@dataclass(frozen=True)
class Networks:
    """Which networks are measured: every method in every size on the images of every data set."""

    methods: tuple[str, ...] = ()
    """Keys of methods, such as aol lot soc, or of layers of other packages, such as orthogonium:aoc; all methods if
    none is given."""
    peers: bool = False
    """Add all layers of orthogonium, deel-torchlip (extra onelip[peers]) and lipnn, the code of the paper, as far as
    they are installed; time and memory only."""
    sizes: tuple[Literal["XS", "S", "M", "L"], ...] | None = None
    """Sizes of the paper's ConvNet; XS if nothing is said."""
    width: int | None = None
    """Channels after the first layer, instead of --sizes."""
    model: str = "convnet"
    """Architecture: convnet is the paper's; fastnet, ... are those of `onelip.models`; or module:function, your
    function of num_classes and input_shape that returns a model, whose ratios are to the plain ConvNet XS."""
    datasets: Annotated[tuple[DatasetOption, ...], DATASETS_ALIAS] = ("cifar10",)
    """Data sets; only the shapes of their images matter, nothing is downloaded."""
    kernel_size: int = 3
    """Height and width of the kernels."""
    batch_size: int = 256
    """Images per batch."""
    runs_dir: Path = Path("runs")
    """Folder for the records. What has one, for this code and hardware, is not measured again."""
    again: bool = False
    """Measure anew what has a record."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print JSON, one entry per network with all figures, instead of tables."""

    def measurements(self, quantity: Quantity, **options: Any) -> list[Measurement]:
        """All combinations; `options` are those of `Measurement`."""
        if self.sizes == () or not self.datasets:
            raise InvalidInputError("name at least one size and one data set")
        if self.sizes is not None and self.width is not None:
            raise InvalidInputError("pass either --sizes or --width, not both")
        if is_factory_name(self.model):
            return self._of_own_model(quantity, **options)
        # A timing holds the reference's time already; elsewhere the reference is a row of its own.
        methods = self._methods(quantity)
        rows = [REFERENCE, *methods] if quantity in ("memory", "macs") else methods
        specs = [
            NetworkSpec(
                method=method,
                size=size,
                width=self.width,
                dataset=dataset,
                kernel_size=self.kernel_size,
                model="convnet" if method == REFERENCE else self.model,
            )
            for dataset in dict.fromkeys(self.datasets)
            for size in dict.fromkeys(self.sizes or (None,))
            for method in dict.fromkeys(rows)
        ]
        return [Measurement(quantity, spec, self.batch_size, **options) for spec in specs]

    def _of_own_model(self, quantity: Quantity, **options: Any) -> list[Measurement]:
        """A user's own model on every data set."""
        search_working_folder()
        find_factory(self.model)
        if self.methods or self.peers or self.sizes or self.width or self.kernel_size != 3:
            raise InvalidInputError(f"methods, sizes and kernels belong to convnet; {self.model} decides by itself")
        specs = [NetworkSpec(model=self.model, dataset=dataset) for dataset in dict.fromkeys(self.datasets)]
        return [Measurement(quantity, spec, self.batch_size, **options) for spec in specs]

    def _methods(self, quantity: Quantity) -> list[str]:
        ours = [method.key for method in list_methods()]
        names = [name.lower() for name in self.methods]
        if unknown := [name for name in names if name not in ours and name not in PEERS]:
            known = [*ours, *PEERS]
            close = did_you_mean(unknown[0], known)
            raise InvalidInputError(f"there is no method {unknown[0]!r}, use some of {', '.join(known)}{close}")
        asked = [name for name in names if name in PEERS]
        if (asked or self.peers) and quantity not in ("time", "memory"):
            raise InvalidInputError(f"{quantity} is known of onelip's own layers, not of {', '.join(PEERS)}")
        for name in asked:
            peer_versions(name)  # says what is missing before anything is measured
        return [*(names or ours), *(installed_peers() if self.peers else ())]

    def run(self, measurements: Sequence[Measurement]) -> list[Outcome]:
        """Measure one after the other, with a progress bar."""
        outcomes: list[Outcome] = []
        columns = (TextColumn("{task.description:30}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = Terminal(stderr=True, quiet=self.quiet)
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task("", total=len(measurements))
            for number, measurement in enumerate(measurements, 1):
                progress.update(bar, description=measurement.network.label)
                if not console.is_terminal:  # a log file gets lines
                    console.print(f"[{number}/{len(measurements)}] {measurement.network.label}", soft_wrap=True)
                outcomes.append(run_measurement(measurement, self.runs_dir, again=self.again))
                progress.advance(bar)
        return outcomes

    def show(self, outcomes: Sequence[Outcome], budget: str | None = None) -> int:
        """Print tables or JSON; 1 if something failed."""
        if self.json:
            print(dump_json([outcome.as_dict() for outcome in outcomes]))
        else:
            print_outcomes(outcomes, self.runs_dir, budget)
        return 1 if any(outcome.failure for outcome in outcomes) else 0


@dataclass(frozen=True)
class Repetitions:
    """How often times are taken, and where."""

    seconds: float | None = None
    """Limit for each of the timings of a network on a CPU, 60 by default. At least 7 rounds are timed."""
    rounds: int | None = None
    """Time so many rounds, no more and no fewer. Fewer than 6 have no confidence interval."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto is cuda where there is one."""

    def options(self) -> dict[str, Any]:
        """Device and rounds; the usual ones are None, so that their records stay the same."""
        device = usable_device(self.device)
        return {"device": device, "rounds": self._rounds(device)}

    def _rounds(self, device: str) -> Rounds | None:
        usual = default_rounds(torch.device(device))
        if self.seconds is not None and self.rounds is not None:
            raise InvalidInputError("pass either --seconds or --rounds, not both")
        if self.rounds is not None:
            if self.rounds < 1:
                raise InvalidInputError(f"--rounds must be at least 1, not {self.rounds}")
            return replace(usual, warm_up=1, least=self.rounds, most=self.rounds)
        if self.seconds is not None:
            if not 0 < self.seconds < float("inf"):
                raise InvalidInputError(f"--seconds must be a positive number, not {self.seconds}")
            return replace(usual, seconds=self.seconds)
        return None
