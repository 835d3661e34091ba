"""Measure time, memory, operations or certificates of networks.

```
onelip measure time --methods aol lot --sizes XS S
onelip measure memory --methods aol lot --predict
```

What has a record in --runs-dir, for this code and this hardware, is not measured again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from cyclopts import Group, Parameter

from onelip.bench.cli.options import (
    AT_LEAST_1,
    DATASETS,
    DURATION,
    FIGURE,
    METHODS,
    ODD,
    POSITIVE,
    Output,
    dataset_name,
    sub_commands,
)
from onelip.bench.cli.outcome_tables import print_outcomes
from onelip.bench.measurement import (
    PREDICTED,
    PREDICTED_ON_GPU,
    REFERENCE,
    Measurement,
    Outcome,
    Quantity,
    run_measurement,
)
from onelip.bench.measurement.peers import PEERS, installed_peers, peer_versions
from onelip.bench.measurement.throughput import default_rounds
from onelip.bench.records import NetworkSpec, dump_json
from onelip.bench.records.machine import usable_device
from onelip.bench.report.figures.cost_lines import save_ratios
from onelip.bench.terminal import stages
from onelip.errors import InvalidInputError, did_you_mean
from onelip.factories import find_factory, is_factory_name, search_working_folder
from onelip.layers import list_methods


@Parameter(name="*", group=Group("Networks", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class Networks(Output):
    """Which networks are measured: every method in every size on the images of every data set."""

    methods: Annotated[tuple[str, ...], METHODS] = ()
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
    datasets: Annotated[tuple[str, ...], DATASETS] = ("cifar10",)
    """Data sets; only the shapes of their images matter, nothing is downloaded."""
    kernel_size: Annotated[int, ODD] = 3
    """Height and width of the kernels."""
    batch_size: Annotated[int, AT_LEAST_1] = 256
    """Images per batch."""
    runs_dir: Path = Path("runs")
    """Folder for the records. What has one, for this code and hardware, is not measured again."""
    again: bool = False
    """Measure anew what has a record."""

    def measurements(self, quantity: Quantity, **options: Any) -> list[Measurement]:
        """All combinations; `options` are those of `Measurement`."""
        if self.sizes == () or not self.datasets:
            raise InvalidInputError("name at least one size and one data set")
        if self.sizes is not None and self.width is not None:
            raise InvalidInputError("pass either --sizes or --width, not both")
        networks = self._own_model() if is_factory_name(self.model) else self._of_methods(self._methods(quantity))
        return [
            Measurement(quantity, replace(network, dataset=dataset), self.batch_size, **options)
            for dataset in dict.fromkeys(map(dataset_name, self.datasets))
            for network in networks
        ]

    def _own_model(self) -> list[NetworkSpec]:
        if self.methods or self.peers or self.sizes or self.width or self.kernel_size != 3:
            raise InvalidInputError(f"methods, sizes and kernels belong to convnet; {self.model} decides by itself")
        search_working_folder()
        find_factory(self.model)
        return [NetworkSpec(model=self.model)]

    def _of_methods(self, methods: Iterable[str]) -> list[NetworkSpec]:
        return [
            NetworkSpec(
                method=method,
                size=size,
                width=self.width,
                kernel_size=self.kernel_size,
                model="convnet" if method == REFERENCE else self.model,
            )
            for size in dict.fromkeys(self.sizes or (None,))
            for method in dict.fromkeys(methods)
        ]

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
        # A timing holds the reference's time already; elsewhere the reference is a row of its own.
        reference = [REFERENCE] if quantity in ("memory", "macs") else []
        return [*reference, *(names or ours), *(installed_peers() if self.peers else ())]

    def outcomes(self, measurements: Sequence[Measurement]) -> list[Outcome]:
        """Measure one after the other."""
        outcomes: list[Outcome] = []
        with stages(self.quiet) as tell:
            for number, measurement in enumerate(measurements, 1):
                tell(f"[{number}/{len(measurements)}] {measurement.network.label}")
                outcomes.append(run_measurement(measurement, self.runs_dir, again=self.again))
        return outcomes

    def report(self, quantity: Quantity, **options: Any) -> int:
        """Measure and show a quantity of all of them."""
        return self.show(self.outcomes(self.measurements(quantity, **options)))

    def show(self, outcomes: Sequence[Outcome], budget: str | None = None) -> int:
        """Print tables or JSON; 1 if something failed."""
        if self.json:
            print(dump_json([outcome.as_dict() for outcome in outcomes]))
        else:
            print_outcomes(outcomes, self.runs_dir, budget)
        return 1 if any(outcome.failure for outcome in outcomes) else 0


@Parameter(name="*", group=Group("Timing", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class Repetitions:
    """How often times are taken, and where."""

    seconds: Annotated[float | None, POSITIVE] = None
    """Limit for each of the timings of a network on a CPU, 60 by default. At least 7 rounds are timed."""
    rounds: Annotated[int | None, AT_LEAST_1] = None
    """Time so many rounds, no more and no fewer. Fewer than 6 have no confidence interval."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto is cuda where there is one."""

    def options(self) -> dict[str, Any]:
        """Device and rounds; the usual ones are None, so that their records stay the same."""
        if self.seconds is not None and self.rounds is not None:
            raise InvalidInputError("pass either --seconds or --rounds, not both")
        device = usable_device(self.device)
        rounds, usual = None, default_rounds(torch.device(device))
        if self.rounds is not None:
            rounds = replace(usual, warm_up=1, least=self.rounds, most=self.rounds)
        elif self.seconds is not None:
            rounds = replace(usual, seconds=self.seconds)
        return {"device": device, "rounds": rounds}


