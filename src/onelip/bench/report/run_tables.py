"""Tables about the runs themselves: what went wrong, where and with which software, and the command lines."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

from onelip.bench.report.rows import Evidence
from onelip.bench.report.tables import Column, Row, Table, duration, method, number, text
from onelip.bench.runs import RunRecord


def run_tables(evidence: Evidence) -> list[Table]:
    """All three; a study without trouble has no table of it."""
    tables = [_trouble_table(evidence), _machine_table(evidence), _command_table(evidence)]
    return [table for table in tables if table.rows]


def _trouble_table(evidence: Evidence) -> Table:
    rows: list[Row] = [
        (
            text(row.status),
            text(row.kind),
            method(row.method) if row.method else text(None),
            text(row.size),
            text(row.dataset),
            text(row.reason),
            text(row.run),
        )
        for row in evidence.trouble
    ]
    rows += [(text("not readable"), *[text(None)] * 4, text(problem), text(None)) for problem in evidence.problems]
    titles = ("Status", "Kind", "Method", "Size", "Data set", "Reason", "Run")
    return Table(
        name="failed-runs",
        section="runs",
        title="Runs without a result",
        caption="Runs that failed, diverged, were interrupted or given up, measurements that did not fit into "
        "memory, and "
        "records that could not be read. None of them counts in any other table or figure.",
        columns=tuple(Column(title, numeric=False) for title in titles),
        rows=tuple(rows),
    )


def _machine_table(evidence: Evidence) -> Table:
    """One row for each combination of machine, versions and commit that records were made with."""
    counted = Counter(_circumstances(run.record) for run in evidence.runs)
    rows: list[Row] = [
        (number(float(count), "{:.0f}".format), *(text(value) for value in facts)) for facts, count in counted.items()
    ]
    titles = ("Processor", "Cores", "Threads", "Memory", "GPUs", "System", "Versions", "Commit")
    return Table(
        name="machines",
        section="runs",
        title="Machines and versions",
        caption="Where the runs were made, and with which software. A commit with + had changes that were not "
        "committed.",
        columns=(Column("Runs"), *(Column(title, numeric=False) for title in titles)),
        rows=tuple(rows),
    )


def _circumstances(record: RunRecord) -> tuple[str, ...]:
    machine = record.machine
    memory = machine.get("memory_bytes")
    gpus = [f"{gpu['name']} ({gpu['memory_bytes'] / 2**30:.0f} GiB)" for gpu in machine.get("gpus") or ()]
    return (
        str(machine.get("cpu", "")),
        f"{machine.get('usable_cores', '?')} of {machine.get('cores', '?')}",
        str(machine.get("torch_threads", "")),
        "" if memory is None else f"{memory / 2**30:.0f} GiB",
        ", ".join(gpus) or "none",
        str(machine.get("os", "")),
        ", ".join(f"{name} {version}" for name, version in record.versions.items()),
        _commit(record.commit),
    )


def _commit(commit: dict[str, Any] | None) -> str:
    if commit is None:
        return "installed package"
    return str(commit.get("id", ""))[:12] + ("+" if commit.get("dirty") else "")


def _command_table(evidence: Evidence) -> Table:
    rows: list[Row] = [
        (
            text(run.folder.name),
            text(run.status.value),
            number(run.record.seed, "{:.0f}".format),
            duration(run.record.seconds),
            text(run.record.created_at[:19].replace("T", " ")),
            text(command_line(run.record.command)),
        )
        for run in evidence.runs
    ]
    titles = (("Run", False), ("Status", False), ("Seed", True), ("Took", True), ("Started (UTC)", False))
    return Table(
        name="runs",
        section="runs",
        title="All runs",
        caption="Seed, wall-clock time and command line of every record that this report was made from.",
        columns=(*(Column(title, numeric=numeric) for title, numeric in titles), Column("Command", numeric=False)),
        rows=tuple(rows),
    )


def command_line(command: list[str]) -> str:
    """The command as one would type it: the program without its folder, arguments quoted where needed."""
    if not command:
        return ""
    program = command[0].rsplit("/", 1)[-1]
    return shlex.join([program if program else command[0], *command[1:]])
