"""Time, memory and operation counts of networks and layers; see docs/measuring.md."""

from onelip.bench.measurement.measurements import (
    PREDICTED,
    PREDICTED_ON_GPU,
    Measurement,
    Outcome,
    Quantity,
    measure,
    run_measurement,
)
from onelip.bench.measurement.reference import ReferenceConvNet
from onelip.bench.measurement.throughput import Rounds
from onelip.protocol import REFERENCE

__all__ = [
    "PREDICTED",
    "PREDICTED_ON_GPU",
    "REFERENCE",
    "Measurement",
    "Outcome",
    "Quantity",
    "ReferenceConvNet",
    "Rounds",
    "measure",
    "run_measurement",
]
