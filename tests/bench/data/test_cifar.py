"""Reading CIFAR in its three forms, from small synthetic files in the official formats."""

import hashlib
import io
import json
import pickle
import struct
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onelip.bench.data.cifar import CIFAR10, CIFAR100, CifarLayout, Part, read_cifar
from onelip.bench.data.safe_pickle import load_cifar_pickle
from onelip.errors import InvalidInputError


def python2_pickle(items: dict[str, object]) -> bytes:
    """A protocol 2 pickle with the opcodes that Python 2 and its NumPy wrote: byte strings and `_reconstruct`."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def encode(value: object) -> bytes:
        match value:
            case str():
                return text(value.encode())
            case int():
                return b"J" + struct.pack("<i", value)
            case list():
                return b"](" + b"".join(map(encode, value)) + b"e"
            case np.ndarray():
                shape = b"(" + b"".join(encode(int(n)) for n in value.shape) + b"t"
                made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
                dtype = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNNtb"
                return made + b"(K\x01" + shape + dtype + b"\x89" + text(value.tobytes()) + b"tb"
            case _:
                raise TypeError(value)

    return b"\x80\x02}(" + b"".join(encode(k) + encode(v) for k, v in items.items()) + b"u."


@dataclass
class Synthetic:
    """A small data set in the official formats: 2 files of 6 training images and one of 4 test images."""

    layout: CifarLayout
    records: dict[str, np.ndarray]

    def pickles(self) -> dict[str, bytes]:
        width = len(self.layout.label_keys)
        return {
            name: python2_pickle(
                {"batch_label": name, "data": np.ascontiguousarray(records[:, width:])}
                | {key: records[:, i].tolist() for i, key in enumerate(self.layout.label_keys)}
            )
            for name, records in self.records.items()
        }

    def binaries(self) -> dict[str, bytes]:
        return {f"{name}.bin": records.tobytes() for name, records in self.records.items()}

    def npm(self) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        labels: dict[str, list[int]] = {"train": [], "test": []}
        for part in self.layout.parts:
            records = self.records[part.name]
            pixels = np.empty((len(records), 1024, 3), np.uint8)
            for n, row in enumerate(records):
                for channel in range(3):
                    pixels[n, :, channel] = row[1 + 1024 * channel : 1 + 1024 * (channel + 1)]
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, "PNG")
            files[f"{part.name}.png"] = stream.getvalue()
            labels[part.split] += records[:, 0].tolist()
        return files | {f"{split}_lables.json": json.dumps(values).encode() for split, values in labels.items()}


def synthesise(official: CifarLayout) -> Synthetic:
    random = np.random.default_rng(0)
    fine, coarse = official.info.num_classes, 20
    records: dict[str, np.ndarray] = {}
    parts: list[Part] = []
    for name, split, count in (("part_1", "train", 6), ("part_2", "train", 6), ("final", "test", 4)):
        columns = [random.integers(coarse, size=(count, 1))] * (len(official.label_keys) - 1)
        columns += [random.integers(fine, size=(count, 1)), random.integers(256, size=(count, 3072))]
        records[name] = np.concatenate(columns, axis=1).astype(np.uint8)
        digest = hashlib.sha256(records[name].tobytes()).hexdigest()
        parts.append(Part(name, split, count, digest))  # type: ignore[arg-type]
    return Synthetic(replace(official, parts=tuple(parts)), records)


def write_tar(path: Path, files: dict[str, bytes], folder: str = "cifar/") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(folder + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("official", [CIFAR10, CIFAR100], ids=["cifar10", "cifar100"])
@pytest.mark.parametrize("form", ["pickles", "binaries"])
@pytest.mark.parametrize("packed", [True, False])
def test_every_form_gives_the_same_official_images(official, form, packed, tmp_path):
    data = synthesise(official)
    files = getattr(data, form)() | {"readme.html": b"not wanted"}
    if packed:
        path = write_tar(tmp_path / "archive.tar.gz", files)
    else:
        path = tmp_path / "outer"
        (path / "inner").mkdir(parents=True)
        for name, content in files.items():
            (path / "inner" / name).write_bytes(content)
    dataset = read_cifar(path, data.layout)
    label_bytes = len(official.label_keys)
    train = np.concatenate([data.records["part_1"], data.records["part_2"]])
    assert dataset.train_labels.tolist() == train[:, label_bytes - 1].tolist()
    # Pixel (row 5, column 7) of the green channel of image 8, by the formula of the official description.
    assert dataset.train_images[8, 1, 5, 7] == train[8, label_bytes + 1024 + 5 * 32 + 7]
    assert torch.equal(dataset.test_images.flatten(1), torch.from_numpy(data.records["final"][:, label_bytes:]))


def test_npm_mirror_gives_the_same_images(tmp_path):
    data = synthesise(CIFAR10)
    mirror = read_cifar(write_tar(tmp_path / "a.tgz", data.npm(), "package/"), data.layout)
    official = read_cifar(write_tar(tmp_path / "b.tgz", data.binaries()), data.layout)
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(mirror, name), getattr(official, name))


@pytest.mark.parametrize("form", ["pickles", "binaries", "npm"])
@pytest.mark.parametrize("what", ["pixel", "label"])
def test_one_changed_byte_is_found(form, what, tmp_path):
    data = synthesise(CIFAR10)
    data.records["part_2"][3, 0 if what == "label" else 1500] ^= 1
    with pytest.raises(InvalidInputError, match="part_2 is not the official file"):
        read_cifar(write_tar(tmp_path / "a.tar.gz", getattr(data, form)()), data.layout)


def test_swapped_files_are_found(tmp_path):
    data = synthesise(CIFAR10)
    data.records["part_1"], data.records["part_2"] = data.records["part_2"], data.records["part_1"]
    with pytest.raises(InvalidInputError, match="part_1 is not the official file"):
        read_cifar(write_tar(tmp_path / "a.tar.gz", data.binaries()), data.layout)


def test_truncated_archive_and_truncated_member(tmp_path):
    data = synthesise(CIFAR10)
    path = write_tar(tmp_path / "a.tar.gz", data.binaries())
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(InvalidInputError, match="damaged, cut short or not a tar archive"):
        read_cifar(path, data.layout)
    short = data.binaries()
    short["part_1.bin"] = short["part_1.bin"][:-1]
    with pytest.raises(InvalidInputError, match=r"part_1\.bin is cut short"):
        read_cifar(write_tar(path, short), data.layout)
    short["part_1.bin"] = short["part_1.bin"][: 5 * 3073]
    with pytest.raises(InvalidInputError, match="part_1 holds 5 images"):
        read_cifar(write_tar(path, short), data.layout)


def test_foreign_missing_and_incomplete_files(tmp_path):
    data = synthesise(CIFAR10)
    foreign = tmp_path / "photo.jpg"
    foreign.write_bytes(b"\xff\xd8 not an archive")
    with pytest.raises(InvalidInputError, match="not a tar archive"):
        read_cifar(foreign, data.layout)
    with pytest.raises(InvalidInputError, match="no such file"):
        read_cifar(tmp_path / "absent", data.layout)
    files = data.binaries()
    del files["final.bin"]
    with pytest.raises(InvalidInputError, match="not a complete CIFAR-10"):
        read_cifar(write_tar(tmp_path / "a.tar.gz", files), data.layout)


class Malicious:
    """Unpickling this by the book would create the file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


