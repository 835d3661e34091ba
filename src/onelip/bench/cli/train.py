"""Train a network, then certify it on the test set.

```
onelip train --method soc --size XS --budget 5m
onelip train --method aol --dataset my_images/ --epochs 20 --seed 1
onelip train --model my_module:make_net --budget 5m
torchrun --nproc-per-node 4 --no-python onelip train ...
```

The same command continues a stopped run and shows a finished one. The third line trains a model of your own, the fourth
one network on several GPUs.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from onelip.bench.cli.options import (
    DATASET,
    METHODS,
    ODD,
    SWITCH,
    Checkpoints,
    Output,
    RunsFolder,
    dataset_name,
    is_path,
)
from onelip.bench.records import NetworkSpec, RunOptions, RunRecord, RunSpec, RunStatus, run_name
from onelip.bench.records.durations import parse_duration
from onelip.bench.records.machine import threads_without_cores, usable_device
from onelip.bench.terminal import Terminal, plain_table, say, visible
from onelip.factories import search_working_folder
from onelip.protocol import RADIUS_NUMERATORS


@Parameter(name="*", group=Group("Network", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class NetworkOptions(NetworkSpec):
    """The options of a network."""

    method: Annotated[str, METHODS] = ""
    dataset: Annotated[str, DATASET] = "cifar10"
    kernel_size: Annotated[int, ODD] = 3

    def __post_init__(self) -> None:
        """`TrainingOptions.spec` checks them."""


@Parameter(name="*", group=Group("Training", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class TrainingOptions(RunOptions):
    """The options of a training."""

    network: NetworkOptions = NetworkOptions()
    cycle_momentum: Annotated[bool, SWITCH] = True

    def spec(self, device: str | None) -> RunSpec:
        """What they mean, for a run on this device; images of one's own are read when all else has been found good."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(RunOptions)}
        network, own = NetworkSpec(**vars(self.network)), is_path(self.network.dataset)
        from onelip.bench.training.resolve import resolve  # and with it torch, which help and refusals do without
        from onelip.bench.training.trainer import check_run

        given["network"] = replace(network, dataset="cifar10") if own else network
        spec = resolve(RunOptions(**given))
        search_working_folder()
        check_run(spec, device)
        if own:
            given["network"] = replace(network, dataset=dataset_name(network.dataset))
        return resolve(RunOptions(**given))


# cyclopts looks up types that are texts in the module of the class, which lacks those of the base class.
TrainingOptions.__init__.__annotations__.update(get_type_hints(TrainingOptions, include_extras=True))


@dataclass(frozen=True, kw_only=True)
class Command(Output, Checkpoints, RunsFolder):
    options: TrainingOptions = field(default_factory=TrainingOptions)
    skip_test: bool = False
    """Do not evaluate on the test set; `onelip evaluate` does it later."""

    def run(self) -> int:
        """Train; 1 if the run ended in any way but finished."""
        spec = self.options.spec(self.device)
        # Here and not above, so that help and refusals do not wait for torch.
        from onelip.bench.data import load
        from onelip.bench.training import TrainOptions, train
        from onelip.bench.training.distributed import is_first_process
        from onelip.bench.training.evaluation import evaluate_run
        from onelip.bench.training.loop import KIND, MODEL_FILE

        seconds = parse_duration(self.checkpoint_every)
        if not (self.runs_dir / run_name(KIND, spec)).exists():
            load(spec.network.dataset)  # data that are not here are refused before there is a folder
        if not self.quiet and usable_device(self.device) == "cpu" and (crowded := threads_without_cores()):
            say(crowded)
        options = TrainOptions(device=self.device, checkpoint_seconds=seconds, progress=not self.quiet)
        record = train(spec, self.runs_dir, options)
        if not is_first_process():
            return 0
        folder = self.runs_dir / record.name
        if record.status is RunStatus.FINISHED and not self.skip_test and "test_accuracy" not in record.metrics:
            shown, allow = (False if self.quiet else None), (spec.network.model,)
            record = evaluate_run(folder, device=self.device, progress=shown, allow=allow)
        if self.json:
            print(record.to_json(), end="")
            return 0 if record.status is RunStatus.FINISHED else 1
        print_result(record, folder)
        if record.status is RunStatus.FINISHED:
            model = shlex.quote(str(folder / MODEL_FILE))
            runs = shlex.quote(str(self.runs_dir))
            own = f" --model {record.network.model}" if record.network.is_factory else ""
            print(f"next:  onelip check {model}{own}\n       onelip attack {model}{own}\n       onelip report {runs}")
        return 0 if record.status is RunStatus.FINISHED else 1


def print_result(record: RunRecord, folder: Path) -> None:
    """Status, folder and the metrics as a small table: one row per split."""
    console = Terminal(soft_wrap=True)
    console.print(f"{folder}: {record.status.value}" + (f": {record.reason}" if record.reason else ""))
    if record.reason:
        say(f"the run is {record.status.value}: {record.reason}")
    metrics = record.metrics
    if "steps" in metrics:
        epochs, seconds = _figure(metrics.get("epochs"), ".2f"), _figure(metrics.get("train_seconds"), ".1f")
        console.print(f"{metrics['steps']} steps, {epochs} epochs, {seconds} s of training")
    table = plain_table(("%",), ("accuracy", *(f"{radius}/255" for radius in RADIUS_NUMERATORS)))
    titles = {"validation": "validation, estimate", "proven_validation": "validation, proven", "test": "test, proven"}
    for prefix, title in titles.items():
        names = ["accuracy", *(f"certified_accuracy_{radius}" for radius in RADIUS_NUMERATORS)]
        values = [metrics.get(f"{prefix}_{name}") for name in names]
        if values[0] is not None:
            table.add_row(title, *(_figure(value, ".2%").removesuffix("%") for value in values))
    if table.row_count:
        Terminal().print(table)
    if "test_lipschitz_bound" in metrics:
        bound = _figure(metrics["test_lipschitz_bound"], ".9g")
        console.print(f"proven bound of the Lipschitz constant: {bound}")


def _figure(value: Any, form: str) -> str:
    """A metric as it is printed; records come from anywhere, so that it may be no number at all."""
    try:
        return "-" if value is None else format(float(value), form)
    except (TypeError, ValueError, OverflowError):
        return visible(value, 20)