@dataclass(frozen=True, kw_only=True)
class Time:
    """Time a training step, and inference with cached parameter transformations.

    ```
    onelip measure time --methods aol lot --sizes XS S
    onelip measure time --methods aol lot --peers --figure costs.svg
    onelip measure time --model my_module:make_net
    ```

    Each round times the network and the same network with plain convolutions, one right after the other; the ratio is
    the median over rounds. On a CPU the rounds go on until it is known to 2 % or --seconds have passed, on CUDA there
    are 100 batches.
    """

    networks: Networks = field(default_factory=Networks)
    repetitions: Repetitions = field(default_factory=Repetitions)
    budget: Annotated[str | None, DURATION] = None
    """Print the epochs that fit in this training time, such as 2h or 30m, instead of the time of an epoch."""
    figure: Annotated[Path | None, FIGURE] = None
    """Draw the ratios of time, and of predicted memory, into this file (png, svg or pdf)."""

    def run(self) -> int:
        measurements = self.networks.measurements("time", **self.repetitions.options())
        if self.figure is not None and len({(m.network.size_name, m.network.dataset) for m in measurements}) > 1:
            raise InvalidInputError("--figure shows one size on one data set")
        outcomes = self.networks.outcomes(measurements)
        if self.figure is not None:
            self._draw(outcomes, self.figure)
        return self.networks.show(outcomes, self.budget)

    def _draw(self, outcomes: Sequence[Outcome], path: Path) -> None:
        def memory(method: str) -> float:
            # Layers of other packages look at values, which predictions do not have.
            device = "cpu" if method in PEERS else PREDICTED
            network = replace(outcomes[0].measurement.network, method=method)
            [outcome] = self.networks.outcomes([Measurement("memory", network, self.networks.batch_size, device)])
            return outcome.metrics["training"] if outcome.fits else float("nan")

        plain = memory(REFERENCE)
        ratios = {
            outcome.measurement.network.method: {
                "training step": outcome.metrics["training"]["ratio"]["median"],
                "inference": outcome.metrics["inference"]["ratio"]["median"],
                "training memory": memory(outcome.measurement.network.method) / plain,
            }
            for outcome in outcomes
            if outcome.fits
        }
        first = outcomes[0].measurement
        where = f"{first.network.dataset}, batch {first.batch_size}, {first.config()['hardware']}"
        save_ratios(ratios, f"ConvNet {first.network.size_name}, {where}", path)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Measure the peak memory of training and of inference, or predict it.

    ```
    onelip measure memory --methods aol lot --sizes XS
    onelip measure memory --methods aol lot --sizes L --predict --device cuda
    ```

    Counted are parameters, gradients, momentum, activations and temporaries: on CUDA the allocator's peak, on a CPU the
    exact sum of all live tensors. With --predict the same sum is taken on tensors without data: that takes seconds for
    networks of any size, and no memory. Layers are computed in other ways on a GPU: --predict --device cuda predicts
    the memory there, and needs none.
    """

    networks: Networks = field(default_factory=Networks)
    predict: bool = False
    """Predict instead of running the networks."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto is cuda where there is one."""

    def run(self) -> int:
        kind = self.device.partition(":")[0]
        if self.predict and kind not in ("auto", "cpu", "cuda"):
            raise InvalidInputError(f"--device {self.device}: memory is predicted on cpu or cuda")
        device = kind if self.predict and kind != "auto" else usable_device(self.device)
        if self.predict:
            device = PREDICTED_ON_GPU if device == "cuda" else PREDICTED
        return self.networks.report("memory", device=device)


@dataclass(frozen=True, kw_only=True)
class Macs:
    """Count the multiply-accumulates of one batch.

    ```
    onelip measure macs --methods aol lot --sizes XS S M L
    ```

    Parameter and input transformation are counted apart, then a whole training step, on tensors without data: no
    device is needed.
    """

    networks: Networks = field(default_factory=Networks)

    def run(self) -> int:
        return self.networks.report("macs")


@dataclass(frozen=True, kw_only=True)
class Certify:
    """Time the certificates of a batch, and the bounds of the network.

    ```
    onelip measure certify --methods aol lot --batch-size 64
    ```

    The certificates are timed in turns with the plain float64 pass of the same network. The bounds behind them are
    proven once per network; for their time alone, in large networks: --batch-size 1 --rounds 1.
    """

    networks: Networks = field(default_factory=Networks)
    repetitions: Repetitions = field(default_factory=Repetitions)
    arithmetic: Literal["float64", "float32"] = "float64"
    """Which program the certificates speak of."""

    def run(self) -> int:
        return self.networks.report("certify", arithmetic=self.arithmetic, **self.repetitions.options())


Command = sub_commands("measure", time=Time, memory=Memory, macs=Macs, certify=Certify)
