"""`onelip search`: find learning rate and weight decay of a run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import optuna
from optuna.trial import FrozenTrial

from onelip.bench.data import load
from onelip.bench.runs import RunSpec, dump_json
from onelip.bench.runs.devices import usable_device
from onelip.bench.runs.durations import parse_duration
from onelip.bench.search.searcher import SearchConfig, best_trial, search
from onelip.bench.terminal import Terminal, plain_table
from onelip.bench.training import TrainOptions
from onelip.factories import find_factory, search_working_folder


@dataclass(frozen=True, kw_only=True)
class SearchCommand:
    """Search learning rate and weight decay by validation certified accuracy.

    Example: onelip search --method soc --size XS --dataset cifar10 --budget 5m

    The default is the paper's: 16 random points, log-uniform, best at 36/255.

    Learning rates are in [1e-4, 1e-1], weight decays in [10^-5.5, 10^-3.5].

    The same command continues a stopped study; started twice, it has 2 workers.
    """

    spec: RunSpec
    trials: int = 16
    """Number of points."""
    sampler: Literal["random", "tpe"] = "random"
    """random: as in the paper; tpe: points near those that did well."""
    pruner: Literal["none", "halving"] = "none"
    """halving: successive halving, gives up the worse two thirds of the runs after 11 % and 33 % of the budget."""
    search_seed: int = 0
    """Chooses the points; --seed is that of the training runs."""
    studies_dir: Path = Path("studies")
    """Folder with one sub-folder per study."""
    device: str | None = None
    """cpu, cuda, ...; by default a GPU where there is one."""
    checkpoint_every: str = "1m"
    """Time between checkpoints of a run."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print the trials as JSON instead of a table."""

    def run(self) -> int:
        """Search; 1 if no trial was successful."""
        search_working_folder()
        if self.spec.network.is_factory:
            find_factory(self.spec.network.model)  # one that cannot be imported is refused before there is a folder
        config = SearchConfig(
            base=self.spec,
            trials=self.trials,
            sampler=self.sampler,
            pruner=self.pruner,
            search_seed=self.search_seed,
        )
        seconds = parse_duration(self.checkpoint_every)
        usable_device(self.device)  # what cannot be used, or is not here, is refused before there is a folder
        if not (self.studies_dir / config.name).exists():
            load(self.spec.network.dataset)
        options = TrainOptions(device=self.device, checkpoint_seconds=seconds, progress=not self.quiet)
        study = search(config, self.studies_dir, options, on_trial=lambda trial: None if self.quiet else _say(trial))
        best = best_trial(study)
        if self.json:
            _print_json(study, best)
        else:
            _print_table(study, best, self.studies_dir / config.name)
        return 0 if best is not None else 1


def _say(trial: FrozenTrial) -> None:
    value = "" if trial.value is None else f", certified accuracy {100 * trial.value:.2f} %"
    print(f"trial {trial.number}: {trial.state.name.lower()}{value}", file=sys.stderr)


def _print_json(study: optuna.Study, best: FrozenTrial | None) -> None:
    trials = [
        {"number": t.number, "state": t.state.name.lower(), "value": t.value, **t.params, **t.user_attrs}
        for t in study.get_trials(deepcopy=False)
    ]
    print(dump_json({"best": None if best is None else best.number, "trials": trials}))


def _print_table(study: optuna.Study, best: FrozenTrial | None, folder: Path) -> None:
    table = plain_table((), ("trial", "learning rate", "weight decay", "certified %"))
    table.add_column("state", overflow="fold")
    for trial in study.get_trials(deepcopy=False):
        lr, decay = (trial.params.get(name) for name in ("lr", "weight_decay"))
        numbers = ["-" if value is None else f"{value:.2e}" for value in (lr, decay)]
        value = "-" if trial.value is None else f"{100 * trial.value:.2f}"
        state = trial.state.name.lower() + (f": {trial.user_attrs['reason']}" if "reason" in trial.user_attrs else "")
        is_best = best is not None and trial.number == best.number
        table.add_row(str(trial.number), *numbers, value, state, style="bold" if is_best else "")
    console = Terminal()
    console.print(table)
    console.print(f"study: {folder}", soft_wrap=True)
    if best is not None:
        chosen = f"--lr {best.params['lr']:.6g} --weight-decay {best.params['weight_decay']:.6g}"
        console.print(f"best: trial {best.number}, {chosen}", soft_wrap=True)
    else:
        console.print("no trial was successful")


COMMAND = SearchCommand
