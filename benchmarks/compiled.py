"""What `torch.compile` gains: processor time of a training step and of inference, compiled over eager.

    python benchmarks/compiled.py [--methods aol bcop ...] [--width 16] [--image-size 16] [--rounds 15] [--convnet]

By default every method, in a network of two convolutions and a linear layer, which compiles within a minute; with
--convnet the comparison paper's. Batch 64, one thread. Each round times the two programs one right after the other; the
ratio is the median over rounds, so that other work on the machine hits both. Outputs must agree to 1e-4.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip import ConvNet
from onelip.bench.measurement.networks import leave_start
from onelip.layers import MaxMin, create_conv, create_linear, list_methods


def step_of(model: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor, labels: Tensor) -> Callable[[], object]:
    """One step of SGD through `run`, which is the model or its compiled form."""
    optimiser = torch.optim.SGD(model.parameters(), 1e-4)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(run(x), labels).backward()
        optimiser.step()

    return step


def ratio(first: Callable[[], object], second: Callable[[], object], rounds: int) -> float:
    """Median ratio of processor times, second over first."""
    found = []
    for _ in range(rounds):
        times = []
        for action in (first, second):
            start = time.process_time()
            action()
            times.append(time.process_time() - start)
        found.append(times[1] / times[0])
    return statistics.median(found)


def small_network(method: str, width: int, size: int) -> nn.Module:
    """Two convolutions, the first of stride 2, and a linear layer."""
    return nn.Sequential(
        create_conv(method, 3, width, 3, stride=2),
        MaxMin(),
        create_conv(method, width, width, 3),
        MaxMin(),
        nn.Flatten(),
        create_linear(method, width * (size // 2) ** 2, 10),
    )


def measured(method: str, width: int, size: int, rounds: int, convnet: bool) -> tuple[float, float]:
    """Ratios of a training step and of inference."""
    torch.manual_seed(0)
    torch.compiler.reset()
    paper = ConvNet(method, None, num_classes=10, input_size=size, width=width) if convnet else None
    model = paper or small_network(method, width, size)
    x, labels = torch.randn(64, 3, size, size), torch.randint(10, (64,))
    with torch.no_grad():
        leave_start(model)
    copied = copy.deepcopy(model)
    compiled = torch.compile(copied)
    eager_step, compiled_step = step_of(model, model, x, labels), step_of(copied, compiled, x, labels)
    for _ in range(2):
        eager_step()
        compiled_step()
    training = ratio(eager_step, compiled_step, rounds)
    copied.load_state_dict(model.state_dict())
    model.eval()
    copied.eval()
    with torch.no_grad():
        assert torch.allclose(model(x), compiled(x), atol=1e-4)
        inference = ratio(lambda: model(x), lambda: compiled(x), 2 * rounds)
    return training, inference


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=[method.key for method in list_methods()])
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--convnet", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("method   training  inference")
    for method in options.methods:
        training, inference = measured(method, options.width, options.image_size, options.rounds, options.convnet)
        print(f"{method:8} {training:8.2f} {inference:10.2f}", flush=True)


if __name__ == "__main__":
    main()
