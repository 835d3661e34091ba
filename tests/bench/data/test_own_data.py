"""Folders of images, NumPy archives and arrays as data sets: what is read, under which name, and what is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from onelip.bench.data import Dataset, from_arrays, from_dataset, get_dataset, load, read_folder, read_npz
from onelip.bench.data.cache import cache_file
from onelip.bench.data.dataset import open_image
from onelip.errors import InvalidInputError, OnelipError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "cache"))


def pixels(*shape: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def write_images(folder: Path, images: NDArray[np.uint8], suffix: str = ".png") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{index:02}{suffix}", lossless=True)


def test_folder_with_train_and_test(tmp_path: Path) -> None:
    parts = {(part, name): pixels(3, 8, 6, 3) for part in ("train", "val") for name in ("cat", "dog")}
    for (part, name), images in parts.items():
        write_images(tmp_path / "pets" / part / name, images, ".webp" if name == "cat" else ".bmp")
    (tmp_path / "pets" / "train" / "cat" / ".DS_Store").write_bytes(b"\0")
    data = read_folder(tmp_path / "pets")
    assert data.class_names == ("cat", "dog")
    assert data.info.shape == (3, 8, 6)
    expected = np.concatenate([parts["train", "cat"], parts["train", "dog"]]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(data.train_images.numpy(), expected)
    np.testing.assert_array_equal(data.test_images.numpy()[3:], parts["val", "dog"].transpose(0, 3, 1, 2))
    assert data.train_labels.tolist() == data.test_labels.tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(data.info.mean, expected.mean((0, 2, 3)) / 255, atol=1e-8)
    assert data.name.startswith("folder:pets-")
    assert str(tmp_path / "pets") in data.note
    again = load(data.name)
    assert torch.equal(again.train_images, data.train_images)
    assert get_dataset(data.name) == data.info


def test_folder_without_a_test_set_is_split_by_class(tmp_path: Path) -> None:
    for name, count in (("a", 10), ("b", 2)):
        write_images(tmp_path / "grey" / name, pixels(count, 8, 8))
    data = read_folder(tmp_path / "grey")
    assert data.info.channels == 1
    assert torch.bincount(data.train_labels).tolist() == [8, 1]
    assert torch.bincount(data.test_labels).tolist() == [2, 1]
    assert "test set" in data.note


def test_the_name_changes_with_the_content_and_not_with_the_place(tmp_path: Path) -> None:
    images = pixels(2, 8, 8, 3)
    for place in ("one/pets", "two/pets"):
        for name in ("a", "b"):
            write_images(tmp_path / place / name, images)
    first = read_folder(tmp_path / "one" / "pets").name
    assert read_folder(tmp_path / "two" / "pets").name == first
    images[0, 0, 0, 0] ^= 1
    write_images(tmp_path / "two" / "pets" / "b", images)
    assert read_folder(tmp_path / "two" / "pets").name != first


def text_file(folder: Path) -> Path:
    (folder / "b" / "notes.txt").write_text("hello")
    return folder / "b" / "notes.txt"


def not_an_image(folder: Path) -> Path:
    (folder / "a" / "bad.png").write_bytes(b"GIF89a" + bytes(50))
    return folder / "a" / "bad.png"


def cut_short(folder: Path) -> Path:
    path = folder / "a" / "01.png"
    path.write_bytes(path.read_bytes()[:100])
    return path


def other_size(folder: Path) -> Path:
    Image.fromarray(pixels(9, 8, 3)).save(folder / "b" / "99.png")
    return folder / "b" / "99.png"


def transparent(folder: Path) -> Path:
    Image.fromarray(pixels(8, 8, 4), "RGBA").save(folder / "b" / "99.png")
    return folder / "b" / "99.png"


def sixteen_bits(folder: Path) -> Path:
    Image.fromarray(pixels(8, 8).astype(np.uint16) * 256).save(folder / "a" / "deep.png")
    return folder / "a" / "deep.png"


def animation(folder: Path) -> Path:
    frames = [Image.fromarray(image) for image in pixels(2, 8, 8, 3)]
    frames[0].save(folder / "a" / "film.webp", save_all=True, append_images=frames[1:], lossless=True)
    return folder / "a" / "film.webp"


def loose_image(folder: Path) -> Path:
    Image.fromarray(pixels(8, 8, 3)).save(folder / "loose.png")
    return folder / "loose.png"


BAD = [text_file, not_an_image, cut_short, other_size, transparent, sixteen_bits, animation, loose_image]


@pytest.mark.parametrize("spoil", BAD)
def test_bad_files_are_named_and_nothing_is_kept(tmp_path: Path, spoil: Callable[[Path], Path]) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / "pets" / name, pixels(3, 8, 8, 3))
    bad = spoil(tmp_path / "pets")
    with pytest.raises(InvalidInputError) as caught:
        read_folder(tmp_path / "pets")
    assert str(bad) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_unknown_class_in_the_test_set(tmp_path: Path) -> None:
    for place in ("train/a", "train/b", "test/a", "test/c"):
        write_images(tmp_path / "pets" / place, pixels(2, 8, 8, 3))
    with pytest.raises(InvalidInputError, match="test/c"):
        read_folder(tmp_path / "pets")


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "NHW"])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_npz(tmp_path: Path, layout: str, kind: type) -> None:
    images = pixels(10, 8, 8) if layout == "NHW" else pixels(10, 7, 9, 2)
    channels_first = images[:, None] if layout == "NHW" else images.transpose(0, 3, 1, 2)
    given = channels_first if layout == "NCHW" else images
    scaled = given if kind is np.uint8 else (given / 255).astype(kind)
    labels = np.arange(10) % 3
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, images=scaled, labels=labels, test_images=scaled[:4], test_labels=labels[:4])
    data = read_npz(path)
    np.testing.assert_array_equal(data.train_images.numpy(), channels_first)
    np.testing.assert_array_equal(data.test_labels.numpy(), labels[:4])
    assert data.name.startswith("npz:mine-")
    assert data.info.num_classes == 3
    assert torch.equal(load(data.name).test_images, data.test_images)


class Payload:
    """Would leave a trace if it were unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("unpickled",)


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"images": pixels(4, 8, 8)}, "labels"),
        ({"images": pixels(4, 8, 8), "labels": np.array([0, 1, 0])}, "labels"),
        ({"images": pixels(4, 8, 8), "labels": np.array([0, 2, 0, 2])}, "label 1"),
        ({"images": pixels(4, 8, 8), "labels": np.array([0.0, 1, 0, 1])}, "whole numbers"),
        ({"images": pixels(4, 8, 8) / 100, "labels": np.array([0, 1, 0, 1])}, r"\[0, 1\]"),
        ({"images": pixels(4, 8, 8).astype(np.int64), "labels": np.array([0, 1, 0, 1])}, "int64"),
        ({"images": pixels(4, 8, 3, 8), "labels": np.array([0, 1, 0, 1])}, "channels"),
        ({"images": np.array([Payload()], dtype=object), "labels": np.array([0])}, "objects"),
    ],
)
def test_bad_npz(
    tmp_path: Path, arrays: dict[str, NDArray[Any]], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType] - the stubs see allow_pickle in every name
    with pytest.raises(InvalidInputError, match=word) as caught:
        read_npz(path)
    assert str(path) in str(caught.value)
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("claim", [2**50, 65])
def test_npz_that_claims_more_than_it_has(tmp_path: Path, claim: int) -> None:
    path = tmp_path / "claim.npz"
    np.savez(path, images=pixels(4, 4, 4), labels=np.array([0, 1, 0, 1]))
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({claim}, 4, 4), }}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", content)
        archive.writestr("labels.npy", content)
    with pytest.raises(InvalidInputError, match=r"claim\.npz.*images"):
        read_npz(path)
    path.write_bytes(b"not a zip")
    with pytest.raises(InvalidInputError, match=r"claim\.npz"):
        read_npz(path)


