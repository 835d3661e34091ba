"""`onelip bench speed`: targets, who takes part, what is timed, the table, the figure and the JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from shipped_methods import SHIPPED
from torch import nn

from onelip.bench.cli import run
from onelip.bench.measurement import REFERENCE, MemoryUse, Rounds, Timing, Workload, predict_memory
from onelip.bench.measurement.statistics import summarise
from onelip.bench.speed import (
    QUANTITIES,
    Contestant,
    Goal,
    SpeedReport,
    SpeedResult,
    Suite,
    choose_contestants,
    draw_speed,
    goals_of,
    load_targets,
    measure_contestant,
    print_speed,
    save_speed,
)
from onelip.bench.speed import measure as measure_module
from onelip.errors import InvalidInputError
from onelip.layers import list_methods

CPU = torch.device("cpu")
PAPER = Workload(REFERENCE, "XS", "cifar10", 256)
SMALL = Workload(REFERENCE, batch_size=2, width=4)
QUICK = Rounds(warm_up=1, least=6, most=6)


def _timing(ratio: float) -> Timing:
    seconds, plain = [0.1 * ratio * (1 + 0.01 * i) for i in range(7)], [0.1 * (1 + 0.01 * i) for i in range(7)]
    return Timing(summarise(seconds), summarise(plain), summarise([ratio - 0.03 + 0.01 * i for i in range(7)]))


def _result(method: str, training: float, inference: float, memory: float, workload: Workload = PAPER) -> SpeedResult:
    contestant = choose_contestants([method], False, workload)[0]
    return SpeedResult(contestant, _timing(training), _timing(inference), MemoryUse(1, 3, 2), memory)


def _report(workload: Workload = PAPER) -> SpeedReport:
    rows = [_result("lot", 2.5, 1.2, 1.05, workload), _result("aol", 0.9, 1.004, 0.78, workload)]
    return SpeedReport(Suite(workload, CPU), rows, {"soc": "RuntimeError: broken"})


def test_every_constrained_method_has_targets_below_public_code() -> None:
    targets = load_targets()
    assert set(targets) == set(SHIPPED) - {"standard"}
    for goals in targets.values():
        assert set(goals) == set(QUANTITIES)
        assert all(goal.public is None or goal.target < goal.public for goal in goals.values())
    assert targets["lot"] == {"training": Goal(2.0, 18.5), "inference": Goal(1.3, 4.7), "memory": Goal(1.8, 7.0)}
    assert targets["eco"]["training"] == Goal(1.6, None)


def test_the_targets_are_part_of_the_package() -> None:
    assert resources.files("onelip.bench.speed").joinpath("targets.csv").is_file()


def test_goals_hold_for_the_setting_they_were_set_for_only() -> None:
    work = replace(PAPER, method="aol")
    assert goals_of(work, CPU)["training"].target == 1.0
    assert not goals_of(work, torch.device("cuda"))
    for other in (Workload("aol", "S"), Workload("aol", batch_size=128), Workload("aol", width=16), PAPER):
        assert not goals_of(other, CPU)


@pytest.mark.parametrize(("ratio", "met"), [(0.8, True), (1.3, True), (1.304, True), (1.306, False)])
def test_a_goal_is_judged_by_the_digits_that_are_shown(ratio: float, met: bool) -> None:
    assert Goal(1.3, None).is_met_by(ratio) is met


def test_contestants_are_all_methods_or_the_named_ones() -> None:
    assert [c.key for c in choose_contestants([], False, SMALL)] == [method.key for method in list_methods()]
    chosen = choose_contestants(["SOC", "aol", "soc"], False, SMALL)
    assert [(c.key, c.title, c.package) for c in chosen] == [("aol", "AOL", "onelip"), ("soc", "SOC", "onelip")]
    with pytest.raises(InvalidInputError, match=r"nope.*aol.*orthogonium-aol"):
        choose_contestants(["nope"], False, SMALL)


class _Spy(nn.Module):
    """Counts passes by mode and by whether gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * 32 * 32, 10)
        self.passes: list[tuple[bool, bool]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.append((self.training, torch.is_grad_enabled()))
        return self.linear(x.flatten(1))


def test_training_steps_update_and_inference_is_an_evaluation_without_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure_module, "default_rounds", lambda device: QUICK)
    spy = _Spy()
    start = spy.linear.weight.detach().clone()
    memory = MemoryUse(1, 10**6, 1)
    contestant = Contestant(SMALL, "spy", "onelip", lambda: spy, nn.Module.eval, lambda: memory)
    suite = Suite(SMALL, CPU)
    result = measure_contestant(contestant, suite)
    calls = QUICK.warm_up + QUICK.most
    assert spy.passes == [(True, True)] * calls + [(False, False)] * calls
    assert not torch.equal(spy.linear.weight, start)
    assert spy.linear.weight.grad is None
    assert result.training.ratio.count == result.inference.ratio.count == QUICK.most
    assert result.memory_ratio == 10**6 / predict_memory(SMALL).training


def test_the_same_seed_gives_the_same_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "default_rounds", lambda device: replace(QUICK, warm_up=0))
    weights: list[torch.Tensor] = []

    def build() -> nn.Module:
        model = _Spy()
        weights.append(model.linear.weight.detach().clone())
        return model

    contestant = Contestant(SMALL, "spy", "onelip", build, nn.Module.eval, lambda: MemoryUse(1, 1, 1))
    for seed in (0, 0, 1):
        measure_contestant(contestant, Suite(SMALL, CPU, seed))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_time_limit_is_that_of_the_suite() -> None:
    assert Suite(SMALL, CPU, seconds=3.5).rounds == Rounds(seconds=3.5)


