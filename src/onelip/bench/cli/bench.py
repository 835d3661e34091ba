"""`onelip bench speed|certify|bounds`: what training, inference and certificates cost on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from onelip.bench.cli import CommandInfo
from onelip.bench.cli.bench_certify import Bounds, Certify
from onelip.bench.cli.bench_speed import Speed


@dataclass(frozen=True)
class Bench:
    """Benchmark methods against plain convolutions and their targets, and certificates against the networks."""

    what: (
        Annotated[Speed, tyro.conf.subcommand("speed")]
        | Annotated[Certify, tyro.conf.subcommand("certify")]
        | Annotated[Bounds, tyro.conf.subcommand("bounds")]
    )

    def run(self) -> int:
        """Do what was asked for."""
        return self.what.run()


COMMAND = CommandInfo("bench", Bench)
