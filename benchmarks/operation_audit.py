"""The bounds of operations against torch's own list of operators, whose arguments nobody here chose.

    python benchmarks/operation_audit.py                          # every operator, every sample: a table
    python benchmarks/operation_audit.py --table FILE             # goes on where FILE ends, one line for an operator
    python benchmarks/operation_audit.py --table FILE --seconds 60          # a piece: begins nothing new after a minute
    python benchmarks/operation_audit.py --only softplus --samples 5
    python benchmarks/operation_audit.py --programs 1000 --table FILE       # programs of 2 to 6 of the accepted calls

torch tests itself with `op_db`: hundreds of operators, each with samples of its arguments. Every sample is called in
every form (function, method, in place, out, alias, aten operator, in a module through `functional_call`, by `vmap`),
with each of its tensors as the input, and with the batch as the first dimension of the sample, in front of it, or as
any other dimension of what the operator is given. A call is refused, or held against

* the norm of the exact Jacobian in float64, at random points, at ties and at zero, batch entries apart;
* quotients of pairs along lines, where jumps show;
* the float32 program at inputs from 1e-44 to 1e34, whose error must be within the proven one.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import re
import sys
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from red_team_operations import SIDE, fitted
from torch import Tensor, nn

from onelip.certification.call_arguments import Arguments
from onelip.certification.graph import Graph, Jumps
from onelip.certification.leaves import Proofs
from onelip.certification.program import ExactOutputs
from onelip.certification.rounding import error_at_sample, error_in_ball
from onelip.certification.traced import mapped
from onelip.certification.tracing import Tracer
from onelip.errors import BrokenCertificateError, OnelipError
from onelip.proofs.layer_bound import FLOAT64

Call = Callable[[Tensor], Any]
LARGEST, LARGEST_OUTPUT = 256, 4096
"""Entries of an input and of what is made of it, whose Jacobian is computed."""

ENDS_THE_PROCESS = ("lu_unpack", "linalg.ldl_solve")
"""Operators of torch which read or write beyond their memory when they are given pivots of other matrices."""

SCALES = (1e-44, 1e-38, 1e-20, 1e-8, 1.0, 30.0, 1e4, 1e13, 1e19, 1e34)


class Run(nn.Module):
    """A call as a model of one type."""

    def __init__(self, call: Callable[[Tensor, torch.dtype], Any], dtype: torch.dtype) -> None:
        super().__init__()
        self.call, self.kind = call, nn.Parameter(torch.zeros(1, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Any:
        """The values alone, where places are returned too."""
        result = self.call(x, self.kind.dtype)
        return result[0] if isinstance(result, tuple | list) else result


class Called(nn.Module):
    """An operator in a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """The operator."""
        return self.function(*arguments, **keywords)


@dataclass
class Row:
    """What the samples of one operator came to."""

    forms: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def operators() -> list[Any]:
    """torch's list, which needs a package for its own tests alone."""
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules.setdefault("expecttest", stand_in)
    before = dict(os.environ)
    from torch.testing._internal.common_methods_invocations import op_db

    # The import forbids the whole process to set torch.backends, and moves the compiler's cache.
    torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
    os.environ.clear()
    os.environ.update(before)
    usable = [entry for entry in op_db if entry.name not in ENDS_THE_PROCESS]
    return [entry for entry in usable if entry.supports_dtype(torch.float32, "cpu")]


