"""List the jobs of a study and how they stand.

```
onelip jobs study --state failed
```

It starts nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from onelip.bench.cli.options import Json
from onelip.bench.records import dump_json
from onelip.bench.study.attempts import read_attempts
from onelip.bench.study.job_base import state_of
from onelip.bench.study.live_view import state_table
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import stored_options
from onelip.bench.terminal import Terminal
from onelip.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class Command(Json):
    study: Path = field(default=Path("study"), kw_only=False)
    """Folder of the study."""
    state: tuple[Literal["pending", "running", "done", "failed"], ...] = ()
    """Only jobs in these states."""

    def run(self) -> int:
        options = stored_options(self.study)
        if not options:
            raise InvalidInputError(f"{self.study}: is not the folder of a study; `onelip compare` makes one")
        jobs = plan(*options)
        states = {job.name: state_of(job, self.study) for job in jobs}
        chosen = [job for job in jobs if not self.state or states[job.name].status.value in self.state]
        if self.json:
            rows = [
                {
                    "name": job.name,
                    "label": job.label,
                    **asdict(states[job.name]),
                    "attempts": [asdict(one) for one in read_attempts(job, self.study)],
                }
                for job in chosen
            ]
            print(dump_json(rows))
        else:
            console = Terminal()
            console.print(state_table(chosen, states, self.study))
            for job in chosen:
                if states[job.name].reason:
                    console.print(f"{job.label}: {states[job.name].reason}", soft_wrap=True)
        return 0
