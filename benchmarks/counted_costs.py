"""Write `counted_costs.csv`, what `onelip report` shows beside the formulas: python benchmarks/counted_costs.py"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from onelip.atomic_files import write_atomically
from onelip.bench.measurement.layer_costs import count_layer_costs
from onelip.bench.paper import complexity
from onelip.bench.report.table_files import csv_text

counts = {key: asdict(count_layer_costs(key, complexity.LayerShape())) for key in complexity.method_keys()}
columns = ("method", *counts["standard"])
path = Path(complexity.__file__).with_name("counted_costs.csv")
write_atomically(path, csv_text(columns, [(key, *map(int, row.values())) for key, row in counts.items()]).encode())
print(len(counts), "rows in", path)
