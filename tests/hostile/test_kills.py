"""A few of the kills of benchmarks/kills.py: at file operations that a seed has chosen, not at moments of a clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kills.py"


def _kill(out: Path) -> tuple[int, list[dict[str, object]]]:
    command = [sys.executable, str(BENCHMARK), "--only", "training", "--kills", "3", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (out / "rounds.jsonl").exists(), done.stderr
    return done.returncode, [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def test_killed_trainings_leave_what_an_undisturbed_one_leaves(tmp_path: Path) -> None:
    """And the same kills show damage where files are written over, and a loss of power where they are not synced."""
    code, rounds = _kill(tmp_path)
    assert code == 0
    assert [(one["careless"], bool(one["differences"])) for one in rounds] == [
        ("in place", True),
        ("unsynced", True),
        ("", False),
    ]
    assert rounds[-1]["kills"] == 3
