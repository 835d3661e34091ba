"""The leaderboard: which records count, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onelip import pretrained
from onelip.bench.cli import run as run_command
from onelip.bench.cli.leaderboard import leaderboard_page, rows_of_runs, rows_of_shipped_networks
from onelip.bench.records import NetworkSpec, RunOptions, RunRecord, RunStatus, to_plain
from onelip.bench.training.resolve import resolve

METRICS = {
    "core_seconds": 480.4,
    "test_accuracy": 0.5,
    "test_lipschitz_bound": 1.0000001,
    "test_images": 10_000,
    **{f"test_certified_accuracy_{radius}": share for radius, share in ((36, 0.42), (72, 0.3), (108, 0.2), (255, 0))},
}


def _record(status: RunStatus = RunStatus.FINISHED, **metrics: Any) -> RunRecord:
    spec = resolve(RunOptions(network=NetworkSpec(model="fastnet", width=8), budget="8m", seed=metrics.pop("seed", 0)))
    values = {name: value for name, value in (METRICS | metrics).items() if value is not None}
    reason = None if status is RunStatus.FINISHED else "told to"
    return RunRecord(
        "train", to_plain(spec), None, [], {}, None, {}, status, reason, values, None, 1.0, "2026-01-01", "2026-01-01"
    )


def test_only_timed_runs_that_were_certified_on_all_images_count() -> None:
    others = [_record(RunStatus.DIVERGED), _record(test_images=1000), _record(core_seconds=None)]
    assert rows_of_runs(others) == []
    [row] = rows_of_runs([*others, _record()])
    cells = (
        "| 480 | stiefel w8 cifar10 fastnet, recipe fast, seed 0 | 50.0 | 42.0 ± 0.5 | 30.0 | 20.0 | 0.0 | 1.000000 |"
    )
    assert cells in leaderboard_page([row])


def test_the_page_is_sorted_by_time_and_has_the_literature() -> None:
    entries = rows_of_runs([_record(core_seconds=900.0, seed=1), _record()])
    page = leaderboard_page(entries)
    assert page.index("| 480 |") < page.index("| 900 |") < page.index("AOL Large") < page.index("LiResNet")


def test_the_page_in_docs_has_every_network_that_comes_with_onelip(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_command(["leaderboard"]) == 0
    printed = capsys.readouterr().out
    assert all(f"| {name} |" in printed for name in pretrained.names())
    assert run_command(["leaderboard", "--out", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text() == leaderboard_page(rows_of_shipped_networks())
