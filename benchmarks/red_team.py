"""The red team: attacks on certificates, by the million. A single success would refute the library.

    python benchmarks/red_team.py --trials 1000000            # resumes where it was stopped
    python benchmarks/red_team.py --minutes 5 --processes 2
    python benchmarks/red_team.py --kinds graph method --first-seed 1000
    python benchmarks/red_team.py --naive --trials 20000      # a careless certificate, which the attacks do beat

A trial is one point within a certified ball at which a program's prediction is compared with the certified one. Points
come from gradient ascent in float64, from the edge of the ball, and from a descent along float neighbours. Programs are
the float64 pass, the float32 model, float32 sums in many orders, and rational arithmetic. Results: docs/red_team.md.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from red_team_ideas import surroundings
from red_team_targets import Target, graph_target, idea_target, linear_target, method_target, small_target
from torch import Tensor, nn

from onelip.certification import certify
from onelip.errors import InvalidInputError

Program = Callable[[Tensor], Tensor]
Radii = Callable[[nn.Module, Tensor, str], tuple[Tensor, Tensor]]


@dataclass
class Tally:
    """What one scenario came to."""

    kind: str
    seed: int
    target: str = ""
    trials: int = 0
    certified: int = 0
    refused: str = ""
    successes: list[dict[str, float | int | str]] = field(default_factory=list)


def proven(model: nn.Module, x: Tensor, arithmetic: str) -> tuple[Tensor, Tensor]:
    """Predictions and radii of the library."""
    certificate = certify(model, x, arithmetic="float32" if arithmetic == "float32" else "float64")
    return certificate.predictions, certificate.radii


def naive(model: nn.Module, x: Tensor, arithmetic: str) -> tuple[Tensor, Tensor]:
    """Margin / (sqrt(2) times the product of power-iteration norms), in float32: what is often done."""
    constant = 1.0
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            vector = torch.ones(layer.weight.shape[1])
            for _ in range(3):
                vector = layer.weight.mT @ (layer.weight @ vector)
                vector = vector / vector.norm()
            constant *= float((layer.weight @ vector).norm())
    best = model(x).topk(2, dim=1)
    return best.indices[:, 0], (best.values[:, 0] - best.values[:, 1]) / (math.sqrt(2) * constant)


def within(x: Tensor, candidates: Tensor, radii: Tensor) -> Tensor:
    """Whether candidates (n, c, ...) are in the balls, on the safe side of rounding."""
    squares = (candidates.double() - x.double()[:, None]).flatten(2).square().sum(-1)
    return squares * (1 + 1e-12) <= radii.double()[:, None].square()


def exactly_within(x: Tensor, candidate: Tensor, radius: float) -> bool:
    pairs = zip(x.flatten().tolist(), candidate.flatten().tolist(), strict=True)
    return sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs) <= Fraction(radius) ** 2


def ascents(target: Target, x: Tensor, predictions: Tensor, radii: Tensor, steps: int) -> Tensor:
    """Points (n, steps, ...) on the spheres that gradient descent on the margin visits, in float64."""
    start, rows = x.double(), torch.arange(len(x))
    shape = (-1, *[1] * (x.dim() - 1))
    length = radii.double().reshape(shape)
    delta = torch.randn_like(start)
    visited = []
    for step in range(steps):
        point = (start + delta * (length / _norms(delta, shape)) * (0.5 if step == 0 else 1)).requires_grad_()
        scores = target.wide(point)
        others = scores.detach().clone()
        others[rows, predictions] = -math.inf
        rival = others.argmax(1) if step % 3 else torch.randint(scores.shape[1], (len(x),))
        margin = (scores[rows, predictions] - scores[rows, rival]).sum()
        (gradient,) = torch.autograd.grad(margin, point) if margin.requires_grad else (torch.randn_like(point),)
        towards = -gradient / _norms(gradient, shape)
        delta = towards if step < 2 else point.detach() - start + towards * length * 0.7 / (1 + step / 4)
        visited.append(start + delta * (length / _norms(delta, shape)))
    return torch.stack(visited, dim=1)


def _norms(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return tensor.flatten(1).norm(dim=1).reshape(shape).clamp(min=1e-300)


def attack(target: Target, tally: Tally, radii_of: Radii, arithmetic: str, programs: list[Program], wide: bool) -> None:
    """Ascents, then edges of the ball, then neighbours of the best point, for every program."""
    dtype = torch.float64 if wide else torch.float32
    x = target.x.to(dtype)
    predictions, radii = radii_of(target.model, target.x, arithmetic)
    held = (radii > 0) & (radii < 1e6)
    tally.certified += int(held.sum())
    if not bool(held.any()):
        return
    x, predictions, radii = x[held], predictions[held], radii[held]
    points = ascents(target, x, predictions, radii, 8)
    shrink = 1 - 10 ** torch.empty(len(x), 3, points.shape[1], *[1] * (x.dim() - 1), dtype=torch.float64).uniform_(
        -15, -5
    )
    edges = x.double()[:, None, None] + (points - x.double()[:, None])[:, None] * shrink
    candidates = torch.cat([points, edges.flatten(1, 2)], dim=1).to(dtype)
    for program in programs:
        best = candidates
        for _ in range(4):
            best = judge(program, tally, arithmetic, x, best, predictions, radii)
            best = neighbours(best[:, None].expand(-1, 16, *best.shape[1:]))


def neighbours(points: Tensor) -> Tensor:
    """Each coordinate stays or moves to the next float, up or down."""
    moved = torch.nextafter(points, torch.where(torch.rand(points.shape) < 0.5, math.inf, -math.inf).to(points.dtype))
    return torch.where(torch.rand(points.shape) < 0.3, moved, points)


@torch.no_grad()
def judge(
    program: Program, tally: Tally, arithmetic: str, x: Tensor, candidates: Tensor, predictions: Tensor, radii: Tensor
) -> Tensor:
    """Count trials and successes; the candidate of the smallest margin within each ball, or the centre."""
    inside = within(x, candidates, radii)
    scores = program(candidates.flatten(0, 1)).unflatten(0, candidates.shape[:2]).double()
    own = scores.gather(2, predictions[:, None, None].expand(-1, scores.shape[1], 1)).squeeze(2)
    margins = own - scores.scatter(2, predictions[:, None, None].expand(-1, scores.shape[1], 1), -math.inf).amax(2)
    tally.trials += int(inside.sum())
    # The promise for float64 and for exact arithmetic excludes ties as well.
    changed = ~(margins > 0) if arithmetic == "float64" else scores.argmax(2) != predictions[:, None]
    for sample, index in (inside & changed).nonzero().tolist():
        radius = float(radii[sample])
        if exactly_within(x[sample], candidates[sample, index], radius):
            margin = float(margins[sample, index])
            tally.successes.append({"arithmetic": arithmetic, "sample": sample, "radius": radius, "margin": margin})
    best = margins.masked_fill(~inside, math.inf).argmin(1)
    rows = torch.arange(len(x))
    chosen = candidates[rows, best]
    return torch.where(inside[rows, best].reshape(-1, *[1] * (x.dim() - 1)), chosen, x)


def sums_in_orders(layer: nn.Linear, seed: int) -> list[Program]:
    """The float32 layer with its sums in many orders: random, by size, one after the other, in blocks, backwards."""
    generator = torch.Generator().manual_seed(seed)
    size = layer.weight.abs().sum(0)
    orders = [torch.randperm(len(size), generator=generator) for _ in range(4)]
    orders += [size.argsort(), size.argsort(descending=True)]

    def one_by_one(x: Tensor, order: Tensor) -> Tensor:
        terms = x[:, None, order] * layer.weight[:, order]
        return terms.cumsum(-1)[..., -1] + layer.bias

    def learned(x: Tensor, order: Tensor) -> Tensor:
        """The largest partial sums first, the cancellation last: the terms' own order, sample by sample."""
        terms = x[:, None] * layer.weight
        return terms.sort(-1, descending=True).values.cumsum(-1)[..., -1] + layer.bias

    def in_blocks(x: Tensor, order: Tensor) -> Tensor:
        terms = x[:, None, order] * layer.weight[:, order]
        return layer.bias + sum(part.sum(-1) for part in terms.split(5, -1))

    ways = (one_by_one, learned, in_blocks)
    return [lambda x, order=order, way=ways[i % 3]: way(x, order) for i, order in enumerate(orders)]


