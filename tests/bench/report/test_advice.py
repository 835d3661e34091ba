"""The advisor's rule by cases and by its stated properties, and the command."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from synthetic_study import (
    add_memory,
    add_times,
    add_training,
    finish,
    random_candidates,
    random_limits,
    train_config,
    train_metrics,
)

from onelip.bench.cli import run as run_cli
from onelip.bench.measurement import PREDICTED, PREDICTED_ON_GPU, Measurement, measure
from onelip.bench.paper.published import predicted_training_memory, published_epochs, published_results
from onelip.bench.records import NetworkSpec
from onelip.bench.report.advice import (
    GIB,
    BudgetResult,
    Candidate,
    Limits,
    judge,
    measured_candidates,
    pareto_front,
    parse_memory,
    parse_ratio,
    published_candidates,
    rank,
)
from onelip.bench.report.advice_text import decisions, portraits
from onelip.bench.report.method_style import method_style
from onelip.bench.report.read_study import read_study
from onelip.errors import InvalidInputError

SIZES = ("XS", "S", "M")
"""Of the published logs."""

CANDIDATE = Candidate(
    dataset="cifar10",
    method="soc",
    size="M",
    results=(BudgetResult("2h", 2.0, 0.74, 0.60), BudgetResult("10h", 10.0, 0.77, 0.66)),
    result_source="published",
    memory_bytes=5 * GIB,
    memory_source="predicted",
    latency_ratio=1.5,
    latency_source="measured",
)


def test_the_best_result_within_the_time_counts() -> None:
    assert judge(CANDIDATE, Limits()).result.budget == "10h"
    assert judge(CANDIDATE, Limits(train_hours=9.9)).result.budget == "2h"
    assert judge(CANDIDATE, Limits(train_hours=10)).result.budget == "10h"
    worse = replace(CANDIDATE, results=(*CANDIDATE.results, BudgetResult("24h", 24.0, 0.7, 0.5)))
    assert judge(worse, Limits()).result.budget == "10h", "a longer training that ended worse does not count"


def test_limits_are_kept_with_the_allowance_for_the_card() -> None:
    assert judge(CANDIDATE, Limits(memory_bytes=6 * GIB)).group == "fits"
    assert judge(CANDIDATE, Limits(memory_bytes=6 * GIB - 1)).broken == ("memory",)
    assert judge(CANDIDATE, Limits(latency_ratio=1.5)).group == "fits"
    assert judge(CANDIDATE, Limits(latency_ratio=1.49)).broken == ("latency",)
    out = judge(CANDIDATE, Limits(memory_bytes=GIB, train_hours=1, latency_ratio=1))
    assert (out.group, out.broken, out.result.budget) == ("excluded", ("memory", "hours", "latency"), "2h")
    assert out.excess == pytest.approx(6 * 2 * 1.5)


def test_what_is_not_known_is_uncertain_and_never_fits() -> None:
    unknown = replace(CANDIDATE, memory_bytes=None, latency_ratio=None)
    assert judge(unknown, Limits()).group == "fits", "without a limit nothing has to be known"
    verdict = judge(unknown, Limits(memory_bytes=80 * GIB, latency_ratio=2))
    assert (verdict.group, verdict.unknown) == ("uncertain", ("memory", "latency"))
    untimed = replace(CANDIDATE, results=(BudgetResult("9 epochs", None, 0.7, 0.6),))
    assert judge(untimed, Limits(train_hours=100)).unknown == ("hours",)


def test_the_ranking_has_its_stated_properties() -> None:
    generator = random.Random(0)
    for _ in range(100):
        candidates, limits = random_candidates(generator, 12), random_limits(generator)
        verdicts = rank(candidates, limits)
        assert sorted(v.candidate.size for v in verdicts) == sorted(c.size for c in candidates)
        order = [("fits", "uncertain", "excluded").index(v.group) for v in verdicts]
        assert order == sorted(order)
        assert [v.excess for v in verdicts if v.broken] == sorted(v.excess for v in verdicts if v.broken)
        for group in ("fits", "uncertain"):
            certified = [v.result.certified for v in verdicts if v.group == group]
            assert certified == sorted(certified, reverse=True)
        tighter = replace(limits, memory_bytes=GIB)
        fitting = {v.candidate.size for v in verdicts if v.group == "fits"}
        assert {v.candidate.size for v in rank(candidates, tighter) if v.group == "fits"} <= fitting
        generator.shuffle(candidates)
        assert rank(candidates, limits) == verdicts, "the order of the candidates has no influence"


def test_pareto_front_against_brute_force() -> None:
    generator = random.Random(1)
    for _ in range(50):
        points = [(float(generator.randint(1, 6)), float(generator.randint(1, 6))) for _ in range(10)]
        front = set(pareto_front(points))
        for index, (cost, value) in enumerate(points):
            better = any((c < cost and v >= value) or (c <= cost and v > value) for c, v in points)
            assert (index in front) != better


@pytest.mark.parametrize(("text", "gib"), [("24GB", 24), ("24 GiB", 24), ("24", 24), ("512MB", 0.5), ("1.5g", 1.5)])
def test_memory_is_understood(text: str, gib: float) -> None:
    assert parse_memory(text) == gib * GIB


def test_bad_limits_are_refused() -> None:
    for text in ("", "lots", "-3GB", "0GB", "24TB"):
        with pytest.raises(InvalidInputError, match="amount of memory"):
            parse_memory(text)
    assert parse_ratio("2x") == parse_ratio("2.0") == 2.0
    with pytest.raises(InvalidInputError, match="such as 2x"):
        parse_ratio("fast")


def test_published_candidates_are_the_papers_models() -> None:
    found = {(c.dataset, c.method, c.size): c for c in published_candidates()}
    rows = [r for r in published_results() if r.kernel_size == 3 and not r.failed]
    assert {(r.dataset, r.key, r.size) for r in rows} == set(found)
    best = max(found["cifar10", "soc", "M"].results, key=lambda r: r.hours or 0)
    assert (best.hours, best.certified, best.accuracy) == (24.0, pytest.approx(0.663), 0.769)
    assert all(c.memory_bytes for c in found.values())
    known = {place: c.published_slowness for place, c in found.items() if c.published_slowness is not None}
    assert {(dataset, size) for dataset, _, size in known} == {(d, s) for d in ("cifar10", "cifar100") for s in SIZES}
    assert known["cifar10", "aol", "M"] == 1.0
    assert known["cifar10", "soc", "M"] == pytest.approx(5698 / 439, rel=1e-3)
    assert {(c.latency_ratio, c.latency_source) for c in found.values()} == {(None, "not measured here")}
    assert "A100" in best.budget
    assert best.error == pytest.approx(0.00473, rel=0.01)


def test_hours_are_those_of_the_machine_where_it_was_timed(tmp_path: Path) -> None:
    """The paper's epochs, at the speed at which this machine was measured."""
    add_times(tmp_path, sizes=("XS",), dataset="cifar10")
    found = {(c.dataset, c.method, c.size): c for c in published_candidates(read_study(tmp_path))}
    epochs = {(r.dataset, r.key, r.size): r.epochs for r in published_epochs()}["cifar", "soc", "XS"]
    assert epochs is not None
    seconds = 16 * 0.8 * 1.7
    result = next(r for r in found["cifar10", "soc", "XS"].results if r.budget.startswith(f"{epochs * 12:,}"))
    assert result.hours == pytest.approx(12 * epochs * seconds / 3600)
    assert "here" in result.budget
    assert "A100" in found["cifar10", "soc", "M"].results[0].budget, "size M was not timed"


