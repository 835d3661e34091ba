"""Data sets as uint8 tensors on the device: reading, verifying, splitting, batching and augmenting them."""

from onelip.bench.data.arrays import from_arrays, from_dataset
from onelip.bench.data.augmentation import Augmentation, CropFlip, make_augmentation
from onelip.bench.data.batches import BatchStream, evaluation_batches, normalise
from onelip.bench.data.catalogue import get_dataset, list_datasets, load
from onelip.bench.data.dataset import DataError, Dataset
from onelip.bench.data.folders import read_folder
from onelip.bench.data.npz import read_npz
from onelip.bench.data.splits import DataSplit, Splits, make_splits
from onelip.protocol import AugmentationName, DatasetInfo

__all__ = [
    "Augmentation",
    "AugmentationName",
    "BatchStream",
    "CropFlip",
    "DataError",
    "DataSplit",
    "Dataset",
    "DatasetInfo",
    "Splits",
    "evaluation_batches",
    "from_arrays",
    "from_dataset",
    "get_dataset",
    "list_datasets",
    "load",
    "make_augmentation",
    "make_splits",
    "normalise",
    "read_folder",
    "read_npz",
]