def rational_scores(model: nn.Module) -> Program:
    """Exact scores minus the highest one: what is not the highest stays below it when rounded."""

    def program(x: Tensor) -> Tensor:
        return torch.tensor([_ranks(model, row) for row in x.tolist()], dtype=torch.float64)

    return program


def _ranks(model: nn.Module, row: list[float]) -> list[float]:
    values = [Fraction(value) for value in row]
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            weights, biases = layer.weight.tolist(), layer.bias.tolist()
            values = [
                sum((Fraction(w) * v for w, v in zip(line, values, strict=True)), Fraction(bias))
                for line, bias in zip(weights, biases, strict=True)
            ]
        else:
            values = [max(value, Fraction(0)) for value in values]
    highest = max(values)
    return [min(float(value - highest), -5e-324) if value != highest else 0.0 for value in values]


def run_scenario(kind: str, seed: int, radii_of: Radii = proven) -> Tally:
    """One target, drawn from the seed, and all attacks on it."""
    tally = Tally(kind, seed)
    targets = {"method": method_target, "graph": graph_target, "orders": linear_target, "rational": small_target}
    target = (targets | {"ideas": idea_target})[kind](seed)
    tally.target = target.name
    try:
        if kind == "rational":
            attack(target, tally, radii_of, "float64", [rational_scores(target.model), target.wide], wide=True)
        elif kind == "orders":
            assert isinstance(target.model, nn.Linear)
            programs = [target.model, *sums_in_orders(target.model, seed)]
            attack(target, tally, radii_of, "float32", programs, wide=False)
        else:
            if kind == "ideas":
                where, radii_of = surroundings(seed)
                tally.target = f"{target.name}, {where}"
            attack(target, tally, radii_of, "float32", [target.model], wide=False)
            attack(target, tally, radii_of, "float64", [target.wide], wide=True)
    except InvalidInputError as error:
        tally.refused = str(error)
    except Exception as error:
        if kind != "ideas":
            raise
        tally.successes.append({"error": f"{type(error).__name__}: {error}"[:300]})
    return tally


