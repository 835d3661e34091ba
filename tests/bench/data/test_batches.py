"""Splits and batches: determinism, resuming, sharing between processes, normalisation."""

import pytest
import torch

from onelip.bench.data import (
    BatchStream,
    CropFlip,
    Dataset,
    DatasetInfo,
    DataSplit,
    evaluation_batches,
    make_splits,
    normalise,
)
from onelip.errors import InvalidInputError

INFO = DatasetInfo("toy", "Toy", 4, 8, 200, 20, (0.1, 0.2, 0.3), "crop-flip")


def toy(count: int = 200) -> Dataset:
    """Every image has its own number in all pixels of channels 0 and 1, so that it can be recognised."""
    images = torch.arange(count, dtype=torch.int64).to(torch.uint8)[:, None, None, None].repeat(1, 3, 8, 8)
    labels = torch.arange(count) ** 2 % 4
    labels[:4] = torch.arange(4)
    return Dataset(INFO, images, labels, images[:20], labels[:20], ("a", "b", "c", "d"))


def numbers(images: torch.Tensor) -> list[int]:
    """Which images these normalised ones are."""
    return ((images[:, 0, 4, 4] + INFO.mean[0]) * 255).round().int().tolist()


def stream(**options) -> BatchStream:
    dataset = toy()
    split = DataSplit(dataset.train_images, dataset.train_labels, INFO.mean)
    return BatchStream(split, **({"batch_size": 32, "seed": 3, "augment": CropFlip()} | options))


def collect(source: BatchStream, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    while len(found) < count:
        for batch in source:
            found.append(batch)
            if len(found) == count:
                break
    return found


def equal(first, second) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(first, second, strict=True)
    )


def test_validation_split_is_seeded_disjoint_and_stratified():
    dataset = toy()
    splits = make_splits(dataset, 0.1, seed=5)
    train, validation = splits.train.images[:, 0, 0, 0].tolist(), splits.validation.images[:, 0, 0, 0].tolist()
    assert sorted(train + validation) == list(range(200))
    wanted = (torch.bincount(dataset.train_labels, minlength=4) * 0.1).round().int()
    assert torch.bincount(splits.validation.labels, minlength=4).tolist() == wanted.tolist()
    for part in (splits.train, splits.validation):
        assert torch.equal(part.labels, dataset.train_labels[part.images[:, 0, 0, 0].long()])
    assert torch.equal(make_splits(dataset, 0.1, seed=5).validation.images, splits.validation.images)
    assert not torch.equal(make_splits(dataset, 0.1, seed=6).validation.images, splits.validation.images)
    assert torch.equal(splits.test.images, dataset.test_images)


def test_split_fractions():
    assert len(make_splits(toy(), 0.0).validation) == 0
    assert len(make_splits(toy(), 0.0).train) == 200
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(InvalidInputError, match=r"validation_fraction must be in \[0, 1\)"):
            make_splits(toy(), fraction)


def test_split_and_order_do_not_change_between_versions():
    """Records of old runs stay comparable only as long as these stay as they are."""
    validation = make_splits(toy(), 0.05, seed=0).validation
    assert validation.images[:, 0, 0, 0].tolist() == [30, 61, 75, 78, 83, 104, 144, 151, 161, 190]
    assert numbers(next(iter(stream(augment=None)))[0])[:8] == [133, 40, 179, 197, 3, 170, 112, 183]


def test_normalisation_is_a_shift_of_the_unit_interval():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).repeat(3, 1)[None, :, None, :]
    expected = torch.tensor([0.0, 0.2, 1.0]) - torch.tensor(INFO.mean)[:, None]
    assert torch.allclose(normalise(images, INFO.mean)[0, :, 0], expected, atol=1e-7)
    assert images.dtype == torch.uint8


def test_one_epoch_shows_every_image_once_and_drops_the_rest():
    source = stream(augment=None)
    assert len(source) == 6
    first, second = (
        [n for images, _ in list(source) for n in numbers(images)],
        [n for images, _ in list(source) for n in numbers(images)],
    )
    assert len(set(first)) == len(first) == 192
    assert first != second, "each epoch has its own order"
    whole = stream(augment=None, drop_last=False)
    assert sorted(n for images, _ in whole for n in numbers(images)) == list(range(200))
    assert len(stream(drop_last=False)) == 7


def test_labels_belong_to_their_images():
    dataset = toy()
    for images, labels in stream(augment=None):
        assert torch.equal(labels, dataset.train_labels[numbers(images)])


def test_same_seed_same_batches_and_nothing_global_is_touched():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = collect(stream(), 14)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert equal(first, collect(stream(), 14))
    assert not equal(first, collect(stream(seed=4), 14))


@pytest.mark.parametrize("stop", [0, 1, 5, 6, 7, 13])
def test_resuming_anywhere_is_bit_identical(stop):
    uninterrupted = collect(stream(), 20)
    before = stream()
    collect(before, stop)
    after = stream()
    after.seek(stop)
    assert (after.epoch, after.batch) == (before.epoch, before.batch)
    assert equal(collect(after, 20 - stop), uninterrupted[stop:])


@pytest.mark.parametrize("world_size", [2, 4])
def test_ranks_share_the_batch_of_a_single_process(world_size):
    single = collect(stream(drop_last=False), 9)
    ranks = [collect(stream(drop_last=False, rank=r, world_size=world_size), 9) for r in range(world_size)]
    for number, (images, labels) in enumerate(single):
        assert torch.equal(torch.cat([rank[number][0] for rank in ranks]), images)
        assert torch.equal(torch.cat([rank[number][1] for rank in ranks]), labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "positive multiple"),
        ({"batch_size": 33, "world_size": 2}, "positive multiple of world_size 2"),
        ({"batch_size": 201}, "larger than the 200 images"),
        ({"rank": 2, "world_size": 2}, "rank must be in"),
        ({"rank": -1}, "rank must be in"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(InvalidInputError, match=message):
        stream(**options)


def test_bad_positions():
    with pytest.raises(InvalidInputError, match="0 or more"):
        stream().seek(-1)


def test_evaluation_sees_every_image_once_in_order_and_unchanged():
    split = make_splits(toy(), 0.1).validation
    images, labels = (torch.cat(parts) for parts in zip(*evaluation_batches(split, 7), strict=True))
    assert torch.equal(images, normalise(split.images, split.mean))
    assert torch.equal(labels, split.labels)
    assert list(evaluation_batches(make_splits(toy(), 0.0).validation)) == []
    with pytest.raises(InvalidInputError, match="1 or more"):
        next(evaluation_batches(split, 0))
