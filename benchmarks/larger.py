"""Larger networks in few rounds: the ratios of `onelip bench speed`, where seven rounds of each would take hours.

    python benchmarks/larger.py --size M [--methods aol lot ...] [--batch 256] [--rounds 2]

So few rounds have no confidence interval: the table shows the quartiles of the ratios of a training step.
"""

from __future__ import annotations

import argparse

import torch

from onelip.bench.measurement import REFERENCE, Rounds, Timing, Workload
from onelip.bench.measurement.throughput import compare_networks
from onelip.bench.measurement.workload import build_network, random_batch
from onelip.layers import list_methods


def measure(method: str, size: str, batch: int, rounds: int) -> tuple[Timing, Timing]:
    """Training and inference of a method's network against the reference."""
    torch.manual_seed(0)
    workload = Workload(method, size, batch_size=batch)
    networks = build_network(workload), build_network(Workload(REFERENCE, size, batch_size=batch))
    return compare_networks(*networks, random_batch(workload), Rounds(warm_up=1, least=rounds, most=rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=[method.key for method in list_methods()])
    parser.add_argument("--size", default="M", choices=["XS", "S", "M", "L"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    columns = "method", "training step", "lower quartile", "upper quartile", "seconds", "inference", "seconds"
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for method in arguments.methods:
        training, inference = measure(method, arguments.size, arguments.batch, arguments.rounds)
        ratios = training.ratio.median, training.ratio.lower_quartile, training.ratio.upper_quartile
        cells = [f"{ratio:.2f}" for ratio in ratios] + [f"{training.seconds.median:.2f}"]
        cells += [f"{inference.ratio.median:.2f}", f"{inference.seconds.median:.2f}"]
        print(f"| {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