def test_what_does_not_fit_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "available_memory", lambda device: 10**6)
    with pytest.raises(measure_module.TooLargeError, match=r"needs 0\.\d GiB"):
        measure_contestant(choose_contestants(["aol"], False, SMALL)[0], Suite(SMALL, CPU))


def test_table_shows_cheapest_first_with_marks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_speed(_report())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines if line.strip().startswith(("aol", "lot"))]
    assert rows == [
        ["aol", "0.90", "±0.03", "1.0", "✓", "1.6", "1.00", "±0.03", "1.0", "✓", "1.3", "0.78", "1.1", "✓"],
        ["lot", "2.50", "±0.03", "2.0", "✗", "18.5", "1.20", "±0.03", "1.3", "✓", "4.7", "1.05", "1.8", "✓", "7.0"],
    ]
    assert "soc: RuntimeError: broken" in lines


def test_table_without_goals_has_no_columns_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_speed(_report(SMALL))
    output = capsys.readouterr().out
    assert "ConvNet w4, 2 images of 32 x 32" in " ".join(output.split())
    assert not any(word in output for word in ("goal", "public", "✓", "✗"))


def test_json_has_figures_goals_machine_seed_and_versions() -> None:
    tree = json.loads(_report().as_json())
    assert tree["network"] == {"size": "XS", "width": None, "dataset": "cifar10", "batch_size": 256}
    assert (tree["device"], tree["seed"], tree["rounds"]["least"]) == ("cpu", 0, 7)
    assert {"cpu", "cores", "torch_threads", "versions", "commit"} <= tree["machine"].keys()
    assert tree["machine"]["versions"]["torch"] == torch.__version__
    assert tree["reference"]["memory"]["training"] == predict_memory(PAPER).training
    assert tree["failures"] == {"soc": "RuntimeError: broken"}
    first, second = tree["results"]
    assert (first["method"], second["method"]) == ("aol", "lot")
    assert second["ratios"] == {"training": 2.5, "inference": 1.2, "memory": 1.05}
    assert second["goals"]["training"] == {"target": 2.0, "public": 18.5, "met": False}
    assert second["training"]["ratio"]["low"] < 2.5 < second["training"]["ratio"]["high"]


def test_figure_has_a_bar_for_each_ratio_and_a_tick_for_each_goal() -> None:
    axes = draw_speed(_report()).axes[0]
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    heights = sorted(bar.get_height() for bar in bars)
    assert heights == pytest.approx(sorted([0.9, 1.004, 0.78, 2.5, 1.2, 1.05]))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["AOL", "LOT"]
    ticks: list[Any] = [s for c in axes.collections if isinstance(c, LineCollection) for s in c.get_segments()]
    assert sorted(tick[0][1] for tick in ticks) == [1.0, 1.0, 1.1, 1.3, 1.8, 2.0]
    centres = {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in bars}
    for tick in ticks:  # each lies on a bar
        assert min(abs((tick[0][0] + tick[1][0]) / 2 - centre) for centre in centres) < 1e-9
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()].count("goal") == 1


def test_figure_of_a_run_in_which_everything_failed_is_empty() -> None:
    assert not draw_speed(SpeedReport(Suite(PAPER, CPU), [], {"aol": "broken"})).axes[0].patches


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_figure_files_come_with_their_json(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"costs.{suffix}"
    save_speed(_report(), path)
    assert path.read_bytes().startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    assert json.loads(path.with_suffix(".json").read_text())["results"][0]["method"] == "aol"


def test_command_measures_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure_module, "default_rounds", lambda device: QUICK)
    common = ["bench", "speed", "--methods", "standard", "aol", "--width", "4", "--batch", "2", "--device", "cpu"]
    assert run([*common, "--out", str(tmp_path), "--json", "--seed", "3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "speed.json").read_text())
    assert {row["method"] for row in printed["results"]} == {"standard", "aol"}
    assert (printed["seed"], printed["network"]["width"]) == (3, 4)
    assert all(ratio > 0 for row in printed["results"] for ratio in row["ratios"].values())
    assert (tmp_path / "speed.svg").is_file()


def test_a_network_that_breaks_is_named_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure_module, "default_rounds", lambda device: QUICK)
    check = measure_module._check_fit

    def break_first(memory: MemoryUse, suite: Suite) -> None:
        monkeypatch.setattr(measure_module, "_check_fit", check)
        raise RuntimeError("out\nof order")

    monkeypatch.setattr(measure_module, "_check_fit", break_first)
    common = ["--methods", "aol", "standard", "--width", "4", "--batch", "2", "--device", "cpu"]
    assert run(["bench", "speed", *common]) == 1
    output = capsys.readouterr().out
    assert "aol: RuntimeError: out of order" in output
    assert " standard " in output


def test_bad_input_is_one_line_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onelip.bench.speed.measure_contestant", lambda *_: pytest.fail("measured"))
    for arguments in (
        ["--methods", "nope"],
        ["--size", "XXL"],
        ["--size", "XS", "--width", "8"],
        ["--width", "5"],
        ["--batch", "0"],
        ["--seconds", "0"],
        ["--seconds", "nan"],
        ["--figure", "costs.doc"],
        ["--device", "tpu"],
    ):
        assert run(["bench", "speed", *arguments]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
