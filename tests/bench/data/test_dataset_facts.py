"""Facts about the data sets of the paper that are known from elsewhere: means, class counts, augmentation."""

from __future__ import annotations

import pytest
import torch

from onelip.bench.data import load, make_augmentation
from onelip.bench.data.augmentation import CropFlip
from onelip.protocol import DATA_SETS

KNOWN = {
    # classes, side, training and test images, channel means as the literature rounds them
    "cifar10": (10, 32, 50_000, 10_000, (0.4914, 0.4822, 0.4465)),
    "cifar100": (100, 32, 50_000, 10_000, (0.5071, 0.4865, 0.4409)),
    "tiny-imagenet": (200, 64, 100_000, 10_000, (0.4802, 0.4481, 0.3975)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_facts_are_those_of_the_literature(name: str) -> None:
    classes, side, train, test, means = KNOWN[name]
    info = DATA_SETS[name]
    assert (info.num_classes, info.image_size, info.train_size, info.test_size) == (classes, side, train, test)
    assert info.mean == pytest.approx(means, abs=6e-5)
    assert info.augmentation == ("randaugment" if name == "tiny-imagenet" else "crop-flip")


def test_the_embedded_images_have_the_mean_of_cifar10() -> None:
    """4,000 images whose means deviate by 0.12: a standard error of 0.002."""
    data = load("cifar10-mini")
    means = (data.train_images.double() / 255).mean((0, 2, 3)).tolist()
    assert means == pytest.approx(KNOWN["cifar10"][4], abs=0.008)
    assert torch.bincount(data.train_labels).tolist() == [400] * 10


def test_crops_are_those_of_the_paper() -> None:
    """Four pixels on each side in the mean colour: a black border, had zeros been padded before the mean was taken."""
    augmentation = make_augmentation("crop-flip", DATA_SETS["cifar10"].mean)
    assert isinstance(augmentation, CropFlip)
    assert augmentation.padding == 4
    assert augmentation.fill == (125, 123, 114)
    draws = augmentation.draw(2000, torch.Generator().manual_seed(0))
    assert draws.amin(0).tolist() == [0, 0, 0]
    assert draws.amax(0).tolist() == [8, 8, 1]
