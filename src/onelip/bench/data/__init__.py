"""Data sets as uint8 tensors on the device: reading, verifying, splitting, batching and augmenting them."""

from onelip.bench.data.arrays import from_arrays as from_arrays
from onelip.bench.data.arrays import from_dataset as from_dataset
from onelip.bench.data.augmentation import CropFlip as CropFlip
from onelip.bench.data.augmentation import make_augmentation as make_augmentation
from onelip.bench.data.batches import BatchStream as BatchStream
from onelip.bench.data.batches import evaluation_batches as evaluation_batches
from onelip.bench.data.batches import normalise as normalise
from onelip.bench.data.catalogue import list_datasets as list_datasets
from onelip.bench.data.catalogue import load as load
from onelip.bench.data.dataset import DataError as DataError
from onelip.bench.data.dataset import Dataset as Dataset
from onelip.bench.data.dataset import DataSplit as DataSplit
from onelip.bench.data.dataset import Splits as Splits
from onelip.bench.data.dataset import make_splits as make_splits
from onelip.bench.data.folders import read_folder as read_folder
from onelip.bench.data.npz import read_npz as read_npz
from onelip.bench.records.data_sets import dataset_info
from onelip.protocol import DatasetInfo as DatasetInfo

get_dataset = dataset_info
