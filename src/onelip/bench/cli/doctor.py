"""Show what is installed here, and test that certificates hold.

```
onelip doctor
onelip doctor --report gpu.json --device cuda
```

It lists versions, device, threads, precision switches and data sets. Then it certifies small networks of six methods
and attacks every certificate: the float32 program must keep its answer at the edge of each ball, in the directions of
the gradients and in random ones, and must lose it well outside, so that the attacks are known to be strong enough. That
takes some 20 seconds. The exit code is 1 if a test failed.

With `--report` it also compares every layer on a device with the CPU, and times and weighs networks there beside plain
convolutions: in that file as JSON, and beside it as a page of Markdown (docs/gpu.md).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

import onelip
from onelip.atomic_files import replace_files
from onelip.bench.cli.options import Output, checked, in_a_folder, must
from onelip.bench.data import get_dataset, list_datasets, load
from onelip.bench.data.cache import read_note
from onelip.bench.data.catalogue import is_embedded
from onelip.bench.measurement.second_device import device_report, failed_tests, page, second_device
from onelip.bench.records import dump_json
from onelip.bench.records.machine import HUGE_PAGES, free_cores, machine_facts, threads_without_cores
from onelip.bench.terminal import Terminal, plain_table, stages
from onelip.certification.certificates import Certificate
from onelip.certification.precision import ieee_arithmetic
from onelip.errors import InvalidInputError, OnelipError, one_line
from onelip.layers import get_method, list_methods
from onelip.local_machine import cache_folder

State = Literal["ok", "note", "FAILED"]
_EXTRAS = {
    "attack": ("foolbox",),
    "augment": ("kornia",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "hub": ("huggingface_hub",),
    "ray": ("ray",),
    "slurm": ("submitit",),
}
_PAGE_MODES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_ATTACKS = 14  # for each image: towards the ten classes, and four at random
_METHODS = ("aol", "bcop", "cayley", "cpl", "lot", "soc")
_REPORTED = tuple(method.key for method in list_methods())
_SMALL_BATCH = 64
_BEYOND = 4  # times the radius, where attacks must succeed
_MOVED = {"aol": 3e-4, "cpl": 3e-4}
"""Deviations by which weights are moved, where the usual one makes a network that hardly changes with its input."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    what: str
    state: State
    text: str


_JSON_FILE = checked(must(lambda path: path.suffix == ".json", "must end in .json"), in_a_folder)


@dataclass(frozen=True, kw_only=True)
class Command(Output):
    report: Annotated[Path | None, _JSON_FILE] = None
    """Write a report of the device to this file, which ends in .json, and a page of Markdown beside it."""
    device: str | None = None
    """The device of the report: cuda, mps, xla, cpu; the accelerator that torch finds if not given."""
    tests: Path | None = None
    """A file of `pytest --junitxml`, whose failures go into the report."""

    def run(self) -> int:
        """Print what is found; 1 if a test failed."""
        if self.report is None and (self.device or self.tests):
            raise InvalidInputError("--device and --tests are options of --report")
        device = None if self.report is None else second_device(self.device)
        if self.report is not None and device is None:
            raise InvalidInputError("torch finds no accelerator here; --device cpu reports on the CPU")
        tests = None if self.tests is None else failed_tests(self.tests)
        findings = [*machine_findings(), *data_findings()]
        with stages(self.quiet) as tell:
            tell("testing linear algebra")
            findings.append(solve_finding())
            for number, method in enumerate(_METHODS, 1):
                tell(f"testing the certificates of {method}, {number} of {len(_METHODS)}")
                findings.append(certificate_finding(method))
            if self.report is not None and device is not None:
                tell("comparing the device with the CPU and with plain convolutions")
                batch = 256 if device.type == "cuda" else _SMALL_BATCH
                report = device_report(device, findings, tests, [get_method(key) for key in _REPORTED], batch)
                text = dump_json(report)
                replace_files({self.report: text.encode(), self.report.with_suffix(".md"): page(report).encode()})
        failed = any(finding.state == "FAILED" for finding in findings)
        if self.json:
            print(dump_json([asdict(finding) for finding in findings]))
        else:
            rows = [(finding.what, finding.state, finding.text) for finding in findings]
            console = Terminal()
            console.print(plain_table(("what", "state", "found"), (), rows, wrapped=("found",)))
            console.print("please report this: see SECURITY.md of onelip" if failed else "all is well")
        return 1 if failed else 0


def machine_findings() -> Iterator[Finding]:
    """Versions, processor, device, threads, switches, extras."""
    facts = machine_facts()
    versions = facts["versions"]
    yield Finding("onelip", "ok", f"{versions['onelip']}, Python {versions['python']}, {facts['os']}")
    yield Finding("torch", "ok", f"{versions['torch']}, numpy {versions['numpy']}")
    gib = facts["memory_bytes"] / 2**30
    yield Finding(
        "machine", "ok", f"{facts['cpu']}, usable cores: {facts['usable_cores']}, {gib:.0f} GiB, load {facts['load']}"
    )
    cards = ", ".join(f"{card['name']} ({card['memory_bytes'] / 2**30:.0f} GiB)" for card in facts["gpus"])
    yield Finding("device", "ok" if cards else "note", cards or "no GPU: everything runs on the CPU")
    wide, free = torch.get_num_threads() > facts["usable_cores"], free_cores()
    threads = f"{torch.get_num_threads()} of torch" + ("" if free is None else f", free cores: {free:.1f}")
    crowded = "more than there are cores" if wide else threads_without_cores(free)
    yield Finding("threads", "note" if crowded else "ok", threads + (f"; {crowded}" if crowded else ""))
    yield from page_finding(_PAGE_MODES, os.environ.get("GLIBC_TUNABLES", ""))
    with ieee_arithmetic() as switches:
        count = len(switches)
    fast = torch.get_float32_matmul_precision() != "highest"
    deployed = "; your own float32 passes do not (torch.set_float32_matmul_precision)" if fast else ""
    yield Finding(
        "precision", "note" if fast else "ok", f"certificates use IEEE arithmetic ({count} switches){deployed}"
    )
    missing = [extra for extra, names in _EXTRAS.items() if not all(importlib.util.find_spec(name) for name in names)]
    absent = f'not installed: {", ".join(missing)} (pip install "onelip[{missing[0]}]")' if missing else "all installed"
    yield Finding("extras", "note" if missing else "ok", absent)


