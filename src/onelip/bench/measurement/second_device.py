"""What a device computes: every layer beside the CPU, and networks beside plain convolutions.

Any device of torch will do: CUDA, MPS, XLA, and the CPU itself, by which this file is tested. XLA says which operations
it left to the host and how often it sent numbers there; elsewhere the operations that ask for numbers are counted.

`onelip doctor --report` writes it as JSON, for those who were not there, and as Markdown in the form of docs/gpu.md.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from onelip.bench.measurement.memory import measure_memory
from onelip.bench.measurement.networks import build_network, random_batch, reference_of
from onelip.bench.measurement.networks import training_step as network_step
from onelip.bench.measurement.throughput import Clock, Rounds, compare, default_rounds
from onelip.bench.records import NetworkSpec
from onelip.bench.records.machine import machine_facts
from onelip.errors import InvalidInputError, one_line
from onelip.layers import MethodInfo
from onelip.linalg.devices import pretend_device

Kind = Literal["convolution", "linear"]

FORMAT = "onelip device report 1"
ROUNDS = Rounds(warm_up=1, least=3, most=9, seconds=5.0)
"""Of what is not CUDA: a report should not take an hour."""

_CHANNELS, _SIDE, _BATCH, _FEATURES = 8, 8, 4, 12
_MOVED = 0.1
_ASKING = (
    *("_local_scalar_dense", "equal.", "is_nonzero", "item.", "allclose", "nonzero", "masked_select"),
    *("_unique2", "unique_dim", "unique_consecutive", "repeat_interleave.Tensor", "bincount"),
)


class HostReads(TorchDispatchMode):
    """Counts the operations for whose results, or for the shape of whose results, the host waits for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, and count it if the host has to wait."""
        result, name = func(*args, **(kwargs or {})), str(func).removeprefix("aten.")
        if name.startswith(_ASKING) or _selects(name, args) or _comes_to_the_host(args, result):
            self.counts[name] += 1
        return result


def _selects(name: str, args: Any) -> bool:
    """Indices by a mask: how many elements they choose is a number of the device."""
    if not name.startswith(("index.", "index_put")):
        return False
    return any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])


def _comes_to_the_host(args: Any, result: Any) -> bool:
    """Copies from a device to the CPU."""
    given = {tensor.device.type for tensor in tree_leaves(args) if isinstance(tensor, Tensor)}
    return given - {"cpu"} != set() and isinstance(result, Tensor) and result.device.type == "cpu"


@dataclass(frozen=True)
class HostWork:
    """What a block of code asked the host for: operations of XLA left to it, and transfers of numbers to it."""

    fallbacks: Mapping[str, int]
    transfers: Mapping[str, int]


@contextmanager
def host_work(device: torch.device) -> Iterator[list[HostWork]]:
    """Count inside the block; the list has the one result when the block has ended."""
    found: list[HostWork] = []
    if device.type != "xla":
        with HostReads() as reads:
            yield found
        found.append(HostWork({}, dict(reads.counts)))
        return
    metrics = importlib.import_module("torch_xla.debug.metrics")  # XLA has no views inside dispatch modes
    synchronise(device)
    metrics.clear_all()
    yield found
    synchronise(device)
    names = [name for name in metrics.counter_names() if name.startswith("aten::")]
    fallbacks = {name.removeprefix("aten::"): int(metrics.counter_value(name)) for name in names}
    sent = metrics.metric_data("TransferFromDeviceTime")
    found.append(HostWork(fallbacks, {"TransferFromDevice": int(sent[0])} if sent and sent[0] else {}))


def synchronise(device: torch.device) -> None:
    """Wait until a device has done all that it was asked to do."""
    if device.type == "xla":
        importlib.import_module("torch_xla").sync(wait=True)
    elif device.type in ("cuda", "mps", "xpu"):
        torch.get_device_module(device).synchronize()


def second_device(name: str | None = None) -> torch.device | None:
    """The device of this name, or the accelerator that torch finds: CUDA, MPS, or XLA where torch_xla is installed."""
    if name == "xla" or (name is None and importlib.util.find_spec("torch_xla") is not None):
        if importlib.util.find_spec("torch_xla") is None:
            raise InvalidInputError("the device xla needs the package torch_xla")
        return importlib.import_module("torch_xla").device()
    if name is not None:
        try:
            return torch.ones(1, device=name).device
        except (RuntimeError, AssertionError) as error:  # the latter where torch is built without it
            raise InvalidInputError(f"no device {name!r} here: {one_line(error)}") from error
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def forms_of(device: torch.device) -> AbstractContextManager[None]:
    """The forms that layers take on the device; a CPU stands for an accelerator here."""
    return pretend_device("accelerator") if device.type == "cpu" else nullcontext()


@dataclass(frozen=True)
class DeviceRow:
    """One layer on the CPU and on a device: differences relative to the largest magnitude, in float32.

    `gradients` is the largest difference among input and parameters. Fallbacks and transfers are those of a training
    step that is not the first.
    """

    method: str
    kind: Kind
    forward: float
    gradients: float
    evaluation: float
    fallbacks: Mapping[str, int]
    transfers: Mapping[str, int]


def make_layer(method: MethodInfo, kind: Kind) -> tuple[nn.Module, Tensor]:
    """A small layer with weights away from its start, and a batch for it, both on the CPU."""
    torch.manual_seed(0)
    if kind == "linear":
        layer, x = method.linear_layer(_FEATURES, _FEATURES), torch.randn(_BATCH, _FEATURES)
    else:
        layer, x = method.conv(_CHANNELS, _CHANNELS, 3), torch.randn(_BATCH, _CHANNELS, _SIDE, _SIDE)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(_MOVED * torch.randn_like(parameter))
    return layer, x


def compare_layer(method: MethodInfo, kind: Kind, device: torch.device) -> DeviceRow:
    """The same layer on both devices."""
    layer, x = make_layer(method, kind)
    other, given = copy.deepcopy(layer).to(device), x.to(device)
    here = trained(layer, x)
    with torch.no_grad():
        expected = layer.eval()(x)
    with forms_of(device):
        there, step = trained(other, given), training_step(other)
        with torch.no_grad():
            evaluated = difference(other.eval()(given), expected)
        other.train()
        step(given)
        with host_work(device) as work:
            step(given)
    return DeviceRow(
        method=method.key,
        kind=kind,
        forward=difference(there.pop("output"), here.pop("output")),
        gradients=max(difference(there[name], here[name]) for name in here),
        evaluation=evaluated,
        fallbacks=work[0].fallbacks,
        transfers=work[0].transfers,
    )


def trained(layer: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Output and gradients of input and parameters in training mode, for a weighted sum of the outputs."""
    x = x.detach().requires_grad_()
    y = layer.train()(x)
    weights = torch.linspace(-1, 1, y.numel()).to(y).view_as(y)
    names, values = zip(*[(n, p) for n, p in layer.named_parameters() if p.requires_grad], strict=True)
    gradients = torch.autograd.grad((y * weights).sum(), [x, *values])
    return {"output": y.detach(), **dict(zip(("input", *names), gradients, strict=True))}


