"""The embedded data set: real, balanced, lossless, small, and taken from CIFAR-10 by the documented rule."""

import os
import sys
from pathlib import Path

import onelip_cifar10_mini
import pytest
import torch

from onelip.bench.data import DataError, catalogue, list_datasets, load

FOLDER = Path(onelip_cifar10_mini.__file__).parent


def test_balance_in_every_prefix_and_size_on_disk():
    dataset = load("cifar10-mini")
    assert "cifar10-mini" in list_datasets()
    for labels, count in ((dataset.train_labels, 4000), (dataset.test_labels, 1000)):
        assert labels.tolist() == [n % 10 for n in range(count)]
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 10e6


def test_pixels_of_images_that_everybody_knows():
    dataset = load("cifar10-mini")
    # The first image of the official training set is a frog, that of the official test set a cat; their first
    # pixels are (59, 62, 63) and (158, 112, 49).
    assert dataset.train_images[6, :, 0, 0].tolist() == [59, 62, 63]
    assert dataset.class_names[6] == "frog"
    assert dataset.test_images[3, :, 0, 0].tolist() == [158, 112, 49]
    assert dataset.class_names[3] == "cat"
    means = dataset.train_images.float().mean((0, 2, 3)) / 255
    assert torch.allclose(means, torch.tensor(dataset.info.mean), atol=0.01)
    both = torch.cat([dataset.train_images, dataset.test_images]).flatten(1)
    assert len(both.unique(dim=0)) == 5000


def test_damage_is_found(monkeypatch, tmp_path):
    catalogue._read.cache_clear()
    monkeypatch.setattr(catalogue, "IMAGES_SHA256", "0" * 64)
    with pytest.raises(DataError, match="cifar10-mini is damaged"):
        load("cifar10-mini")
    (tmp_path / "airplane.webp").write_bytes(b"RIFF")
    monkeypatch.setattr(catalogue.resources, "files", lambda _: tmp_path)
    with pytest.raises(DataError, match=r"cannot read the embedded airplane\.webp"):
        load("cifar10-mini")


def test_images_that_are_not_installed_are_an_error_with_the_remedy(monkeypatch):
    catalogue._read.cache_clear()
    monkeypatch.setitem(sys.modules, "onelip_cifar10_mini", None)
    with pytest.raises(DataError, match="pip install"):
        load("cifar10-mini")


@pytest.mark.skipif("FULL_CIFAR10" not in os.environ, reason="FULL_CIFAR10 names no folder with cifar10.safetensors")
def test_rule_against_the_full_data_set(monkeypatch):
    monkeypatch.setenv("ONELIP_DATA", os.environ["FULL_CIFAR10"])
    full, mini = load("cifar10"), load("cifar10-mini")
    for split, per_class in (("train", 400), ("test", 100)):
        images, labels = getattr(full, f"{split}_images"), getattr(full, f"{split}_labels")
        for label in range(10):
            expected = images[labels == label][:per_class]
            assert torch.equal(getattr(mini, f"{split}_images")[label::10], expected)
