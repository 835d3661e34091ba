"""The planner: which jobs a study has, in which order, under which names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tiny_data

from onelip.bench.study.jobs import Job, JobState, JobStatus
from onelip.bench.study.options import MAIN_METHODS, StudyOptions, options_from_plain, preset
from onelip.bench.study.plan import plan, shard, union
from onelip.bench.study.progress import Progress, short_duration
from onelip.bench.study.searching import SearchJob
from onelip.bench.study.training import TrainJob
from onelip.errors import InvalidInputError

_nowhere = Path("/nonexistent")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def _options(**changes: Any) -> StudyOptions:
    small: dict[str, Any] = {"methods": ("aol", "standard"), "sizes": (), "width": 4, "datasets": ("tiny",)}
    return StudyOptions(**{**small, "epochs": 2, "batch_size": 32, "measure": "none", **changes})


def _kinds(jobs: tuple[Job, ...]) -> Counter[str]:
    return Counter(job.facts.get("quantity") or job.kind for job in jobs)


def test_quick_trains_all_main_methods_once() -> None:
    jobs = plan(preset("quick"))
    assert _kinds(jobs) == {"memory": 9, "macs": 9, "time": 8, "train": 8}
    trained = [job for job in jobs if isinstance(job, TrainJob)]
    assert tuple(job.network.method for job in trained) == MAIN_METHODS
    assert all(job.config.recipe == "short" and job.search is None for job in trained)
    assert {job.network.method: job.config.lr for job in trained} == dict.fromkeys(MAIN_METHODS, 0.002) | {
        "standard": 5e-4
    }
    # The promise is ten minutes on two cores: the estimate leaves two for the report and a slow machine.
    assert sum(job.estimated_seconds(_nowhere) or 1e9 for job in jobs) < 8 * 60


def test_the_protocol_of_the_paper() -> None:
    jobs = plan(preset("paper"))
    per_kernel = {3: 3 * 4 * 8, 1: 1 * 4 * 8}  # 1 x 1 kernels on CIFAR-10 only
    assert _kinds(jobs)["train"] == 3 * sum(per_kernel.values())
    assert _kinds(jobs)["search"] == sum(per_kernel.values()) * 7 // 8  # nothing to search for in the plain network
    assert _kinds(jobs)["time"] == per_kernel[3]
    assert {job.config.trials for job in jobs if isinstance(job, SearchJob)} == {16}
    assert {job.config.base.budget for job in jobs if isinstance(job, SearchJob)} == {"2h"}
    trained = [job for job in jobs if isinstance(job, TrainJob)]
    assert {job.config.budget for job in trained} == {"2h", "10h", "24h"}
    assert {job.network.dataset for job in trained if job.network.kernel_size == 1} == {"cifar10"}
    assert all(job.config.batch_size == 256 for job in trained)
    long = next(job for job in trained if job.config.budget == "24h" and job.network.method == "soc")
    assert long.search is not None
    assert (long.estimated_seconds(_nowhere) or 0) > 24 * 3600
    short = next(job for job in trained if job.config.budget == "2h" and job.network.method == "soc")
    assert (short.estimated_seconds(_nowhere) or 1e9) < 300  # the best trial of its search is this training
    assert long.search.network.method == "soc"


def test_a_plan_is_a_function_of_its_options() -> None:
    names = [job.name for job in plan(preset("cpu"))]
    assert names == [job.name for job in plan(preset("cpu"))]
    assert len(set(names)) == len(names)
    other = {job.name for job in plan(preset("cpu").changed(search_runs=5)) if job.kind != "measure"}
    default_rates = {job.name for job in plan(preset("cpu")) if job.kind == "train" and not job.needs}
    assert other & set(names) == default_rates  # only what does not depend on the search keeps its name


def test_needed_jobs_come_before_those_that_need_them() -> None:
    for name in ("quick", "cpu", "paper"):
        jobs = plan(preset(name))
        position = {job.name: index for index, job in enumerate(jobs)}
        assert all(position[need.name] < position[job.name] for job in jobs for need in job.needs)


def test_seeds_are_the_outermost_loop() -> None:
    jobs = plan(_options(seeds=2, methods=("aol", "soc")))
    assert [(job.facts["seed"], job.network.method) for job in jobs] == [
        (0, "aol"),
        (0, "soc"),
        (1, "aol"),
        (1, "soc"),
    ]


def test_union_has_every_job_once() -> None:
    first, more = plan(_options(search_runs=2)), plan(_options(search_runs=2, seeds=2))
    assert [job.name for job in union([first, more])] == [job.name for job in more]
    assert len(union([first, plan(_options(methods=("soc",)))])) == len(first) + 1


def test_shards_divide_the_work_and_keep_networks_together() -> None:
    jobs = plan(preset("paper"))
    parts = [shard(jobs, index, 5) for index in range(1, 6)]
    own = [{job.name for job in part if job.network.method != "reference"} for part in parts]
    everything = {job.name for job in jobs if job.network.method != "reference"}
    assert set.union(*own) == everything
    assert sum(len(names) for names in own) == len(everything)
    for part in parts:
        names = {job.name for job in part}
        assert all(need.name in names for job in part for need in job.needs)
    assert shard(jobs, 1, 1) == jobs


def test_options_replace_what_they_exclude() -> None:
    cpu = preset("cpu")
    assert cpu.changed(width=8).sizes == ()
    assert cpu.changed(epochs=3).budgets == ()
    assert cpu.trial_budget == "5m"
    assert cpu.changed(budgets=("90s", "60s", "1m")).budgets == ("1m30s", "1m")
    assert cpu.changed(budgets=("90s", "60s")).trial_budget == "1m"
    assert cpu.changed(methods=(), seeds=None) == cpu


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ()}, "at least one of its methods"),
        ({"sizes": ("XS",)}, "either sizes"),
        ({"budgets": ("1m",)}, "either budgets"),
        ({"search_budget": "1m"}, "leave the search budget out"),
        ({"seeds": 0}, "seeds and batch size 1 or more"),
        ({"epochs": None, "budgets": ("5 minutes",)}, "is not a duration"),
    ],
)
def test_bad_options(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        _options(**changes)


def test_bad_names_are_refused_by_the_planner() -> None:
    for changes, message in (
        ({"methods": ("nothing",)}, "nothing"),
        ({"datasets": ("mnist",)}, "unknown data set"),
        ({"width": None, "sizes": ("XXL",)}, "XXL"),
        ({"kernel_sizes": (2,)}, "kernel"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            plan(_options(**changes))


def test_options_of_another_version_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="the options of a study are"):
        options_from_plain({"methods": ["aol"]})


def test_notes_are_honest_about_short_studies() -> None:
    assert any("no search" in note for note in preset("quick").notes())
    assert any("small part of CIFAR-10" in note for note in preset("quick").notes())
    assert preset("paper").notes() == []


def test_the_remaining_time_learns_from_what_jobs_took() -> None:
    jobs = plan(_options(epochs=None, budgets=("100s",), methods=("aol", "bcop", "cayley", "soc")))
    seconds = [0.0]
    progress = Progress(jobs, _nowhere, now=lambda: seconds[0])
    whole, complete = progress.seconds_left()
    assert complete
    assert whole == pytest.approx(4 * (jobs[0].estimated_seconds(_nowhere) or 0))
    progress.started(jobs[0])
    seconds[0] = whole / 2  # twice as long as a job was estimated
    progress.ended(jobs[0], JobState(JobStatus.DONE))
    assert progress.seconds_left()[0] == pytest.approx(3 * whole / 2)
    progress.started(jobs[1])
    seconds[0] += whole / 4
    assert progress.seconds_left()[0] == pytest.approx(3 * whole / 2 - whole / 4)
    assert Progress(plan(_options()), _nowhere).seconds_left() == (0.0, False)


def test_short_durations() -> None:
    texts = [short_duration(seconds) for seconds in (0.4, 59, 60, 450, 3600, 12000, 90000)]
    assert texts == ["0 s", "59 s", "1 min", "7 min 30 s", "1 h", "3 h 20 min", "1 d 1 h"]
