"""Tables about the runs themselves: what went wrong, where and with which software, and the command lines."""

from __future__ import annotations

from collections import Counter

from onelip.bench.report.report_table import METHOD, Column, ReportTable, duration, words
from onelip.bench.report.study_rows import StudyResults


def run_tables(study: StudyResults) -> list[ReportTable]:
    """Runs without a result, machines, and all runs."""
    missing = [
        (
            row.network and row.network.method,
            row.network and row.network.size_name,
            row.network and row.network.dataset,
            row.status,
            row.reason,
            row.kind,
            row.run,
        )
        for row in study.missing_results
    ]
    machines = Counter(run.machine for run in study.runs)
    runs = [
        (run.run, run.status.value, run.seed, run.seconds, run.created_at[:19].replace("T", " "), run.command)
        for run in study.runs
    ]
    titles = ("Processor", "Cores", "Threads", "Memory", "GPUs", "System")
    return [
        ReportTable(
            name="failed-runs",
            section="runs",
            title="Runs without a result",
            caption="Runs that failed, diverged, were interrupted or given up, measurements that did not fit into "
            "memory, and records that could not be read, each with the reason. None of them counts anywhere else.",
            columns=(
                METHOD,
                *(words(title) for title in ("Size", "Data set", "Status")),
                words("Reason", wraps=True),
                words("Kind"),
                words("Run"),
            ),
            rows=missing,
        ),
        ReportTable(
            name="machines",
            section="runs",
            title="Machines and versions",
            caption="Where the runs were made, and with which software. A commit with + had changes "
            "that were not committed.",
            columns=(Column("Runs"), *map(words, titles), words("Versions", wraps=True), words("Commit")),
            rows=[(count, *facts) for facts, count in machines.items()],
        ),
        ReportTable(
            name="runs",
            section="runs",
            title="All runs",
            caption="Seed, wall-clock time and command line of every record that this report was made from.",
            columns=(
                words("Run"),
                words("Status"),
                Column("Seed"),
                Column("Took", show=duration),
                words("Started (UTC)"),
                words("Command", wraps=True),
            ),
            rows=runs,
        ),
    ]
