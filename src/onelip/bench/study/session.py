"""One call of `onelip compare`: which jobs, who does them, and how they stand afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onelip.bench.data import load
from onelip.bench.study.jobs import Circumstances, Job, JobState, JobStatus, state_of
from onelip.bench.study.loop import Worker
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.plan import plan, shard, union
from onelip.bench.study.plan_file import add_to_study
from onelip.bench.study.progress import Progress
from onelip.bench.study.view import StudyView
from onelip.bench.study.workers import Workers


@dataclass(frozen=True)
class StudySession:
    """A study in a folder and how to work on it here."""

    options: Sequence[StudyOptions]
    study: Path
    device: str = "cpu"
    workers: int = 1
    part: tuple[int, int] = (1, 1)
    checkpoint_seconds: float = 30.0

    def all_jobs(self) -> tuple[Job, ...]:
        """Of the whole study."""
        return union(plan(one, self.device) for one in self.options)

    def jobs(self) -> tuple[Job, ...]:
        """Of the part that this call works on."""
        return shard(self.all_jobs(), *self.part)

    def states(self, jobs: Sequence[Job]) -> dict[str, JobState]:
        """From the records."""
        return {job.name: state_of(job, self.study) for job in jobs}

    def run(self) -> dict[str, JobState]:
        """Do all jobs that are not done; the states of all of them by name, those that did not run included."""
        for name in dict.fromkeys(name for one in self.options for name in one.datasets):
            load(name)  # a data set that is missing is told now, not by the first training hours later
        jobs = self.jobs()
        add_to_study(self.study, self.options, self.all_jobs())
        progress = Progress(jobs, self.study, self.workers)
        known = self.states(jobs)
        ended = (JobStatus.DONE, JobStatus.FAILED)
        progress.know({name: one for name, one in known.items() if one.status in ended and one.is_final})
        with StudyView(progress, self._title(jobs)) as view:
            how = Circumstances(self.device, self.checkpoint_seconds, view.say)
            return self._work(jobs, how, view)

    def _work(self, jobs: Sequence[Job], how: Circumstances, view: StudyView) -> dict[str, JobState]:
        if self.workers == 1:
            return Worker(jobs, self.study, how, view).work()
        outcomes: dict[str, JobState] = {}
        if self.device == "cpu":  # times mean nothing while others compute on the same cores
            outcomes |= Worker([job for job in jobs if job.kind == "measure"], self.study, how, view).work()
        rest = [job for job in jobs if job.name not in outcomes]
        killed = Workers(self.options, rest, self.study, how, self.workers, view).work()
        # Failures of jobs whose needs failed are nobody's event: a worker without anything to do finds them.
        final = Worker([], self.study, how, view)
        final.outcomes |= outcomes | view.progress.states | killed
        return {job.name: final.state(job) for job in jobs}

    def _title(self, jobs: Sequence[Job]) -> str:
        methods = {job.network.method for job in jobs if job.kind == "train"}
        datasets = dict.fromkeys(job.network.dataset for job in jobs)
        part = "" if self.part[1] == 1 else f", part {self.part[0]} of {self.part[1]}"
        count = f"{len(methods)} method{'s' if len(methods) != 1 else ''}"
        return f"comparing {count} on {', '.join(datasets)} in {self.study}: {len(jobs)} jobs{part}"
