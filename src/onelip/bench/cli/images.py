"""Test images of a data set in batches that fit a network, for the commands that look at a trained one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor, nn

from onelip.bench.data import get_dataset, load, normalise
from onelip.bench.runs import is_run, read_record
from onelip.checkpoints import load_model
from onelip.errors import InvalidInputError
from onelip.factories import search_working_folder
from onelip.models import ConvNet

MODEL_HELP = "module:function that built the network, if it is one of your own; importing it runs its code."


def load_trusted(checkpoint: str, model: str | None) -> nn.Module:
    """The network in a file, or one of onelip's own; a factory is imported only if the user has named it."""
    search_working_folder()
    return load_model(checkpoint, allow=() if model is None else (model,))


def trained_on(checkpoint: str) -> str:
    """The data set of the run in whose folder a file lies; cifar10-mini where it lies in none."""
    return _dataset_of_run(checkpoint) or "cifar10-mini"


def shape_of_inputs(model: nn.Module, checkpoint: str) -> tuple[int, ...] | None:
    """That which a network declares, else that of the data it was trained on; None where neither is known."""
    dataset = _dataset_of_run(checkpoint)
    return getattr(model, "input_shape", None) or (None if dataset is None else get_dataset(dataset).shape)


def _dataset_of_run(checkpoint: str) -> str | None:
    folder = Path(checkpoint).absolute().parent
    return read_record(folder).network.dataset if is_run(folder) else None


def first_test_images(model: nn.Module, dataset: str, samples: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The first test images, as the network takes them: pixels in [0, 1] minus the channel means."""
    info = get_dataset(dataset)
    if isinstance(model, ConvNet):
        classes = model.config.num_classes
        if model.input_shape != info.shape or classes != info.num_classes:
            raise InvalidInputError(
                f"the network takes {model.input_shape} and has {classes} classes, {dataset} has {info.shape} and "
                f"{info.num_classes}: choose another --dataset"
            )
    if samples < 1 or batch_size < 1:
        raise InvalidInputError(f"samples={samples} and batch_size={batch_size} must be at least 1")
    data = load(dataset)
    images, labels = data.test_images[:samples], data.test_labels[:samples]
    for part, part_labels in zip(images.split(batch_size), labels.split(batch_size), strict=True):
        yield normalise(part, info.mean), part_labels