def test_without_limits_the_advice_is_the_papers_first_place() -> None:
    for dataset, first in (("cifar10", "soc"), ("cifar100", "soc"), ("tiny-imagenet", "lot")):
        candidates = [c for c in published_candidates() if c.dataset == dataset]
        assert rank(candidates, Limits())[0].candidate.method == first


def test_a_study_is_believed_before_the_paper(tmp_path: Path) -> None:
    add_training(tmp_path, sizes=("XS",), datasets=("cifar10",), seeds=1)
    add_times(tmp_path, sizes=("XS",), dataset="cifar10-mini")
    add_memory(tmp_path, sizes=("XS",), dataset="cifar10")
    candidates = {c.method: c for c in measured_candidates(read_study(tmp_path))}
    assert set(candidates) == {"aol", "bcop", "cayley", "cpl", "lot", "sll", "soc"}, "standard certifies nothing"
    lot = candidates["lot"]
    assert lot.memory_bytes == int(2**29 * 3.1)
    assert lot.latency_ratio == pytest.approx(1.7), "times depend on the image size, which both data sets share"
    assert "measured on a test machine" in lot.latency_source
    assert [r.budget for r in lot.results] == ["20s", "1m"]


def test_networks_of_another_width_have_no_predicted_costs(tmp_path: Path) -> None:
    config = train_config("aol", "XS", "cifar10", "20s")
    config["network"] |= {"size": None, "width": 8}
    finish(tmp_path, "train", config, train_metrics(0.3, 0.4, 20.0))
    (candidate,) = measured_candidates(read_study(tmp_path))
    assert (candidate.size, candidate.memory_bytes, candidate.latency_ratio) == ("w8", None, None)