KINDS = ("method", "graph", "orders", "rational", "ideas")
LINEAR_KINDS = ("orders", "rational")


def _work(
    worker: int, processes: int, file: Path, trials: int, until: float, is_naive: bool, kinds: list[str], first: int
) -> None:
    torch.set_grad_enabled(True)
    warnings.simplefilter("ignore")
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done, index = sum(line["trials"] for line in lines), len(lines)
    with file.open("a") as log:
        while done < trials / processes and time.time() < until:
            seed = first + worker + processes * (index // len(kinds))
            tally = run_scenario(kinds[index % len(kinds)], seed, naive if is_naive else proven)
            log.write(json.dumps(asdict(tally)) + "\n")
            log.flush()
            done += tally.trials
            index += 1


def summary(folder: Path) -> dict[str, dict[str, int]]:
    """Scenarios, refusals, certified points, trials and successes by kind."""
    table: dict[str, dict[str, int]] = {}
    for file in sorted(folder.glob("worker-*.jsonl")):
        for line in map(json.loads, file.read_text().splitlines()):
            row = table.setdefault(
                line["kind"], dict.fromkeys(("scenarios", "refused", "certified", "trials", "successes"), 0)
            )
            row["scenarios"] += 1
            row["refused"] += bool(line["refused"])
            row["certified"] += line["certified"]
            row["trials"] += line["trials"]
            row["successes"] += len(line["successes"])
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=None)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--naive", action="store_true", help="attack a careless certificate instead")
    parser.add_argument("--folder", type=Path, default=None, help="results, and where to resume")
    options = parser.parse_args()
    folder = options.folder or Path("red-team-naive" if options.naive else "red-team")
    folder.mkdir(parents=True, exist_ok=True)
    until = time.time() + 60 * options.minutes
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(
            target=_work,
            args=(
                *(i, options.processes, folder / f"worker-{i}.jsonl", options.trials, until, options.naive),
                *(options.kinds or list(LINEAR_KINDS if options.naive else KINDS), options.first_seed),
            ),
        )
        for i in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    table = summary(folder)
    for kind, row in table.items():
        print(f"{kind:10}", *(f"{name} {value:,}" for name, value in row.items()), sep="  ")
    successes = sum(row["successes"] for row in table.values())
    print(f"{sum(row['trials'] for row in table.values()):,} trials, {successes:,} successes")
    failed = any(worker.exitcode for worker in workers)
    return int(failed or (successes == 0) == options.naive)


if __name__ == "__main__":
    sys.exit(main())
