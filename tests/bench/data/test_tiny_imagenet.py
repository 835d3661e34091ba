"""Reading Tiny ImageNet from small synthetic zips and folders in the official layout."""

import hashlib
import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onelip.bench.data.tiny_imagenet import TINY_IMAGENET, read_tiny_imagenet
from onelip.errors import InvalidInputError

INFO = replace(TINY_IMAGENET, num_classes=3, train_size=36, test_size=3)
CLASSES = ("n00000009", "n00000002", "n00000005")  # not sorted, as in the official file
LEVELS = {"n00000002": 40, "n00000005": 120, "n00000009": 200}


def jpeg(level: int, mode: str = "RGB", size: int = 64) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (size, size), (level,) * 3 if mode == "RGB" else level).save(stream, "JPEG")
    return stream.getvalue()


def official_files(per_class: int = 12) -> dict[str, bytes]:
    """Every image has the grey level of its class plus its number, so that order and labels can be checked."""
    files = {"wnids.txt": "\n".join(CLASSES).encode() + b"\n", "words.txt": b"n00000002\tgoldfish, Carassius\n"}
    for key in CLASSES:
        for number in range(per_class):
            mode = "L" if number == 3 else "RGB"  # a few official images are grey
            files[f"train/{key}/images/{key}_{number}.JPEG"] = jpeg(LEVELS[key] + number, mode)
        files[f"train/{key}/{key}_boxes.txt"] = b"ignored"
    lines = []
    for number, key in enumerate(CLASSES):
        files[f"val/images/val_{number}.JPEG"] = jpeg(LEVELS[key] + 50)
        lines.append(f"val_{number}.JPEG\t{key}\t0\t0\t63\t63\n")
    files["val/val_annotations.txt"] = "".join(lines).encode()
    files["test/images/test_0.JPEG"] = b"never read: its label is not public"
    return files


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)
    return path


def read(path: Path, md5: str = ""):
    return read_tiny_imagenet(path, info=INFO, zip_md5=md5)


def test_order_labels_and_classes(tmp_path):
    dataset = read(write_zip(tmp_path / "a.zip", official_files()))
    assert dataset.train_labels.tolist() == [0] * 12 + [1] * 12 + [2] * 12
    assert dataset.test_labels.tolist() == [2, 0, 1]
    # Image 10 comes after image 9, not after image 1 as file names would sort.
    levels = dataset.train_images.float().mean((1, 2, 3)).round().int().tolist()
    assert levels == [LEVELS[key] + n for key in sorted(CLASSES) for n in range(12)]
    assert dataset.test_images.float().mean((1, 2, 3)).round().int().tolist() == [250, 90, 170]
    assert dataset.class_names == ("goldfish", "n00000005", "n00000009")


@pytest.mark.parametrize("outer", [True, False])
def test_folder_gives_the_same_as_the_zip(tmp_path, outer):
    path = write_zip(tmp_path / "a.zip", official_files())
    zipfile.ZipFile(path).extractall(tmp_path)
    from_folder = read(tmp_path if outer else tmp_path / "tiny-imagenet-200")
    assert np.array_equal(from_folder.train_images, read(path).train_images)
    assert from_folder.note.startswith("complete: 36 of 36 training")


def test_official_zip_and_subset_are_told_apart(tmp_path):
    path = write_zip(tmp_path / "a.zip", official_files())
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    assert read(path, md5).note == "official zip, checksum verified"
    subset = read(write_zip(tmp_path / "b.zip", official_files(per_class=4)), md5)
    assert len(subset.train_labels) == 12
    assert subset.note == "subset: 12 of 36 training and 3 of 3 test images; not the official zip, so not verified"


def damage(files: dict[str, bytes], what: str) -> dict[str, bytes]:
    name = "train/n00000002/images/n00000002_7.JPEG"
    match what:
        case "cut":
            files[name] = files[name][:-200]
        case "foreign":
            files[name] = b"GIF89a"
        case "size":
            files[name] = jpeg(10, size=63)
        case "class":
            files["train/n00000077/images/n00000077_0.JPEG"] = jpeg(1)
        case "empty class":
            files = {key: value for key, value in files.items() if "n00000005/" not in key}
        case "ids":
            files["wnids.txt"] = b"n00000002\n"
        case "no ids":
            del files["wnids.txt"]
        case "no labels":
            del files["val/val_annotations.txt"]
        case "strange label":
            files["val/val_annotations.txt"] = b"val_0.JPEG\tn00000077\t0\n"
        case "no test images":
            files["val/val_annotations.txt"] = b"other.JPEG\tn00000002\t0\n"
    return files


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("cut", "n00000002_7.JPEG is not a readable JPEG"),
        ("foreign", "n00000002_7.JPEG is not a readable JPEG"),
        ("size", "63, 63"),
        ("class", "n00000077 is not a class"),
        ("empty class", "no training images for 1 of 3 classes"),
        ("ids", "names 1 classes, expected 3"),
        ("no ids", "no wnids.txt"),
        ("no labels", "val_annotations"),
        ("strange label", "n00000077"),
        ("no test images", "no validation image"),
    ],
)
def test_damaged_content_is_named(tmp_path, what, message):
    path = write_zip(tmp_path / "a.zip", damage(official_files(), what))
    with pytest.raises(InvalidInputError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_zips(tmp_path):
    path = write_zip(tmp_path / "a.zip", official_files())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInputError, match="damaged"):
        read(path)
    image = official_files()["train/n00000002/images/n00000002_7.JPEG"]
    place = whole.index(image) + len(image) // 2
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(InvalidInputError, match="Bad CRC-32"):
        read(path)
    with pytest.raises(InvalidInputError, match="no such file"):
        read(tmp_path / "absent.zip")
    with pytest.raises(InvalidInputError, match="not a Tiny ImageNet folder"):
        read(tmp_path)


def test_hostile_zips_and_folders(tmp_path):
    files = official_files()
    bomb = write_zip(tmp_path / "bomb.zip", files | {"wnids.txt": bytes(2**24 + 1)})
    with pytest.raises(InvalidInputError, match=r"wnids\.txt has 16,777,217 bytes"):
        read(bomb)
    content = bytearray(write_zip(tmp_path / "encrypted.zip", files).read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag "encrypted" of every member
        start = -1
        while (start := content.find(mark, start + 1)) >= 0:
            content[start + place] |= 1
    (tmp_path / "encrypted.zip").write_bytes(content)
    with pytest.raises(InvalidInputError, match="encrypted"):
        read(tmp_path / "encrypted.zip")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "wnids.txt").write_bytes(files["wnids.txt"])
    os.mkfifo(tmp_path / "folder" / "words.txt")
    with pytest.raises(InvalidInputError, match="neither a regular file"):
        read(tmp_path / "folder")
