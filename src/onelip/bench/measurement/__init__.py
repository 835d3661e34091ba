"""Time, memory and operation counts of networks and layers; see docs/measuring.md."""

from onelip.bench.measurement.layer_costs import CountedCosts, count_layer_costs
from onelip.bench.measurement.measurements import (
    PREDICTED,
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
    "REFERENCE",
    "CountedCosts",
    "Measurement",
    "Outcome",
    "Quantity",
    "ReferenceConvNet",
    "Rounds",
    "count_layer_costs",
    "measure",
    "run_measurement",
]
