"""`onelip train`: train one network under a time budget, or continue where it was stopped."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.bench.data import load
from onelip.bench.runs import RunRecord, RunSpec, RunStatus, run_name
from onelip.bench.runs.durations import parse_duration
from onelip.bench.terminal import Terminal, plain_table, say, visible
from onelip.bench.training import TrainOptions, train
from onelip.bench.training.distributed import is_first_process
from onelip.bench.training.evaluation import evaluate_run
from onelip.bench.training.loop import KIND, MODEL_FILE
from onelip.factories import find_factory, search_working_folder
from onelip.protocol import RADIUS_NUMERATORS


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """Train for a time budget or a number of epochs, then certify on the test set.

    Example: onelip train --method soc --size XS --budget 5m --seed 0

    The same command continues a stopped run and shows a finished one.

    Your own model: onelip train --model my_module:make_net --dataset my_images/ --budget 5m

    Several GPUs: torchrun --nproc-per-node 4 --no-python onelip train ...
    """

    spec: RunSpec
    runs_dir: Path = Path("runs")
    """Folder with one sub-folder per run."""
    device: str | None = None
    """cpu, cuda, cuda:1, ...; by default a GPU where there is one."""
    checkpoint_every: str = "1m"
    """Time between checkpoints; a kill costs at most that much work."""
    skip_test: bool = False
    """Do not evaluate on the test set; `onelip evaluate` does it later."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print the run's record as JSON instead of a table."""

    def run(self) -> int:
        """Train; 1 if the run ended in any way but finished."""
        search_working_folder()
        if self.spec.network.is_factory:
            find_factory(self.spec.network.model)  # one that cannot be imported is refused before there is a folder
        if not (self.runs_dir / run_name(KIND, self.spec)).exists():
            load(self.spec.network.dataset)  # and so are data that are not here
        seconds = parse_duration(self.checkpoint_every)
        options = TrainOptions(device=self.device, checkpoint_seconds=seconds, progress=not self.quiet)
        record = train(self.spec, self.runs_dir, options)
        if not is_first_process():
            return 0
        folder = self.runs_dir / record.name
        if record.status is RunStatus.FINISHED and not self.skip_test and "test_accuracy" not in record.metrics:
            shown, allow = (False if self.quiet else None), (self.spec.network.model,)
            record = evaluate_run(folder, device=self.device, progress=shown, allow=allow)
        if self.json:
            print(record.to_json(), end="")
            return 0 if record.status is RunStatus.FINISHED else 1
        print_result(record, folder)
        if record.status is RunStatus.FINISHED:
            model = shlex.quote(str(folder / MODEL_FILE))
            runs = shlex.quote(str(self.runs_dir))
            own = f" --model {record.network.model}" if record.network.is_factory else ""
            say_next(f"onelip check {model}{own}", f"onelip attack {model}{own}", f"onelip report {runs}")
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


def say_next(*commands: str) -> None:
    """The commands that people type next, for copying: never broken."""
    print("next:  " + "\n       ".join(commands))


def _figure(value: Any, form: str) -> str:
    """A metric as it is printed; records come from anywhere, so that it may be no number at all."""
    try:
        return "-" if value is None else format(float(value), form)
    except (TypeError, ValueError, OverflowError):
        return visible(value, 20)


COMMAND = TrainCommand
