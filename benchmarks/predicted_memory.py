"""Make `predicted_training_memory.csv` from records: python benchmarks/predicted_memory.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

from onelip.atomic_files import write_atomically
from onelip.bench.paper import published
from onelip.bench.report.read_study import read_study
from onelip.bench.report.table_files import csv_text
from onelip.bench.report.trained_models import current

MEMORY = read_study(Path(sys.argv[1])).memory


def peaks(source: str) -> dict[tuple[str, str, int], int]:
    """Bytes of training by network, of one kind of prediction."""
    rows = current(row for row in MEMORY if row.source == source)
    return {(r.network.method, r.network.size_name, r.network.data.image_size): r.training for r in rows}


on_cpu, on_gpu = peaks("predicted"), peaks("predicted for a GPU")
table = [(*place, needed, on_gpu[place]) for place, needed in on_cpu.items()]  # one that lacks a figure is an error
path = Path(published.__file__).with_name("predicted_training_memory.csv")
write_atomically(path, csv_text(("method", "size", "image_size", "cpu_bytes", "gpu_bytes"), table).encode())
print(len(table), "rows in", path)