def difference(actual: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest magnitude."""
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp_min(torch.finfo(torch.float32).tiny))


def training_step(model: nn.Module) -> Any:
    """Forward pass, backward pass and update, as a function of the batch."""
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step(x: Tensor) -> None:
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()

    return step


@dataclass(frozen=True)
class NetworkRow:
    """ConvNet XS with the layers of a method: time and peak memory relative to plain convolutions."""

    method: str
    training: float
    inference: float
    training_memory: float
    inference_memory: float


def network_row(method: MethodInfo, device: torch.device, batch: int) -> NetworkRow:
    """Steps of both networks in turns, then cached inference, then their memory."""
    spec = NetworkSpec(method=method.key, size="XS")
    x, labels = random_batch(spec, batch, device)
    ours, plain = build_network(spec, device), build_network(reference_of(spec), device)
    rounds = default_rounds(device) if device.type == "cuda" else ROUNDS
    clock = Clock(synchronise=lambda: synchronise(device))
    measure = functools.partial(compare, clock=clock, rounds=rounds)
    with forms_of(device):
        training = measure(network_step(ours, x, labels), network_step(plain, x, labels)).ratio.median
        with torch.no_grad():
            own, other = functools.partial(ours.eval(), x), functools.partial(plain.eval(), x)
            inference = measure(own, other).ratio.median
        use, reference = (measure_memory(copy.deepcopy(net).train(), x, labels) for net in (ours, plain))
    memory = use.training / reference.training, use.inference / reference.inference
    return NetworkRow(method.key, training, inference, *memory)


def failed_tests(path: Path) -> dict[str, Any]:
    """Counts and failures in the file of `pytest --junitxml`."""
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        raise InvalidInputError(f"{path} is no result of pytest --junitxml: {one_line(error)}") from error
    failures = [
        {"test": case.get("name", ""), "message": " ".join(end.get("message", "").split())}
        for tag in ("failure", "error")
        for case in cases
        if (end := case.find(tag)) is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"run": len(cases) - skipped, "skipped": skipped, "failures": failures}


def device_report(
    device: torch.device, findings: list[Any], tests: dict[str, Any] | None, methods: list[MethodInfo], batch: int
) -> dict[str, Any]:
    """All of it, as a tree that JSON can hold. XLA's networks are not timed: it computes when it is asked to."""
    rows = [compare_layer(method, kind, device) for method in methods for kind in ("convolution", "linear")]
    timed = [] if device.type == "xla" else [network_row(method, device, batch) for method in methods]
    return {
        "format": FORMAT,
        "device": str(device),
        "machine": machine_facts(),
        "findings": [asdict(finding) for finding in findings],
        "tests": tests,
        "layers": [asdict(row) for row in rows],
        "batch": batch,
        "networks": [asdict(row) for row in timed],
    }


def page(report: dict[str, Any]) -> str:
    """The report in Markdown."""
    machine, tests = report["machine"], report["tests"]
    cards = ", ".join(card["name"] for card in machine["gpus"]) or machine["cpu"]
    text = [f"## {report['device']}: {cards}", f"torch {machine['versions']['torch']}, {machine['os']}."]
    if tests is not None:
        text.append(f"Tests: {tests['run']} run, {tests['skipped']} skipped, {len(tests['failures'])} failed.")
        text.extend(f"* {failure['test']}: {failure['message']}" for failure in tests["failures"])
    text.append("One layer of each kind, float32, beside the CPU: largest differences relative to the largest number.")
    text.append(table([DeviceRow(**row) for row in report["layers"]]))
    if report["networks"]:
        text.append(f"ConvNet XS, batches of {report['batch']}, relative to plain convolutions:")
        head = ("method", "training step", "inference", "memory of training", "of inference")
        rows = [(name, *(f"{value:.2f}" for value in ratios)) for name, *ratios in map(dict.values, report["networks"])]
        text.append(_markdown(head, 1, rows))
    return "\n\n".join(text) + "\n"


def table(rows: list[DeviceRow]) -> str:
    """The rows of layers in Markdown."""
    head = ("method", "layer", "forward", "gradients", "evaluation", "fallbacks", "transfers per step")
    cells = [
        (
            *(row.method, row.kind),
            *(f"{error:.0e}" for error in (row.forward, row.gradients, row.evaluation)),
            *(", ".join(f"{name} {count}" for name, count in c.items()) or "0" for c in (row.fallbacks, row.transfers)),
        )
        for row in rows
    ]
    return _markdown(head, 2, cells)


def _markdown(head: Sequence[str], words: int, rows: Iterable[Sequence[str]]) -> str:
    """A table whose first columns are words and whose others are numbers."""
    line = "|" + "---|" * words + "---:|" * (len(head) - words)
    return "\n".join([f"| {' | '.join(head)} |", line, *(f"| {' | '.join(row)} |" for row in rows)])
