"""Records of runs: one folder per run with one JSON record and at most one checkpoint; see docs/records.md."""

from onelip.bench.runs.canonical import canonical_json, dump_json, parse_json, run_name, size_name, to_plain
from onelip.bench.runs.checkpoint import CHECKPOINT_FILE, Checkpoint, load_checkpoint, save_checkpoint
from onelip.bench.runs.reading import read_record
from onelip.bench.runs.record import RECORD_FILE, SCHEMA_VERSION, STUDY_FILE, RunRecord, RunStatus, new_record
from onelip.bench.runs.store import (
    LoadedRecords,
    Run,
    StoredRun,
    find_run,
    is_run,
    load_records,
    remove_run,
    start_run,
)

__all__ = [
    "CHECKPOINT_FILE",
    "RECORD_FILE",
    "SCHEMA_VERSION",
    "STUDY_FILE",
    "Checkpoint",
    "LoadedRecords",
    "Run",
    "RunRecord",
    "RunStatus",
    "StoredRun",
    "canonical_json",
    "dump_json",
    "find_run",
    "is_run",
    "load_checkpoint",
    "load_records",
    "new_record",
    "parse_json",
    "read_record",
    "remove_run",
    "run_name",
    "save_checkpoint",
    "size_name",
    "start_run",
    "to_plain",
]
