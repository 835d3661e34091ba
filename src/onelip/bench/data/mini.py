"""`cifar10-mini`: 4,000 training and 1,000 test images of CIFAR-10 that come with the extra `bench`.

The rule: of each class, the first 400 images of the official training set and the first 100 of the official
test set. Each class is one lossless WebP, 32 pixels wide, its 500 images below each other, training images first
(8.2 MB in all; PNG would need 11.6 MB), in a distribution of its own, packages/cifar10-mini, which the library is
smaller without. Image number i of every class comes before image number i + 1 of any, so
that every prefix is balanced.
"""

from __future__ import annotations

import hashlib
from importlib import resources

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from onelip.bench.data.cifar import CIFAR10_CLASSES
from onelip.bench.data.dataset import UNREADABLE_IMAGE, DataError, Dataset
from onelip.protocol import DATA_SETS

_TRAIN_PER_CLASS, _TEST_PER_CLASS = 400, 100
IMAGES_SHA256 = "72e29263643a834701a1f232c18577ba4a0526b1376895a64dc3a3bbbee60f1a"
"""Of the (10, 500, 32, 32, 3) pixel bytes: classes in order, training images before test images."""

MINI = DATA_SETS["cifar10-mini"]


def read_mini() -> Dataset:
    """Decode the embedded images (0.2 s) and check them against their checksum."""
    pixels = np.stack([_class_pixels(name) for name in CIFAR10_CLASSES])
    if hashlib.sha256(pixels.data).hexdigest() != IMAGES_SHA256:
        raise DataError("the embedded cifar10-mini is damaged; reinstall onelip")
    train, test = pixels[:, :_TRAIN_PER_CLASS], pixels[:, _TRAIN_PER_CLASS:]
    tensors = (*_interleave(train), *_interleave(test))
    return Dataset(MINI, *tensors, class_names=CIFAR10_CLASSES, note="embedded in the package")


def _class_pixels(name: str) -> NDArray[np.uint8]:
    try:
        file = resources.files("onelip_cifar10_mini") / f"{name}.webp"
        with file.open("rb") as stream, Image.open(stream) as image:
            pixels = np.asarray(image.convert("RGB"))
    except ModuleNotFoundError:
        raise DataError("the images of cifar10-mini are not installed; in a clone: pip install '.[bench]'") from None
    except UNREADABLE_IMAGE as error:
        raise DataError(f"cannot read the embedded {name}.webp ({error}); reinstall onelip and pillow") from error
    if pixels.shape != ((_TRAIN_PER_CLASS + _TEST_PER_CLASS) * 32, 32, 3):
        raise DataError(f"the embedded {name}.webp has the wrong size {pixels.shape}; reinstall onelip")
    return pixels.reshape(-1, 32, 32, 3)


def _interleave(pixels_knhwc: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
    classes, count = pixels_knhwc.shape[:2]
    images = np.ascontiguousarray(pixels_knhwc.transpose(1, 0, 4, 2, 3)).reshape(-1, 3, 32, 32)
    return torch.from_numpy(images), torch.arange(classes).repeat(count)