@pytest.mark.parametrize("place", ["cpu", "gpu"])
@pytest.mark.parametrize("method", ["aol", "cpl", "lot", "reference"])
def test_the_shipped_memory_is_still_that_of_the_code(method: str, place: Literal["cpu", "gpu"]) -> None:
    """If this fails, layers have changed: make the table anew, as the docstring of `predicted_training_memory` says."""
    shipped = predicted_training_memory(place)[method, "XS", 32]
    device = PREDICTED if place == "cpu" else PREDICTED_ON_GPU
    use = measure(Measurement("memory", NetworkSpec(method=method), device=device))
    assert shipped == pytest.approx(use["training"], rel=0.1)


def run(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run_cli(["advise", *arguments.split()])
    captured = capsys.readouterr()
    return code, " ".join((captured.out + captured.err).split())


def test_the_command_advises_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run("--gpu-memory 24GB --train-hours 10 --dataset cifar10", capsys)
    assert code == 0
    assert "Use SOC M on cifar10: it certifies 66.0 ± 0.5 %" in out
    assert "10 h on an A100" in out
    assert "Not distinguishable from it: CPL M" in out


def test_latency_that_was_not_measured_is_never_promised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run("--max-latency 1x --dataset tiny-imagenet", capsys)
    assert code == 1
    assert "its latency is not known" in out
    add_times(tmp_path, sizes=("XS", "S"), dataset="cifar10")
    code, out = run(f"--max-latency 1.4x --study {tmp_path}", capsys)
    assert code == 0
    assert "Use CPL S" in out


def test_published_speed_is_told_and_judges_no_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """It is that of other code, relative to another method: SOC takes 13 times there, and 1.1 times plain here."""
    code, out = run("--max-latency 2x", capsys)
    assert code == 1
    assert "SOC M may fit" in out
    _, out = run("", capsys)
    assert "13.0 times the shortest evaluation time of this size (with the paper's code)" in " ".join(out.split())


def test_without_limits_it_gives_a_table_of_decisions_and_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run("", capsys)
    assert code == 0
    for words in ("2 GB", "8 GB or more", "24 h", "SOC:", "LOT:", "AOL:", "SOC M, CPL M"):
        assert words in out


def test_the_page_of_the_documentation_has_what_the_command_says() -> None:
    page = (Path(__file__).parents[3] / "docs" / "choosing.md").read_text()
    for dataset in ("cifar10", "cifar100", "tiny-imagenet"):
        times, rows = decisions([c for c in published_candidates() if c.dataset == dataset])
        lines = [f"| {' | '.join((card, *cells))} |" for card, cells in rows]
        table = [f"| {' | '.join((dataset, *times))} |", "|---" * (1 + len(times)) + "|", *lines]
        assert "\n".join(table) in page, dataset


def test_decisions_have_the_budgets_of_a_study_and_one_row_for_equal_answers(tmp_path: Path) -> None:
    add_training(tmp_path, sizes=("XS",), datasets=("cifar10",), seeds=1)
    add_memory(tmp_path, sizes=("XS",), dataset="cifar10")
    times, rows = decisions(measured_candidates(read_study(tmp_path)))
    assert times == ["20 s", "1 min"]
    labels, answers = [label for label, _ in rows], [cells for _, cells in rows]
    assert all(first != second for first, second in itertools.pairwise(answers))
    assert labels[-1].endswith("or more")


def test_a_method_that_others_beat_for_less_is_not_recommended() -> None:
    candidates = [c for c in published_candidates() if c.dataset == "cifar10"]
    for label, sentences in portraits(candidates):
        own = rank([c for c in candidates if method_style(c.method).label == label], Limits())[0]
        margin = 1.96 * math.sqrt(2) * 0.005
        beaten = any(
            (v.candidate.memory_bytes or 0) <= (own.candidate.memory_bytes or 0)
            and (v.result.hours or 0) <= (own.result.hours or 0)
            and v.result.certified > own.result.certified + margin
            for v in rank(candidates, Limits())
        )
        assert ("certifies more" in sentences) == beaten, label


def test_the_command_names_what_the_limits_exclude_and_what_is_closest(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run("--gpu-memory 2.2GB", capsys)
    assert code == 0
    needed = predicted_training_memory("gpu")["soc", "M", 32] / GIB
    assert f"Your limits exclude SOC M, which would certify 66.3 ± 0.5 % but takes {needed:.2f} GiB" in out
    code, out = run("--train-hours 1", capsys)
    assert code == 1
    assert "Nothing is known to fit 1 h of training" in out
    assert "2 h on an A100" in out
    code, out = run("--gpu-memory 1.2GB", capsys)
    assert code == 1
    smallest = min((c for c in published_candidates() if c.dataset == "cifar10"), key=lambda c: c.memory_bytes or 0)
    assert f"closest that does not is {smallest.method.upper()} {smallest.size}" in out


def test_names_from_a_study_are_shown_and_not_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = train_config("a\x1b[31m[bold]x[/]", "XS", "d", "20s")
    finish(tmp_path, "train", config, train_metrics(0.3, 0.4, 20.0))
    code, out = run(f"--dataset d --study {tmp_path} --gpu-memory 24GB", capsys)
    assert code == 1, "its memory is not known"
    assert "\x1b" not in out
    assert r"A\x1b[31m[bold]x[/]" in out.replace(" ", "").replace("\n", "") or r"A\x1b" in out


def test_the_command_uses_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_training(tmp_path, sizes=("XS",), seeds=1)
    code, out = run(f"--dataset cifar10-mini --study {tmp_path}", capsys)
    assert code == 0
    assert "Use LOT XS on cifar10-mini" in out
    assert "measured in this study" in out
    code, out = run(f"--dataset cifar100 --study {tmp_path} --json", capsys)
    rows = json.loads(out)
    assert rows[0]["candidate"]["result_source"].startswith("published")


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ("--dataset mnist", "--gpu-memory much", "--max-latency slow", "--train-hours 0", "--study /none"):
        code, out = run(arguments, capsys)
        assert code == 2, arguments
        assert out.startswith("onelip: ")
