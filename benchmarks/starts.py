"""Which start is best in a few hundred steps: each method's own, or that of the comparison paper's code.

    python benchmarks/starts.py [--methods aol bcop ...] [--starts auto published] [--steps 150] [--seeds 0 1]

Recipe short, CIFAR-10, a fixed number of steps, so that the speed of the machine has no influence; accuracy and
certified accuracy at 36/255 are estimated from the margins of the 5,000 validation images. One line of JSON each.
"""

from __future__ import annotations

import argparse
import json
import time

from onelip.bench.records import NetworkSpec, RunOptions, RunSpec
from onelip.bench.training.distributed import joined_ranks
from onelip.bench.training.plans import StepPlan
from onelip.bench.training.resolve import resolve
from onelip.bench.training.trainer import Trainer


def scores_after(spec: RunSpec, steps: int) -> dict[str, float]:
    """Train for this many steps of the recipe's schedule and validate."""
    started = time.process_time()
    with joined_ranks("cpu") as ranks:
        trainer, plan = Trainer(spec, ranks), StepPlan(steps)
        while not plan.finished:
            for images, labels in trainer.stream:
                trainer.step(images, labels, plan.fraction, plan.planned_steps)
                plan.step_done()
                if plan.finished:
                    break
        scores = trainer.validate()
    assert scores is not None, "the recipe sets validation images aside"
    found = {"accuracy": scores.accuracy, "certified_36": scores.certified[36]}
    return found | {"core_seconds": time.process_time() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["aol", "bcop", "cayley", "cpl", "sll", "soc"])
    parser.add_argument("--starts", nargs="+", default=["auto", "published"])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--width", type=int, default=8)
    given = parser.parse_args()
    for seed in given.seeds:
        for method in given.methods:
            for start in given.starts:
                network = NetworkSpec(method=method, width=given.width, init=start)
                spec = resolve(RunOptions(network=network, epochs=1, recipe="short", seed=seed))
                row = {"method": method, "start": start, "seed": seed}
                print(json.dumps(row | scores_after(spec, given.steps)), flush=True)


if __name__ == "__main__":
    main()
