"""Tables of the runs themselves: those without a result, the machines, and all runs with their command lines."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from typing import Any

from onelip.bench.records import RunRecord, StoredRun
from onelip.bench.report.report_table import DATASET, METHOD, SIZE, Column, ReportTable, duration, words
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.terminal import visible


def run_tables(study: StudyResults) -> list[ReportTable]:
    """Runs without a result, machines, and all runs."""
    machines = Counter(_machine(run.record) for run in study.runs)
    facts = ("Processor", "Cores", "Threads", "Memory", "GPUs", "System")
    return [
        ReportTable.of_items(
            study.missing_results,
            name="failed-runs",
            section="runs",
            title="Runs without a result",
            caption="Runs that failed, diverged, were interrupted or given up, measurements that did not fit into "
            "memory, and records that could not be read, each with the reason. None of them counts anywhere else.",
            columns=(
                METHOD,
                SIZE,
                DATASET,
                words("Status", "status"),
                words("Reason", "reason", wraps=True),
                words("Kind", "kind"),
                words("Run", "run"),
            ),
        ),
        ReportTable(
            name="machines",
            section="runs",
            title="Machines and versions",
            caption="Where the runs were made, and with which software. A commit with + had changes "
            "that were not committed.",
            columns=(Column("Runs"), *map(words, facts), words("Versions", wraps=True), words("Commit")),
            rows=[(count, *facts) for facts, count in machines.items()],
        ),
        ReportTable.of_items(
            study.runs,
            name="runs",
            section="runs",
            title="All runs",
            caption="Seed, wall-clock time and command line of every record that this report was made from.",
            columns=(
                words("Run", lambda run: visible(run.folder.name)),
                words("Status", "status.value"),
                Column("Seed", of=lambda run: run.record.seed if isinstance(run.record.seed, int) else None),
                Column("Took", show=duration, of=seconds_of),
                words("Started (UTC)", lambda run: run.record.created_at[:19].replace("T", " ")),
                words("Command", lambda run: _command_line(run.record.command), wraps=True),
            ),
        ),
    ]


def seconds_of(run: StoredRun) -> float:
    """Wall-clock time of a run."""
    return run.record.seconds if math.isfinite(run.record.seconds) else 0.0


def _command_line(command: list[str]) -> str:
    """The command as one would type it: the program without its folder, arguments quoted where needed."""
    parts = [str(word) for word in command[:50]]
    if not parts:
        return ""
    program = "onelip" if parts[0].endswith("onelip/__main__.py") else parts[0].rsplit("/", 1)[-1] or parts[0]
    return visible(shlex.join([program, *parts[1:]]))


def _machine(record: RunRecord) -> tuple[str, ...]:
    """Processor, cores, threads, memory, GPUs, system, versions and commit; what is odd is shown as it is."""
    machine, commit = record.machine, record.commit

    def gibibytes(tree: dict[str, Any]) -> str:
        value = tree.get("memory_bytes")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**63
        return "" if value is None else f"{value / 2**30:.0f} GiB" if is_number else visible(value)

    gpus = machine.get("gpus")
    cards = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    dirty = "+" if commit and commit.get("dirty") else ""
    return (
        visible(machine.get("cpu", "")),
        visible(f"{machine.get('usable_cores', '?')} of {machine.get('cores', '?')}"),
        visible(machine.get("torch_threads", "")),
        gibibytes(machine),
        visible(", ".join(f"{gpu.get('name')} ({gibibytes(gpu)})" for gpu in cards) or "none"),
        visible(machine.get("os", "")),
        visible(", ".join(f"{name} {version}" for name, version in record.versions.items())),
        "installed package" if commit is None else visible(str(commit.get("id", ""))[:12] + dirty),
    )