def test_a_file_in_place_of_a_folder_and_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match=r"file: is a file, not a folder of images$"):
        read_folder(tmp_path / "file")
    with pytest.raises(InvalidInputError, match="damaged or not a NumPy archive"):
        read_npz(tmp_path)


def test_no_message_shows_an_object_of_python() -> None:
    with pytest.raises(OSError, match=r"^no image of the format PNG or BMP$"):
        open_image(b"junk", "PNG", "BMP")


def test_tensors_and_datasets() -> None:
    images, labels = torch.from_numpy(pixels(6, 3, 8, 8)), torch.tensor([0, 1, 0, 1, 0, 1])
    data = from_arrays(images, labels, images[:2], labels[:2], name="pair", class_names=("no", "yes"))
    assert torch.equal(data.train_images, images)
    same = torch.utils.data.TensorDataset(images, labels)
    again = from_dataset(same, torch.utils.data.Subset(same, [0, 1]), name="pair", class_names=("no", "yes"))
    assert again.name == data.name
    assert load(data.name).class_names == ("no", "yes")


def test_a_data_set_that_is_not_in_the_cache() -> None:
    data: Dataset = from_arrays(pixels(6, 8, 8), [0, 1, 0, 1, 0, 1])
    cache_file(data.info).unlink()
    with pytest.raises(OnelipError, match=data.name):
        get_dataset(data.name)