def test_pickle_that_wants_to_run_something_is_refused(tmp_path):
    data, target = synthesise(CIFAR10), tmp_path / "owned"
    files = data.pickles()
    files["part_1"] = pickle.dumps({"data": Malicious(target), "labels": []}, protocol=2)
    with pytest.raises(InvalidInputError, match="which no official CIFAR file does"):
        read_cifar(write_tar(tmp_path / "a.tar.gz", files), data.layout)
    assert not target.exists()
    pickle.loads(files["part_1"])
    assert target.exists(), "the file above must really be an attack, or this test shows nothing"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged pickle"),
        (b"\x80\x02}(", "damaged pickle"),
        (pickle.dumps([1, 2]), "not the dictionary"),
        (b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n)Ru.", "not plain uint8"),
    ],
)
def test_damaged_pickles_are_reported(content, message):
    with pytest.raises(InvalidInputError, match=message):
        load_cifar_pickle(content)


def test_pickle_without_the_right_keys(tmp_path):
    data = synthesise(CIFAR10)
    files = data.pickles() | {"part_1": python2_pickle({"something": 1})}
    with pytest.raises(InvalidInputError, match="part_1 is not a CIFAR pickle"):
        read_cifar(write_tar(tmp_path / "a.tar.gz", files), data.layout)


def test_constants_of_the_official_layouts():
    for layout in (CIFAR10, CIFAR100):
        info = layout.info
        assert len(layout.class_names) == len(set(layout.class_names)) == info.num_classes
        assert list(layout.class_names) == sorted(layout.class_names)
        assert sum(part.count for part in layout.parts if part.split == "train") == info.train_size
        assert sum(part.count for part in layout.parts if part.split == "test") == info.test_size
