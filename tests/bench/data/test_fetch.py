"""The cache, and fetching into it: checks, failures that leave nothing behind."""

import errno
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onelip.atomic_files import WriteError
from onelip.bench.data import DataError, Dataset, DatasetInfo
from onelip.bench.data import cache as cache_module
from onelip.bench.data import catalogue as catalogue_module
from onelip.bench.data import fetch as fetch_module
from onelip.bench.data.cache import cache_file, load_cached, read_note, save
from onelip.bench.data.catalogue import CatalogueEntry, RemoteFile, get_entry, load
from onelip.bench.data.fetch import SourceError, fetch
from onelip.errors import InvalidInputError
from onelip.local_machine import cache_folder

INFO = DatasetInfo("toy", "Toy", 2, 16, 40, 10, (0.5, 0.5, 0.5), "none")


def make_dataset(note: str = "made") -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (50, 3, 16, 16), generator=generator, dtype=torch.uint8)
    labels = torch.arange(50) % 2
    return Dataset(INFO, images[:40], labels[:40], images[40:], labels[40:], ("a", "b"), note)


def read_toy(path: Path, progress: object) -> Dataset:
    if path.read_bytes() != b"good":
        raise InvalidInputError(f"{path}: not a toy")
    return make_dataset()


ENTRY = CatalogueEntry(INFO, RemoteFile("http://127.0.0.1:9/toy.tar", "", 4), read_toy)


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    monkeypatch.setenv("ONELIP_DATA", str(folder))
    return folder


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".lock")


def give(content: bytes):
    def deliver(source: object, folder: Path, progress: object) -> Path:
        file = folder / "toy.file"
        file.write_bytes(content)
        return file

    return deliver


def refuse(source: object, folder: Path, progress: object) -> Path:
    raise SourceError("nobody there")


def test_folder_from_the_environment_or_the_home_folder(data_folder, monkeypatch):
    assert cache_folder() == data_folder
    monkeypatch.delenv("ONELIP_DATA")
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/.cache/onelip")


def test_save_and_load(data_folder):
    data_folder.mkdir()
    save(make_dataset())
    loaded = load_cached(INFO)
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(loaded, name), getattr(make_dataset(), name))
    assert (loaded.class_names, loaded.note, loaded.info) == (("a", "b"), "made", INFO)
    assert read_note(INFO) == "made"


@pytest.mark.parametrize("place", [5, 100, 5_000, -3], ids=["length", "header", "images", "labels"])
def test_one_flipped_byte_anywhere_is_found(data_folder, place):
    data_folder.mkdir()
    content = bytearray(save(make_dataset()).read_bytes())
    content[place] ^= 0x10
    cache_file(INFO).write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        load_cached(INFO)


@pytest.mark.parametrize("size", [0, 7, 1000, -1])
def test_truncated_cache_is_found(data_folder, size):
    data_folder.mkdir()
    content = save(make_dataset()).read_bytes()
    cache_file(INFO).write_bytes(content[:size])
    with pytest.raises(DataError, match="onelip data fetch toy"):
        load_cached(INFO)


def test_file_of_another_format_version(data_folder, monkeypatch):
    data_folder.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "FORMAT_VERSION", 99)
        save(make_dataset())
    with pytest.raises(DataError, match="format 99, expected 2; run `onelip data fetch toy`"):
        load_cached(INFO)


