"""Records of runs: one folder per run with one JSON record and at most one checkpoint; see docs/records.md."""

from onelip.bench.runs.canonical import canonical_json, dump_json, parse_json, run_name, to_plain
from onelip.bench.runs.recipes import RECIPES, Recipe
from onelip.bench.runs.record import (
    GENERATION,
    LARGEST_PLAN,
    RECORD_FILE,
    SCHEMA_VERSION,
    STUDY_FILE,
    RunRecord,
    RunStatus,
    new_record,
    read_record,
)
from onelip.bench.runs.resume_file import CHECKPOINT_FILE, Checkpoint, load_checkpoint, save_checkpoint
from onelip.bench.runs.specs import NetworkSpec, RunSpec
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
from onelip.bench.runs.typed_reading import read_dataclass

__all__ = [
    "CHECKPOINT_FILE",
    "GENERATION",
    "LARGEST_PLAN",
    "RECIPES",
    "RECORD_FILE",
    "SCHEMA_VERSION",
    "STUDY_FILE",
    "Checkpoint",
    "LoadedRecords",
    "NetworkSpec",
    "Recipe",
    "Run",
    "RunRecord",
    "RunSpec",
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
    "read_dataclass",
    "read_record",
    "remove_run",
    "run_name",
    "save_checkpoint",
    "start_run",
    "to_plain",
]
