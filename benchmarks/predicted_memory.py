"""Make `predicted_training_memory.csv` from records: python benchmarks/predicted_memory.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from onelip.bench import published
from onelip.bench.published.predicted_costs import FILE, IMAGE_SIZES
from onelip.bench.report.read_study import read_study
from onelip.bench.report.trained_models import current

KEYS = ["method", "size", "image_size"]


def peaks(source: str, column: str) -> pd.Series:
    """Bytes of training by network, of one kind of prediction."""
    rows = current(row for row in read_study(Path(sys.argv[1])).memory if row.source == source)
    places = [(row.network.method, row.network.size_name, IMAGE_SIZES[row.network.dataset]) for row in rows]
    index = pd.MultiIndex.from_tuples(places, names=KEYS)
    return pd.Series([row.training for row in rows], index, name=column)


predictions = [peaks("predicted", "cpu_bytes"), peaks("predicted for a GPU", "gpu_bytes")]
table = pd.concat(predictions, axis=1).astype(int).reset_index()  # a network that lacks one of the two is an error
path = Path(published.__file__).with_name(FILE)
table.to_csv(path, index=False)
print(len(table), "rows in", path)