def forms(entry: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The ways to call an operator."""
    yield "function", entry.op
    if entry.method_variant is not None:
        yield "method", entry.method_variant
    if entry.inplace_variant is not None:
        yield "in place", lambda x, *a, **k: entry.inplace_variant(x.clone(), *a, **k)
    for alias in entry.aliases:
        yield f"alias {alias.name}", alias.op
    operator = getattr(torch.ops.aten, entry.aten_name, None)
    if operator is not None:
        yield "aten", operator
    yield "out", lambda x, *a, **k: entry.op(x, *a, out=torch.empty(0, dtype=x.dtype), **k)
    yield "functional_call", lambda x, *a, **k: torch.func.functional_call(Called(entry.op), {}, (x, *a), k)
    yield "vmap", lambda x, *a, **k: torch.func.vmap(lambda one: entry.op(one, *a, **k))(x)


def calls(function: Callable[..., Any], sample: Any) -> Iterator[tuple[Callable[[Tensor, torch.dtype], Any], Tensor]]:
    """The call as a function of each of its floating tensors, the others fixed."""
    given = sample.input, sample.args, sample.kwargs
    count = 0

    def numbered(part: Any) -> Any:
        nonlocal count
        if isinstance(part, Tensor) and part.is_floating_point() and part.layout == torch.strided:
            count += 1
            return count - 1, part.detach()
        return part

    tensors: dict[int, Tensor] = {}
    form = mapped(given, lambda part: _Slot(numbered(part), tensors) if isinstance(part, Tensor) else part)

    def of(place: int) -> Callable[[Tensor, torch.dtype], Any]:
        def call(x: Any, dtype: torch.dtype) -> Any:
            first, arguments, keywords = mapped(form, lambda part: _filled(part, place, x, dtype))
            return function(first, *arguments, **keywords)

        return call

    for place, tensor in list(tensors.items())[:3]:
        yield of(place), tensor


class _Slot:
    """The place of a tensor; those that are no input are fixed."""

    def __init__(self, found: Any, tensors: dict[int, Tensor]) -> None:
        self.number, self.tensor = found if isinstance(found, tuple) else (-1, found)
        if self.number >= 0:
            tensors[self.number] = self.tensor


def _filled(part: Any, place: int, x: Any, dtype: torch.dtype) -> Any:
    if not isinstance(part, _Slot):
        return part
    if part.number == place:
        return x
    return part.tensor.to(dtype) if part.number >= 0 else part.tensor


def traced(call: Callable[[Tensor, torch.dtype], Any], x: Tensor) -> tuple[Graph, Tensor]:
    """The graph of a float32 program, and its values in float64."""
    return Tracer(Run(call, torch.float32).eval(), Proofs(), torch.float32).run(Arguments.of(x.double()))


def audit(call: Callable[[Tensor, torch.dtype], Any], x: Tensor) -> str | None:
    """What is wrong with the bound of a call at inputs of this shape, None if nothing was found."""
    try:
        graph, _ = traced(call, x)
    except BrokenCertificateError:
        raise
    except OnelipError:
        return "refused"
    except Exception as error:
        return f"crashed: {type(error).__name__}: {str(error)[:140]}"
    wide, narrow = Run(call, torch.float64), Run(call, torch.float32)
    if wide(x.double()).dtype != torch.float64:  # it converts: what is certified is the program of one type
        return "refused"
    jumps = any(node.fact(Jumps) for node in graph.used())
    bound = torch.inf if jumps else graph.output.lipschitz
    draw = torch.Generator().manual_seed(0)
    noise = [torch.randn(x.shape, generator=draw, dtype=torch.float64) for _ in range(3)]
    points = [x.double(), noise[0], 30 * noise[1], 1e-3 * noise[2], torch.zeros_like(x).double(), noise[0].sign()]
    return steep(wide, bound, points) or uneven(call, wide, bound, points) or inexact(call, narrow, noise[0])


def steep(model: Run, bound: float, points: list[Tensor]) -> str | None:
    """A Jacobian that is larger than the bound, or mixes the inputs of the batch."""
    for point in points:
        if not model(point.clone()).numel():
            return None
        try:
            jacobian: Any = torch.autograd.functional.jacobian(lambda t: model(t.clone()), point)
        except RuntimeError:  # torch has no derivative
            return None
        if not bool(torch.isfinite(jacobian).all()):
            continue
        batch, outputs = len(point), jacobian.shape[: jacobian.dim() - point.dim()].numel() // len(point)
        blocks = jacobian.reshape(batch, outputs, batch, -1)
        for one in range(batch):
            if blocks[one, :, torch.arange(batch) != one].any():
                return "broken: it mixes the inputs of the batch"
            norm = float(torch.linalg.matrix_norm(blocks[one, :, one], 2)) if blocks[one, :, one].numel() else 0.0
            if not norm <= bound * (1 + 1e-9):
                return f"broken: a Jacobian of {norm:.6g}, a bound of {bound:.6g}"
    return None


def errors_of(graph: Graph, count: int, radii: Tensor) -> Tensor:
    """Bounds of the error of the float64 pass within the balls."""
    here = error_at_sample(graph.used(), FLOAT64, count)
    return error_in_ball(graph.used(), FLOAT64, here, radii).errors[graph.output.index]


@torch.no_grad()
def uneven(call: Any, model: Run, bound: float, points: list[Tensor]) -> str | None:
    """Two points on a line between which the function changes by more than the bound and rounding allow."""
    for start, end in itertools.pairwise(points):
        graph, value = traced(call, start)
        flat = (len(start), -1)
        for lengths in (torch.linspace(0.1, 1, 10), 2.0 ** -torch.arange(5, 45, 5)):
            moved = [start + (end - start) * t for t in lengths.double()]
            distances = torch.stack([(point - start).reshape(flat).norm(dim=1) for point in moved])
            errors = 2 * errors_of(graph, len(start), distances.amax(0))
            changes = torch.stack(
                [(model(point.clone()).double() - value).reshape(flat).norm(dim=1) for point in moved]
            )
            excess = changes - bound * distances * (1 + 1e-9) - errors
            if bool((excess > 0).any()):
                worst = int(excess.nan_to_num(-torch.inf).argmax())
                change, distance = float(changes.flatten()[worst]), float(distances.flatten()[worst])
                return f"broken: changes by {change:.6g} over {distance:.6g}, a bound of {bound:.6g}"
    return None


def inexact(call: Any, model: Run, noise: Tensor) -> str | None:
    """Inputs at which the float32 program is further from the exact function than proven."""
    patterns = noise.sign(), noise * 10 ** (4 * noise.flip(-1).clamp(-1, 1))
    points = [(pattern * scale).float() for scale in SCALES for pattern in patterns]
    try:
        return _off(call, model, torch.cat(points))
    except Exception:  # it takes batches of one length
        return next((found for x in points if (found := _off(call, model, x)) is not None), None)


@torch.no_grad()
def _off(call: Any, model: Run, x: Tensor) -> str | None:
    graph, value = traced(call, x)
    try:
        ExactOutputs(graph, value).check(model(x.clone()), torch.zeros(len(x), dtype=torch.float64), torch.float32)
    except BrokenCertificateError as error:
        return f"broken: float32 at {float(x.abs().amax()):.3g}: {str(error)[:110]}"
    return None


def inputs(call: Any, tensor: Tensor) -> Iterator[tuple[str, Any, Tensor]]:
    """The sample with its first dimension as the batch, and a batch of such samples in front or anywhere else."""
    if tensor.dim() and tensor.numel():
        yield "first", call, tensor.float()
    batch = torch.stack([tensor.float(), 1 - 2 * tensor.float()])
    yield "front", call, batch
    for place in range(1, batch.dim()):
        yield f"at {place}", functools.partial(_elsewhere, call, place), batch


def _elsewhere(call: Any, place: int, x: Tensor, dtype: torch.dtype) -> Any:
    """The call with the batch at another place, where it is brought back from."""
    result = call(x.movedim(0, place), dtype)
    result = result[0] if isinstance(result, tuple | list) else result
    return result.movedim(place, 0)


def accepted(entry: Any, limit: int | None, row: Row) -> Iterator[tuple[str, Any, Tensor]]:
    """Every call of an operator with inputs that torch itself takes."""
    torch.manual_seed(0)
    samples = list(entry.sample_inputs("cpu", torch.float32))
    chosen = samples if limit is None else samples[:: max(1, len(samples) // limit)][:limit]
    for name, function in forms(entry):
        for number, sample in enumerate(chosen):
            for call, tensor in calls(function, sample):
                for where, model, x in inputs(call, tensor):
                    if x.numel() > LARGEST:
                        row.counts["large"] += 1
                        continue
                    try:
                        result = Run(model, torch.float32)(x.clone())
                    except Exception:  # torch itself does not take it
                        continue
                    if isinstance(result, Tensor) and result.numel() > LARGEST_OUTPUT:
                        row.counts["large"] += 1
                    elif isinstance(result, Tensor) and result.is_floating_point():
                        row.forms.add(name)
                        yield f"{name}, sample {number}, batch {where}, input {tuple(x.shape)}", model, x


def examine(entry: Any, limit: int | None) -> Row:
    """One line of the table."""
    row = Row()
    for words, call, x in accepted(entry, limit, row):
        found = audit(call, x) or "held"
        row.counts[found.partition(":")[0]] += 1
        if found not in ("held", "refused"):
            row.findings.append(f"{entry.formatted_name}: {words}: {found}")
    return row


# Programs of several calls


def step_of(call: Any, shape: torch.Size) -> Callable[[Tensor, torch.dtype], Tensor]:
    """A call as a step from images (batch, 4, 4, 4) to such images."""

    def step(x: Any, dtype: torch.dtype) -> Any:
        flat = torch.flatten(x, 1)
        return fitted(call(torch.reshape(flat[:, : shape[1:].numel()], (-1, *shape[1:])), dtype))

    return step


def steps(entries: list[Any]) -> list[tuple[str, Any]]:
    """The calls that are accepted with the batch in front."""
    found = []
    for entry in entries:
        torch.manual_seed(0)
        for sample in list(entry.sample_inputs("cpu", torch.float32))[:6]:
            for call, tensor in list(calls(entry.op, sample))[:1]:
                if not 0 < tensor.numel() <= SIDE**3 or not tensor.dim():
                    continue
                step = step_of(call, torch.Size((2, *tensor.shape)))
                try:
                    Run(step, torch.float32)(torch.randn(2, SIDE, SIDE, SIDE))
                    traced(step, torch.randn(2, SIDE, SIDE, SIDE))
                    if Run(step, torch.float64)(torch.randn(2, SIDE, SIDE, SIDE).double()).dtype != torch.float64:
                        continue
                except Exception:
                    continue
                found.append((entry.formatted_name, step))
    return found


def program(known: list[tuple[str, Any]], seed: int) -> tuple[str, Any]:
    """A random program: each step takes the value of one of the last two, and branches may be added."""
    draw = torch.Generator().manual_seed(seed)

    def pick(count: int) -> int:
        return int(torch.randint(count, (), generator=draw))

    chosen = [(known[pick(len(known))], pick(2), pick(4)) for _ in range(2 + pick(5))]

    def call(x: Any, dtype: torch.dtype) -> Any:
        values = [x]
        for (_, step), back, joined in chosen:
            value = step(values[-1 - back % min(2, len(values))], dtype)
            values.append(value + values[-1] if joined == 0 else value)
        return values[-1]

    return " > ".join(name for (name, _), _, _ in chosen), call


def run_programs(known: list[tuple[str, Any]], first: int, count: int, file: Path | None, seconds: float) -> Row:
    """Random programs of these seeds, those of a file and then the others, which are added to it by the hundred."""
    total, seeds = Row(), range(first, first + count)
    for line in file.read_text().splitlines() if file is not None and file.exists() else []:
        said = json.loads(line)
        total.counts += Counter(said["counts"])
        total.findings += said["findings"]
        seeds = range(max(first, said["after"]), first + count)
    end = time.monotonic() + seconds
    while seeds and time.monotonic() < end:
        part, now, seeds = Row(), seeds[:100], seeds[100:]
        for seed in now:
            words, call = program(known, seed)
            x = torch.randn(2, SIDE, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))
            found = audit(call, x) or "held"
            part.counts[found.partition(":")[0]] += 1
            if found not in ("held", "refused"):
                part.findings.append(f"seed {seed}: {words}: {found}")
        if file is not None:
            said = {"after": now[-1] + 1, "counts": part.counts, "findings": part.findings}
            with file.open("a") as out:
                out.write(json.dumps(said) + "\n")
        total.counts += part.counts
        total.findings += part.findings
    return total


def table(entries: list[Any], limit: int | None, file: Path | None, seconds: float) -> dict[str, Row]:
    """The rows of operators, those of a file and then the others, which are added to it.

    An operator is written down as crashed before it is examined, so that one which ends the process costs itself alone.
    """
    rows: dict[str, Row] = {}
    for line in file.read_text().splitlines() if file is not None and file.exists() else []:
        said = json.loads(line)
        rows[said["operator"]] = Row(set(said["forms"]), Counter(said["counts"]), said["findings"])

    def write(name: str, row: Row) -> None:
        if file is not None:
            said = {"forms": sorted(row.forms), "counts": row.counts, "findings": row.findings}
            with file.open("a") as out:
                out.write(json.dumps({"operator": name, **said}) + "\n")

    end = time.monotonic() + seconds
    for entry in entries:
        name = entry.formatted_name
        if name in rows or time.monotonic() > end:
            continue
        write(name, Row(counts=Counter(crashed=1), findings=[f"{name}: crashed: the process ended"]))
        rows[name] = row = examine(entry, limit)
        write(name, row)
    return rows


def lines(rows: dict[str, Row]) -> Iterator[str]:
    """The table: operators of which some form is accepted, then the sum."""
    columns = "refused", "held", "broken", "crashed"
    yield f"{'operator':<44}{'forms':>6}{'calls':>9}" + "".join(f"{name:>9}" for name in columns)
    total, forms = Counter[str](), Counter[str]()
    for name, row in rows.items():
        total += row.counts
        forms.update(row.forms)
        calls = sum(row.counts[column] for column in columns)
        if calls > row.counts["refused"]:
            yield f"{name[:43]:<44}{len(row.forms):>6}{calls:>9}" + "".join(f"{row.counts[c]:>9}" for c in columns)
    yield f"{len(rows)} operators, {sum(total[c] for c in columns)} calls: {dict(total)}"
    yield f"operators in each form: {dict(forms)}"


def main() -> int:
    """Print the table, then what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression for names of operators")
    parser.add_argument("--samples", type=int, default=None, help="at most so many samples of an operator in each form")
    parser.add_argument("--programs", type=int, default=0, help="random programs in place of single calls")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--table", type=Path, default=None, help="a file of what is done, which is continued")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no operator after so long")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    entries = [entry for entry in operators() if re.search(options.only, entry.formatted_name)]
    if options.programs:
        known = steps(entries)
        row = run_programs(known, options.first_seed, options.programs, options.table, options.seconds)
        findings = row.findings
        print(f"{len(known)} calls, {sum(row.counts.values())} programs: {dict(row.counts)}")
    else:
        rows = table(entries, options.samples, options.table, options.seconds)
        findings = [finding for row in rows.values() for finding in row.findings]
        print(*lines(rows), sep="\n")
    print(*findings, sep="\n")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
