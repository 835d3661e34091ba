"""What bfloat16 saves and costs: each method's network under autocast against the same network in float32.

    python benchmarks/bfloat16.py [--methods aol lot ...] [--batch 256] [--seconds 10] [--epochs 2]

Time: a training step and cached inference, interleaved, as ratios to float32. Accuracy: two trainings of equal seed and
length on the embedded images, one in each precision, both evaluated in float32; 0 epochs leave it out. The parameter
transformations stay in float32 in both. Where the processor announces AMX and does not have it, set
ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from onelip.bench.measurement import Rounds
from onelip.bench.measurement.networks import build_network, random_batch
from onelip.bench.measurement.throughput import Throughput, measure_throughput
from onelip.bench.records import NetworkSpec, RunOptions
from onelip.bench.training import train
from onelip.bench.training.distributed import check_bfloat16
from onelip.bench.training.evaluation import evaluate_run
from onelip.layers import list_methods


class InBfloat16(nn.Module):
    """A network under autocast; its scores are float32, as the loss wants them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.network(x).float()


def measure_times(method: str, batch: int, seconds: float) -> Throughput:
    """Training and inference, bfloat16 over float32."""
    network = NetworkSpec(method=method)
    models = InBfloat16(build_network(network)), build_network(network)
    return measure_throughput(*models, *random_batch(network, batch), Rounds(seconds=seconds), network.data.train_size)


def measure_accuracy(method: str, precision: str, epochs: int, runs: Path) -> tuple[float, float]:
    """Accuracy and certified accuracy at 36/255 on the test images, in percent."""
    config = RunOptions(
        network=NetworkSpec(method=method, width=8, dataset="cifar10-mini"),
        epochs=epochs,
        recipe="short",
        precision=precision,  # pyright: ignore[reportArgumentType] - one of the two names below
    )
    name = train(config, runs).name
    metrics = evaluate_run(runs / name, progress=False).metrics
    return 100 * metrics["test_accuracy"], 100 * metrics["test_certified_accuracy_36"]


def main() -> None:
    parser = argparse.ArgumentParser(description="bfloat16 against float32")
    parser.add_argument("--methods", nargs="+", default=[method.key for method in list_methods()])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    check_bfloat16(torch.device("cpu"))
    columns = ["method", "training step", "inference"]
    if options.epochs:
        columns += ["accuracy, float32", "bfloat16", "certified, float32", "bfloat16"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    with tempfile.TemporaryDirectory() as folder:
        for method in options.methods:
            times = measure_times(method, options.batch, options.seconds)
            cells = [f"{timing.ratio.median:.2f}" for timing in (times.training, times.inference)]
            if options.epochs:
                found = [measure_accuracy(method, p, options.epochs, Path(folder)) for p in ("float32", "bfloat16")]
                cells += [f"{result[which]:.1f}" for which in (0, 1) for result in found]
            print(f"| {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