def test_note_of_a_damaged_file(data_folder):
    assert read_note(INFO) is None
    data_folder.mkdir()
    cache_file(INFO).write_bytes(b"something else")
    assert read_note(INFO) == "damaged"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_images": torch.zeros(40, 3, 16, 16)}, "images must be uint8"),
        ({"test_images": torch.zeros(10, 3, 16, 15, dtype=torch.uint8)}, "images must be uint8"),
        ({"test_labels": torch.zeros(9, dtype=torch.int64)}, "one int64 label per image"),
        ({"train_labels": torch.zeros(40)}, "one int64 label per image"),
        ({"train_labels": torch.full((40,), 2)}, r"labels must lie in 0\.\.1"),
        ({"test_labels": torch.full((10,), -1)}, r"labels must lie in 0\.\.1"),
        ({"class_names": ("a",)}, "needs 2 class names, got 1"),
    ],
)
def test_data_sets_that_do_not_fit_together(change, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(make_dataset(), **change)


def test_missing_data_set_says_how_to_get_it():
    with pytest.raises(DataError, match="get it with `onelip data fetch cifar10`"):
        load("cifar10")
    with pytest.raises(InvalidInputError, match="unknown data set 'mnist'; known: cifar10, "):
        load("mnist")


def test_what_was_not_in_the_cache_is_not_remembered(monkeypatch):
    """Not even where something else has stood in for it, as the small data set of other tests does."""
    with monkeypatch.context() as patch:
        patch.setattr(catalogue_module, "load_cached", lambda info: make_dataset())
        assert load("cifar10").note == "made"
    with pytest.raises(DataError, match="cifar10 is not in"):
        load("cifar10")


def test_download_into_the_cache(data_folder, monkeypatch):
    monkeypatch.setattr(fetch_module, "download", give(b"good"))
    fetch(ENTRY)
    assert files_below(data_folder) == ["toy.safetensors"]
    assert torch.equal(load_cached(INFO).train_images, make_dataset().train_images)


def test_leftovers_of_killed_processes_are_removed(data_folder, monkeypatch):
    data_folder.mkdir()
    (data_folder / ".toy.safetensors.123.onelip-tmp").touch()
    monkeypatch.setattr(fetch_module, "download", give(b"good"))
    fetch(ENTRY)
    assert files_below(data_folder) == ["toy.safetensors"]


def test_nobody_answers(data_folder, monkeypatch):
    monkeypatch.setattr(fetch_module, "download", refuse)
    with pytest.raises(DataError, match="cannot fetch toy: nobody there; if you have the files"):
        fetch(ENTRY)
    assert files_below(data_folder) == []


def test_foreign_content_leaves_nothing_and_keeps_the_old(data_folder, monkeypatch):
    data_folder.mkdir()
    save(make_dataset("old"))
    monkeypatch.setattr(fetch_module, "download", give(b"bad"))
    with pytest.raises(InvalidInputError, match="not a toy"):
        fetch(ENTRY)
    assert files_below(data_folder) == ["toy.safetensors"]
    assert load_cached(INFO).note == "old"


def test_from_a_path(data_folder, tmp_path):
    mine = tmp_path / "mine"
    mine.write_bytes(b"good")
    fetch(ENTRY, mine)
    assert mine.exists()
    assert files_below(data_folder) == ["toy.safetensors"]
    mine.write_bytes(b"bad")
    with pytest.raises(InvalidInputError, match="not a toy"):
        fetch(ENTRY, mine)
    assert load_cached(INFO).note == "made"


def test_embedded_data_is_not_fetched():
    with pytest.raises(InvalidInputError, match="comes with the package"):
        fetch(get_entry("cifar10-mini"))


def test_full_disk_while_storing_keeps_the_old(data_folder, tmp_path, monkeypatch):
    data_folder.mkdir()
    save(make_dataset("old"))
    mine = tmp_path / "mine"
    mine.write_bytes(b"good")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(WriteError, match="No space left"):
            fetch(ENTRY, mine)
    assert files_below(data_folder) == ["toy.safetensors"]
    assert load_cached(INFO).note == "old"


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    monkeypatch.setenv("ONELIP_DATA", str(folder))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_really_full_disk(small_disk, tmp_path):
    mine = tmp_path / "mine"
    mine.write_bytes(b"good")
    with pytest.raises(WriteError, match="No space left"):
        fetch(ENTRY, mine)
    assert files_below(small_disk) == []
    with pytest.raises(DataError, match=r"toy needs .* MB in .* are free"):
        fetch(ENTRY)
    assert files_below(small_disk) == []


def test_unusable_folder(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match=r"cannot write in .*ONELIP_DATA"):
        fetch(ENTRY)


def test_two_fetches_at_a_time_are_refused(data_folder):
    def read_while_another_starts(path: Path, progress: object) -> Dataset:
        with pytest.raises(InvalidInputError, match="another process writes here"):
            fetch(ENTRY, path)
        return make_dataset()

    fetch(replace(ENTRY, read=read_while_another_starts), data_folder)
    assert load_cached(INFO).note == "made"
