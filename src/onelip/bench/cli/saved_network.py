"""The options of commands that look at a trained network, and the test images that it is shown.

Types are no texts here: cyclopts would look them up in the module of the class that inherits an option.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from torch import Tensor, nn

from onelip.bench.cli.options import AT_LEAST_1, DATASET, Output, dataset_name
from onelip.bench.data import get_dataset, load, normalise
from onelip.bench.records import is_run, read_record
from onelip.checkpoints import load_model
from onelip.errors import InvalidInputError
from onelip.factories import search_working_folder
from onelip.models import ConvNet


@dataclass(frozen=True, kw_only=True)
class SavedNetwork(Output):
    """A network in a file."""

    checkpoint: str = field(kw_only=False)
    """File written by onelip.save_model, such as model.safetensors of a run, or name of one of onelip's own
    networks."""
    model: str | None = None
    """module:function that built the network, if it is one of your own; importing it runs its code."""

    def network(self) -> nn.Module:
        """The network; a factory is imported only if the user has named it."""
        search_working_folder()
        return load_model(self.checkpoint, allow=() if self.model is None else (self.model,))

    def training_data(self) -> str | None:
        """The data set of the run in whose folder the file lies."""
        folder = Path(self.checkpoint).absolute().parent
        return read_record(folder).network.dataset if is_run(folder) else None


@dataclass(frozen=True, kw_only=True)
class NetworkOnImages(SavedNetwork):
    """A network in a file, and test images for it."""

    dataset: Annotated[str | None, DATASET] = None
    """Where the test images come from; by default what the network was trained on, if the file lies in the folder of
    its run, else cifar10-mini."""
    samples: Annotated[int, AT_LEAST_1] = 100
    """Number of test images."""

    def first_images(self, model: nn.Module, batch_size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """The first test images, as the network takes them: pixels in [0, 1] minus the channel means."""
        name = (self.training_data() or "cifar10-mini") if self.dataset is None else dataset_name(self.dataset)
        info = get_dataset(name)
        if isinstance(model, ConvNet):
            classes = model.config.num_classes
            if model.input_shape != info.shape or classes != info.num_classes:
                raise InvalidInputError(
                    f"the network takes {model.input_shape} and has {classes} classes, {name} has {info.shape} and "
                    f"{info.num_classes}: choose another --dataset"
                )
        data, size = load(name), batch_size or self.samples
        images, labels = data.test_images[: self.samples], data.test_labels[: self.samples]
        for part, part_labels in zip(images.split(size), labels.split(size), strict=True):
            yield normalise(part, info.mean), part_labels
