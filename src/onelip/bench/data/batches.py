"""Batches as float tensors minus the channel means, a pure function of (seed, epoch, batch number).

All random choices of an epoch (order and augmentation) are drawn from a generator made for that epoch and moved
to the device once. Resuming needs the epoch and the batch number, nothing else, and costs the same anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from onelip.bench.data.augmentation import Augmentation
from onelip.bench.data.dataset import DataSplit, generator_for
from onelip.errors import InvalidInputError


def normalise(images: Tensor, mean: tuple[float, ...]) -> Tensor:
    """uint8 (N, C, H, W) to float32 `x / 255 - mean`: the unit of distance stays that of pixels in [0, 1]."""
    offset = torch.tensor(mean, device=images.device)[:, None, None]
    return images.to(torch.float32).div_(255).sub_(offset)


class BatchStream:
    """Endless training batches; iterating gives the rest of the current epoch and moves on to the next.

    With `world_size` processes each gets its share of the same global batch of `batch_size` images, so that the
    union over ranks is the batch of a single process.

    >>> from onelip.bench.data import load, make_splits
    >>> stream = BatchStream(make_splits(load("cifar10-mini")).train, batch_size=256, seed=0)
    >>> images, labels = next(iter(stream))
    >>> images.shape, stream.epoch, stream.batch, len(stream)
    (torch.Size([256, 3, 32, 32]), 0, 1, 14)
    """

    def __init__(
        self,
        split: DataSplit,
        batch_size: int,
        seed: int,
        augment: Augmentation | None = None,
        *,
        drop_last: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not 0 <= rank < world_size:
            raise InvalidInputError(f"rank must be in 0..world_size-1, got rank {rank} of {world_size}")
        if batch_size < 1 or batch_size % world_size:
            raise InvalidInputError(
                f"batch_size must be a positive multiple of world_size {world_size}, got {batch_size}"
            )
        if drop_last and len(split) < batch_size:
            raise InvalidInputError(
                f"batch_size {batch_size} is larger than the {len(split)} images there are; choose at most {len(split)}"
            )
        self.split, self.batch_size, self.seed, self.augment = split, batch_size, seed, augment
        self.drop_last, self.rank, self.world_size = drop_last, rank, world_size
        self.epoch = 0
        self.batch = 0

    def __len__(self) -> int:
        """Batches per epoch."""
        full, rest = divmod(len(self.split), self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches that remain in the current epoch."""
        order, draws = self._plan(self.epoch)
        for number in range(self.batch, len(self)):
            # The position counts the batch as done before it is handed out: whoever saves it after the step
            # on this batch continues with the next one.
            self.epoch, self.batch = divmod(self.epoch * len(self) + number + 1, len(self))
            yield self._make(number, order, draws)

    def seek(self, step: int) -> None:
        """Go to the position after `step` batches from the very beginning."""
        if step < 0:
            raise InvalidInputError(f"step must be 0 or more, got {step}")
        self.epoch, self.batch = divmod(step, len(self))

    def _plan(self, epoch: int) -> tuple[Tensor, Tensor | None]:
        count, device = len(self.split), self.split.images.device
        order = torch.randperm(count, generator=generator_for(self.seed, "order", epoch))
        if self.augment is None:
            return order.to(device), None
        draws = self.augment.draw(count, generator_for(self.seed, "augmentation", epoch))
        return order.to(device), draws.to(device)

    def _make(self, number: int, order: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        start = number * self.batch_size
        size = min(self.batch_size, len(self.split) - start)
        mine = slice(start + size * self.rank // self.world_size, start + size * (self.rank + 1) // self.world_size)
        chosen = order[mine]
        images = self.split.images.index_select(0, chosen)
        if self.augment is not None and draws is not None:
            images = self.augment.apply(images, draws[mine])
        return normalise(images, self.split.mean), self.split.labels.index_select(0, chosen)


def evaluation_batches(split: DataSplit, batch_size: int = 512) -> Iterator[tuple[Tensor, Tensor]]:
    """Every image of a split once, in order, never augmented; the last batch may be smaller."""
    if batch_size < 1:
        raise InvalidInputError(f"batch_size must be 1 or more, got {batch_size}")
    for images, labels in zip(split.images.split(batch_size), split.labels.split(batch_size), strict=True):
        if len(labels):  # splitting nothing gives one empty part
            yield normalise(images, split.mean), labels
