"""Make `predicted_training_memory.csv` from records: python benchmarks/predicted_memory.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from onelip.bench import published
from onelip.bench.published.predicted_costs import FILE, IMAGE_SIZES
from onelip.bench.report.read_study import read_study
from onelip.bench.report.trained_models import current

rows = current(row for row in read_study(Path(sys.argv[1])).memory if row.source == "predicted")
table = pd.DataFrame(
    {
        "method": [row.network.method for row in rows],
        "size": [row.network.size_name for row in rows],
        "image_size": [IMAGE_SIZES[row.network.dataset] for row in rows],
        "training_bytes": [row.training for row in rows],
    }
)
path = Path(published.__file__).with_name(FILE)
table.to_csv(path, index=False)
print(len(table), "rows in", path)
