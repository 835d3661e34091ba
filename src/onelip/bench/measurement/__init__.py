"""Time, memory and operation counts of networks and layers; see docs/measuring.md."""

from onelip.bench.measurement.campaign import Job, Outcome, run_job
from onelip.bench.measurement.layer_costs import CountedCosts, count_layer_costs
from onelip.bench.measurement.live_tensors import LiveTensors
from onelip.bench.measurement.macs import MacCounter, NetworkMacs, count_layer, count_macs, count_network
from onelip.bench.measurement.memory import CARDS_GIB, MemoryUse, measure_memory, predict_memory, smallest_card
from onelip.bench.measurement.reference import ReferenceConvNet
from onelip.bench.measurement.throughput import Clock, Rounds, Throughput, Timing, compare, measure_throughput
from onelip.bench.measurement.workload import Workload
from onelip.bench.runs import REFERENCE

__all__ = [
    "CARDS_GIB",
    "REFERENCE",
    "Clock",
    "CountedCosts",
    "Job",
    "LiveTensors",
    "MacCounter",
    "MemoryUse",
    "NetworkMacs",
    "Outcome",
    "ReferenceConvNet",
    "Rounds",
    "Throughput",
    "Timing",
    "Workload",
    "compare",
    "count_layer",
    "count_layer_costs",
    "count_macs",
    "count_network",
    "measure_memory",
    "measure_throughput",
    "predict_memory",
    "run_job",
    "smallest_card",
]
