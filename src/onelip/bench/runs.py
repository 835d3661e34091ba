"""`onelip.bench.records` under its name of earlier versions."""

from onelip.bench.records import NetworkSpec, RunStatus, load_records, start_run

__all__ = ["NetworkSpec", "RunStatus", "load_records", "start_run"]
