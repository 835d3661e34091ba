"""Certify a trained network and put the results into its record.

```
onelip evaluate soc-XS
onelip evaluate soc-XS --split validation
```

`onelip train` does so by itself, unless it is told --skip-test. `onelip runs list` prints the names of runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from onelip.bench.cli.options import Device, Output, RunsFolder
from onelip.bench.cli.train import print_result
from onelip.bench.records import dump_json, find_run
from onelip.bench.records.machine import usable_device
from onelip.bench.training.evaluation import evaluate_run
from onelip.factories import search_working_folder


@dataclass(frozen=True, kw_only=True)
class Command(Output, Device, RunsFolder):
    name: str = field(kw_only=False)
    """Name of the run, or as much of its beginning as makes it unique."""
    split: Literal["test", "validation"] = "test"
    """Images to evaluate on."""
    model: str | None = None
    """module:function that built the network, if it is one of your own: evaluating imports it, which runs its code."""

    def run(self) -> int:
        usable_device(self.device)
        search_working_folder()
        folder = find_run(self.runs_dir, self.name)
        allow = () if self.model is None else (self.model,)
        shown = False if self.quiet else None
        record = evaluate_run(folder, self.split, device=self.device, progress=shown, allow=allow)
        if self.json:
            print(dump_json(record.metrics))
        else:
            print_result(record, folder)
        return 0
