"""The command `onelip` with the data set "tiny", whose trainings can be caught in the middle, always.

With ONELIP_TEST_STALLS=folder, the first two trainings that have written a checkpoint stop themselves (SIGSTOP) and
say so in the files `1` and `2` of that folder: process and run. `continued` lists the runs that began from a
checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tiny_data

from onelip.bench.records import Checkpoint, Run, load_checkpoint
from onelip.bench.training import loop

VARIABLE = "ONELIP_TEST_STALLS"


def install() -> None:
    tiny_data.install(setattr)
    stalls = os.environ.get(VARIABLE)
    if stalls is None:
        return
    folder, save = Path(stalls), Run.save_checkpoint

    def stalling_save(self: Run, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        save(self, tensors, meta)
        for number in ("1", "2"):
            try:
                with (folder / number).open("x") as file:
                    file.write(f"{os.getpid()} {self.folder.name}\n")
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGSTOP)
            return

    def telling_load(run: Path) -> Checkpoint | None:
        found = load_checkpoint(run)
        if found is not None:
            with (folder / "continued").open("a") as file:
                file.write(f"{run.name}\n")
        return found

    Run.save_checkpoint = stalling_save
    loop.load_checkpoint = telling_load


if __name__ in ("__main__", "__mp_main__"):  # the second in processes of a training on several devices
    install()

if __name__ == "__main__":
    # Drivers write no report here: matplotlib would take longer to load than the study takes to run.
    sys.modules["onelip.bench.cli.report"] = types.ModuleType("report")
    sys.modules["onelip.bench.cli.report"].__dict__["write_study_report"] = None

    from onelip.bench.cli import main
    from onelip.bench.engines import engine_base, slurm_engine

    engine_base.PROGRAM = (sys.executable, __file__)
    slurm_engine._SECONDS_PER_QUEUE_LOOK = 1.0
    main()
