"""The planner: which jobs a study has, in which order, under which names."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tiny_data

from onelip.bench.records import read_dataclass
from onelip.bench.records.store import find_name
from onelip.bench.study.job_base import Job
from onelip.bench.study.jobs import TrainJob
from onelip.bench.study.options import MAIN_METHODS, StudyOptions, beside_preset, preset
from onelip.bench.study.planner import plan
from onelip.bench.study.search import SearchJob, TrialJob
from onelip.errors import InvalidInputError

_nowhere = Path("/nonexistent")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def _options(**changes: Any) -> StudyOptions:
    small: dict[str, Any] = {"methods": ("aol", "standard"), "sizes": (), "width": 4, "datasets": ("tiny",)}
    return StudyOptions(**{**small, "epochs": 2, "batch_size": 32, "measure": "none", **changes})


def _kinds(jobs: tuple[Job, ...]) -> Counter[str]:
    return Counter(job.details.get("quantity") or job.kind for job in jobs)


def test_quick_trains_all_main_methods_once() -> None:
    jobs = plan(preset("quick"))
    assert _kinds(jobs) == {"memory": 9, "macs": 9, "time": 8, "train": 8}
    trained = [job for job in jobs if isinstance(job, TrainJob)]
    assert tuple(job.spec.network.method for job in trained) == MAIN_METHODS
    assert all(job.spec.recipe == "short" and job.search is None for job in trained)
    usual = dict.fromkeys(MAIN_METHODS, ("adam", 0.002)) | {"standard": ("adam", 5e-4), "aol": ("sgd", 0.01)}
    assert {job.spec.network.method: (job.spec.optimizer, job.spec.lr) for job in trained} == usual
    # The promise is ten minutes on two cores: the estimate leaves two for the report and a slow machine.
    assert sum(job.estimated_seconds(_nowhere) or 1e9 for job in jobs) < 8 * 60


def test_quick_trains_one_network_for_short_budgets_beside_the_comparison() -> None:
    beside = beside_preset("quick")
    assert beside is not None
    (job,) = plan(beside)
    assert isinstance(job, TrainJob)
    assert (job.spec.network.model, job.spec.recipe, job.spec.budget) == ("fastnet", "fast", "30s")
    assert {one.spec.budget for one in plan(preset("quick")) if isinstance(one, TrainJob)} == {"30s"}
    assert any("fastnet" in note for note in beside.notes())
    assert all(beside_preset(name) is None for name in ("cpu", "minutes", "paper"))


def test_budgets_may_be_processor_time() -> None:
    options = preset("minutes").changed(clock="cores", methods=("aol",), search_runs=1)
    jobs = plan(options)
    assert {job.spec.clock for job in jobs if isinstance(job, TrainJob)} == {"cores"}
    assert {job.config.base.clock for job in jobs if isinstance(job, SearchJob)} == {"cores"}
    assert any("processor time" in note for note in options.notes())
    assert not any("processor time" in note for note in preset("minutes").notes())


def test_the_protocol_of_the_paper() -> None:
    jobs = plan(preset("paper"))
    per_kernel = {3: 3 * 4 * 8, 1: 1 * 4 * 8}  # 1 x 1 kernels on CIFAR-10 only
    assert _kinds(jobs)["train"] == 3 * sum(per_kernel.values())
    assert _kinds(jobs)["search"] == sum(per_kernel.values()) * 7 // 8  # nothing to search for in the plain network
    assert _kinds(jobs)["trial"] == 16 * _kinds(jobs)["search"]
    assert _kinds(jobs)["time"] == per_kernel[3]
    assert {job.config.trials for job in jobs if isinstance(job, SearchJob)} == {16}
    assert {job.config.base.budget for job in jobs if isinstance(job, SearchJob)} == {"2h"}
    trained = [job for job in jobs if isinstance(job, TrainJob)]
    assert {job.spec.budget for job in trained} == {"2h", "10h", "24h"}
    assert {job.spec.network.dataset for job in trained if job.spec.network.kernel_size == 1} == {"cifar10"}
    assert all(job.spec.batch_size == 256 for job in trained)
    long = next(job for job in trained if job.spec.budget == "24h" and job.spec.network.method == "soc")
    assert long.search is not None
    assert (long.estimated_seconds(_nowhere) or 0) > 24 * 3600
    short = next(job for job in trained if job.spec.budget == "2h" and job.spec.network.method == "soc")
    assert (short.estimated_seconds(_nowhere) or 1e9) < 300  # the best trial of its search is this training
    assert long.search.config.base.network.method == "soc"


def test_models_of_ones_own_stand_beside_the_methods() -> None:
    own = "model_factories:sequential"
    options = StudyOptions(models=("convnet", own), methods=("aol", "lot"), sizes=(), width=4, epochs=1, search_runs=2)
    jobs = plan(dataclasses.replace(options, datasets=("cifar10-mini",), kernel_sizes=(3, 1)))
    trained = [(job.network.method, job.network.kernel_size) for job in jobs if job.kind == "train"]
    assert sorted(trained) == [("aol", 1), ("aol", 3), ("lot", 1), ("lot", 3), ("own", 3)]
    assert {job.kind for job in jobs if job.network.model == own} == {"measure", "trial", "search", "train"}


def test_a_plan_is_a_function_of_its_options() -> None:
    names = [job.name for job in plan(preset("cpu"))]
    assert names == [job.name for job in plan(preset("cpu"))]
    assert len(set(names)) == len(names)
    other = {job.name for job in plan(preset("cpu").changed(search_runs=5)) if job.kind != "measure"}
    default_rates = {job.name for job in plan(preset("cpu")) if job.kind == "train" and not job.needs}
    assert other & set(names) == default_rates  # only what does not depend on the search keeps its name
    assert not {job.name for job in plan(preset("quick").changed(batch_size=32))} & {
        job.name for job in plan(preset("quick"))
    }


def test_needed_jobs_come_before_those_that_need_them() -> None:
    for name in ("quick", "cpu", "paper"):
        jobs = plan(preset(name))
        position = {job.name: index for index, job in enumerate(jobs)}
        assert all(position[need.name] < position[job.name] for job in jobs for need in job.needs)


def test_seeds_are_the_outermost_loop() -> None:
    jobs = plan(_options(seeds=2, methods=("aol", "soc")))
    assert [(job.details["seed"], job.network.method) for job in jobs] == [
        (0, "aol"),
        (0, "soc"),
        (1, "aol"),
        (1, "soc"),
    ]


def test_several_options_have_every_job_once() -> None:
    small, more = _options(search_runs=2), _options(search_runs=2, seeds=2)
    assert [job.name for job in plan(small, more)] == [job.name for job in plan(more)]
    assert len(plan(small, _options(methods=("soc",)))) == len(plan(small)) + 1


def test_jobs_are_found_by_name() -> None:
    names = [job.name for job in plan(_options(search_runs=2))]
    assert [find_name(names, name, "job", Path()) for name in names] == names
    assert find_name(names, "search-", "job", Path()) == next(name for name in names if name.startswith("search-"))
    with pytest.raises(InvalidInputError, match=r"2 .*'trial-'"):
        find_name(names, "trial-", "job", Path())
    with pytest.raises(InvalidInputError, match="nothing"):
        find_name(names, "nothing", "job", Path())


def test_trials_have_points_of_their_own() -> None:
    trials = [job for job in plan(_options(methods=("aol",), search_runs=16)) if isinstance(job, TrialJob)]
    points = [(job.spec.lr, job.spec.weight_decay) for job in trials]
    assert len(set(points)) == 16
    assert all(1e-4 <= lr <= 1e-1 and 10**-5.5 <= decay <= 10**-3.5 for lr, decay in points)
    assert len({job.folder(_nowhere) for job in trials}) == 16
    again = TrialJob(trials[3].search, 3)  # whoever does it draws the same point
    assert again.spec == trials[3].spec
    assert again.name == trials[3].name


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
        ({"methods": ()}, "methods"),
        ({"sizes": ("XS",)}, "sizes"),
        ({"budgets": ("1m",)}, "budgets"),
        ({"search_budget": "1m"}, "search budget"),
        ({"seeds": 0}, "seeds 1 to 10000"),
        ({"epochs": None, "budgets": ("5 minutes",)}, "5 minutes"),
    ],
)
def test_bad_options(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        _options(**changes)


def test_bad_names_are_refused_by_the_planner() -> None:
    for changes, message in (
        ({"methods": ("nothing",)}, "nothing"),
        ({"datasets": ("mnist",)}, "mnist"),
        ({"width": None, "sizes": ("XXL",)}, "XXL"),
        ({"kernel_sizes": (2,)}, "kernel"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            plan(_options(**changes))


def test_options_of_another_version_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"study\.json has no .*sizes"):
        read_dataclass(StudyOptions, {"methods": ["aol"]}, "study.json")


def test_notes_are_honest_about_short_studies() -> None:
    assert any("no search" in note for note in preset("quick").notes())
    assert any("small part of CIFAR-10" in note for note in preset("quick").notes())
    assert preset("paper").notes() == []