def page_finding(modes: Path, tunables: str) -> Iterator[Finding]:
    """Whether large tensors lie on huge pages, where evaluation takes about a tenth less time (docs/speed.md).

    `modes` is the file in which Linux marks the chosen mode by brackets; `tunables` are the options of glibc.
    """
    try:
        mode = modes.read_text().partition("[")[2].partition("]")[0]
    except OSError:  # not Linux
        return
    if mode == "always" or (mode == "madvise" and HUGE_PAGES in tunables):
        yield Finding("pages", "ok", "huge pages for large tensors")
    elif mode == "madvise":
        yield Finding("pages", "note", f"small: GLIBC_TUNABLES={HUGE_PAGES} makes large tensors faster")
    else:
        yield Finding("pages", "note", "small: this Linux gives no huge pages")


def data_findings() -> Iterator[Finding]:
    """Which data sets are here."""
    here = [name for name in list_datasets() if is_embedded(name) or read_note(get_dataset(name))]
    absent = [name for name in list_datasets() if name not in here]
    fetch = f"; onelip data fetch {absent[0]} gets another" if absent else ""
    yield Finding("data", "ok", f"{', '.join(here)} (in {cache_folder()}){fetch}")


def solve_finding() -> Finding:
    """Batched solves, which have failed on some processors after a change of threads: onelip checks each of them."""
    torch.manual_seed(0)
    matrices, right = torch.randn(4, 192, 192, dtype=torch.float64), torch.randn(4, 192, 8, dtype=torch.float64)
    try:
        residual = float((matrices @ torch.linalg.solve(matrices, right) - right).norm() / right.norm())
    except RuntimeError as error:
        return Finding(
            "linear algebra", "note", f"batched solve raises ({one_line(error)[:60]}); onelip solves one by one"
        )
    if residual < 1e-8:
        return Finding("linear algebra", "ok", f"batched solves are right (residual {residual:.0e})")
    return Finding(
        "linear algebra", "note", f"batched solves are wrong (residual {residual:.0e}); onelip corrects them"
    )


def certificate_finding(method: str) -> Finding:
    """A small network with moved weights: its proven constant, and attacks at the edge of 16 certified balls.

    The same attacks at a multiple of the radii must succeed: it would say nothing if those of no strength failed.
    """
    torch.manual_seed(0)
    data = load("cifar10-mini")
    images = data.test_images[:16].float() / 255 - 0.5
    model = onelip.ConvNet(method, None, 10, width=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(_MOVED.get(method, 0.02) * torch.randn_like(parameter))
    model.eval()
    try:
        certificate = onelip.certify(model, images, arithmetic="float32")
        constant = onelip.lipschitz_bound(model, (3, 32, 32))
    except OnelipError as error:
        return Finding(f"certify {method}", "FAILED", one_line(error))
    changed, beyond = (changed_answers(model, images, certificate, factor) for factor in (1, _BEYOND))
    sound = changed == 0 and constant <= 1 + 1e-4
    attacks = f"attacks change {changed} of {len(images)} answers within the radius"
    text = f"constant {constant:#.7g}; {attacks}, {beyond} within {_BEYOND} times the radius"
    return Finding(f"certify {method}", "ok" if sound and beyond else "FAILED", text)


def changed_answers(model: nn.Module, images: Tensor, certificate: Certificate, factor: int) -> int:
    """How many images have a point at this multiple of their radius where the answer is another."""
    answers = [model(x).argmax(1) for x in edges(model, images, factor * certificate.radii)]
    return int((torch.stack(answers) != certificate.predictions).any(dim=0).sum())


def edges(model: nn.Module, images: Tensor, radii: Tensor) -> Iterator[Tensor]:
    """Batches of float32 points just inside the balls: towards every other class by its gradient, and at random."""
    length = radii.double().reshape(-1, 1, 1, 1)
    x = images.clone().requires_grad_()
    scores = model(x)
    best = scores.detach().argmax(1)
    for rival in range(10):
        gap = scores[:, rival] - scores.gather(1, best[:, None])[:, 0]
        [direction] = torch.autograd.grad(gap.sum(), x, retain_graph=True)
        yield _moved(images, direction, length)
    for _ in range(_ATTACKS - 10):
        yield _moved(images, torch.randn_like(images), length)


def _moved(images: Tensor, direction: Tensor, length: Tensor) -> Tensor:
    """The float32 points a tiny bit inside: rounding to float32 moves a point by less than that."""
    direction = direction.double()
    norm = direction.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
    step = torch.where(norm > 0, direction / norm, 0) * (length * (1 - 1e-6) - 1e-5).clamp_min(0)
    return (images.double() + step).float()
