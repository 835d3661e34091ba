"""`onelip measure time|memory|macs|certify`: what networks and certificates cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from onelip.bench.cli.measure_options import Networks, Repetitions
from onelip.bench.measurement import PREDICTED, PREDICTED_ON_GPU, REFERENCE, Measurement, Outcome
from onelip.bench.measurement.peers import PEERS
from onelip.bench.measurement.ratio_figure import check_format, save_ratios
from onelip.bench.runs.devices import usable_device
from onelip.bench.runs.durations import parse_duration
from onelip.errors import InvalidInputError


@dataclass(frozen=True)
class Time:
    """Time a training step, and inference with cached parameter transformations.

    Each round times the network and the same network with plain convolutions, one right after the other; the ratio is
    the median over rounds. On a CPU the rounds go on until it is known to 2 % or --seconds have passed, on CUDA there
    are 100 batches.

    Example: onelip measure time --methods aol lot --peers --figure costs.svg
    """

    networks: Networks
    repetitions: Repetitions
    budget: str | None = None
    """Print the epochs that fit in this training time, such as 2h or 30m, instead of the time of an epoch."""
    figure: Path | None = None
    """Draw the ratios of time, and of predicted memory, into this file (png, svg or pdf)."""

    def run(self) -> int:
        """Measure, print and draw."""
        measurements = self.networks.measurements("time", **self.repetitions.options())
        if self.budget is not None:
            parse_duration(self.budget)
        if self.figure is not None:
            check_format(self.figure)
            if len({(m.network.size_name, m.network.dataset) for m in measurements}) > 1:
                raise InvalidInputError("--figure shows one size on one data set")
        outcomes = self.networks.run(measurements)
        if self.figure is not None:
            self._draw(outcomes, self.figure)
        return self.networks.show(outcomes, self.budget)

    def _draw(self, outcomes: Sequence[Outcome], path: Path) -> None:
        def memory(method: str) -> float:
            # Layers of other packages look at values, which predictions do not have.
            device = "cpu" if method in PEERS else PREDICTED
            network = replace(outcomes[0].measurement.network, method=method)
            [outcome] = self.networks.run([Measurement("memory", network, self.networks.batch_size, device)])
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


@dataclass(frozen=True)
class Memory:
    """Peak memory of training and of inference.

    Counted are parameters, gradients, momentum, activations and temporaries: on CUDA the allocator's peak, on a CPU the
    exact sum of all live tensors. With --predict the same sum is taken on tensors without data: that takes seconds for
    networks of any size, and no memory. Layers are computed in other ways on a GPU: --predict --device cuda predicts
    the memory there, and needs none.
    """

    networks: Networks
    predict: bool = False
    """Predict instead of running the networks."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto is cuda where there is one."""

    def run(self) -> int:
        """Measure or predict, and print."""
        device = self.device if self.predict and self.device != "auto" else usable_device(self.device)
        if self.predict:
            device = PREDICTED_ON_GPU if device.startswith("cuda") else PREDICTED
        return self.networks.show(self.networks.run(self.networks.measurements("memory", device=device)))


@dataclass(frozen=True)
class Macs:
    """Count the multiply-accumulates of one batch.

    Parameter and input transformation are counted apart, then a whole training step, on tensors without data: no
    device is needed.
    """

    networks: Networks

    def run(self) -> int:
        """Count and print."""
        return self.networks.show(self.networks.run(self.networks.measurements("macs")))


@dataclass(frozen=True)
class Certify:
    """Time the certificates of a batch, and the bounds of the network.

    The certificates are timed in turns with the plain float64 pass of the same network. The bounds behind them are
    proven once per network; for their time alone, in large networks: --batch-size 1 --rounds 1.
    """

    networks: Networks
    repetitions: Repetitions
    arithmetic: Literal["float64", "float32"] = "float64"
    """Which program the certificates speak of."""

    def run(self) -> int:
        """Measure and print."""
        options = self.repetitions.options()
        measurements = self.networks.measurements("certify", arithmetic=self.arithmetic, **options)
        return self.networks.show(self.networks.run(measurements))


@dataclass(frozen=True)
class Measure:
    """Measure the time, the memory, the operations or the certificates of networks."""

    quantity: (
        Annotated[Time, tyro.conf.subcommand("time")]
        | Annotated[Memory, tyro.conf.subcommand("memory")]
        | Annotated[Macs, tyro.conf.subcommand("macs")]
        | Annotated[Certify, tyro.conf.subcommand("certify")]
    )

    def run(self) -> int:
        """Do what was asked for."""
        return self.quantity.run()


COMMAND = Measure
