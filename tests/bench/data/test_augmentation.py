"""Augmentations against their definition, image by image, and against Pillow."""

import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps

from onelip.bench.data import CropFlip, load, make_augmentation
from onelip.bench.data.augmentation import OPERATIONS, RandAugment
from onelip.errors import InvalidInputError


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    """30 real photographs."""
    return load("cifar10-mini").train_images[:30]


def test_crop_and_flip_by_slicing_one_image_at_a_time(images):
    augmentation = CropFlip()
    draws = augmentation.draw(len(images), torch.Generator().manual_seed(0))
    result = augmentation.apply(images, draws)
    for image, changed, (top, left, flip) in zip(images, result, draws.tolist(), strict=True):
        expected = F.pad(image, [4, 4, 4, 4])[:, top : top + 32, left : left + 32]
        assert torch.equal(changed, expected.flip(2) if flip else expected)


def test_crops_and_flips_are_uniform():
    draws = CropFlip().draw(90_000, torch.Generator().manual_seed(0))
    for column, values in ((0, 9), (1, 9), (2, 2)):
        counts = torch.bincount(draws[:, column], minlength=values)
        assert len(counts) == values
        assert (counts - 90_000 / values).abs().max() < 5 * (90_000 / values) ** 0.5


def test_non_square_images(images):
    wide = images[:, :, :20, :]
    draws = torch.tensor([[4, 4, 0]] * 30)
    assert torch.equal(CropFlip().apply(wide, draws), wide)


def apply_one(images: torch.Tensor, name: str, sign: int) -> torch.Tensor:
    draws = torch.tensor([[OPERATIONS.index(name), sign, OPERATIONS.index("identity"), 1]] * len(images))
    return RandAugment().apply(images, draws)


def pillow(images: torch.Tensor, change) -> torch.Tensor:
    pictures = [change(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in images]
    return torch.stack([torch.from_numpy(np.array(picture)).permute(2, 0, 1) for picture in pictures])


def affine(a: float, b: float, c: float, d: float, e: float, f: float):
    return lambda x: x.transform(x.size, Image.Transform.AFFINE, (a, b, c, d, e, f), Image.Resampling.NEAREST)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    ("name", "change", "tolerance"),
    [
        ("brightness", lambda x, s: ImageEnhance.Brightness(x).enhance(1 + 0.27 * s), 1),
        ("colour", lambda x, s: ImageEnhance.Color(x).enhance(1 + 0.27 * s), 2),
        ("contrast", lambda x, s: ImageEnhance.Contrast(x).enhance(1 + 0.27 * s), 2),
        ("sharpness", lambda x, s: ImageEnhance.Sharpness(x).enhance(1 + 0.27 * s), 2),
        ("posterize", lambda x, s: ImageOps.posterize(x, 7), 1),
        ("solarize", lambda x, s: ImageOps.solarize(x, 179), 1),
        ("autocontrast", lambda x, s: ImageOps.autocontrast(x), 1),
        ("equalize", lambda x, s: ImageOps.equalize(x), 3),
        ("translate-x", lambda x, s: affine(1, 0, -4 * s, 0, 1, 0)(x), 0),
        ("translate-y", lambda x, s: affine(1, 0, 0, 0, 1, -4 * s)(x), 0),
        ("identity", lambda x, s: x, 0),
    ],
)
def test_operations_agree_with_pillow(images, name, change, tolerance, sign):
    expected = pillow(images, lambda picture: change(picture, sign)).int()
    assert (apply_one(images, name, sign).int() - expected).abs().max() <= tolerance


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rotate", lambda x, s: x.rotate(-9 * s, Image.Resampling.NEAREST)),
        ("shear-x", lambda x, s: affine(1, -0.09 * s, 0, 0, 1, 0)(x)),
        ("shear-y", lambda x, s: affine(1, 0, 0, -0.09 * s, 1, 0)(x)),
    ],
)
def test_warps_agree_with_pillow_up_to_ties_of_nearest_neighbours(images, name, change, sign):
    expected = pillow(images, lambda picture: change(picture, sign))
    same = (apply_one(images, name, sign) == expected).float().mean()
    wrong_way = (apply_one(images, name, -sign) == expected).float().mean()
    assert same > 0.9
    assert wrong_way < 0.6


def test_every_image_gets_its_own_operations(images):
    augmentation = RandAugment()
    draws = augmentation.draw(len(images), torch.Generator().manual_seed(0))
    together = augmentation.apply(images, draws)
    alone = torch.cat([augmentation.apply(images[n : n + 1], draws[n : n + 1]) for n in range(len(images))])
    assert (together.int() - alone.int()).abs().max() <= 1
    assert together.dtype == torch.uint8
    assert len({tuple(row) for row in draws.tolist()}) > 20


def test_constant_images_survive():
    flat = torch.full((1, 3, 64, 64), 90, dtype=torch.uint8)
    for name in ("autocontrast", "equalize", "contrast", "sharpness", "colour"):
        assert torch.equal(apply_one(flat, name, 1), flat), name


def test_draws_are_uniform_over_operations():
    draws = RandAugment().draw(14_000, torch.Generator().manual_seed(0))
    assert draws.shape == (14_000, 4)
    for column in (0, 2):
        counts = torch.bincount(draws[:, column], minlength=len(OPERATIONS))
        assert len(counts) == 14
        assert (counts - 1000).abs().max() < 5 * 1000**0.5
    assert draws[:, 1::2].unique().tolist() == [-1, 1]


def test_bad_arguments_and_missing_kornia(monkeypatch):
    with pytest.raises(InvalidInputError, match="padding"):
        CropFlip(-1)
    with pytest.raises(InvalidInputError, match="unknown augmentation 'mixup'"):
        make_augmentation("mixup")  # type: ignore[arg-type]
    assert make_augmentation("none") is None
    assert isinstance(make_augmentation("crop-flip"), CropFlip)
    monkeypatch.setitem(sys.modules, "kornia", None)
    with pytest.raises(InvalidInputError, match=r"onelip\[augment\]"):
        make_augmentation("randaugment")


def test_the_border_has_the_mean_colour() -> None:
    """The paper pads images from which the mean is subtracted already, with zeros."""
    images = torch.full((64, 3, 8, 8), 200, dtype=torch.uint8)
    crop = make_augmentation("crop-flip", (0.5, 0.25, 0.0))
    assert crop is not None
    cropped = crop.apply(images, crop.draw(64, torch.Generator().manual_seed(0)))
    assert [set(cropped[:, channel].unique().tolist()) for channel in range(3)] == [{128, 200}, {64, 200}, {0, 200}]
