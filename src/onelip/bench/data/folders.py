"""Data sets from a folder of images with one sub-folder per class, with or without train/ and test/ above them.

Everything is looked at before anything is kept: a file that is no image, or is unlike the others, is named and ends the
reading. PNG, JPEG, WebP and BMP are decoded, nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onelip.bench.data.archive import check_regular
from onelip.bench.data.arrays import Pixels, assemble
from onelip.bench.data.cache import kept, own_name
from onelip.bench.data.dataset import UNREADABLE_IMAGE, Dataset, Progress, decode_all, in_threads, open_image, silent
from onelip.errors import InvalidInputError
from onelip.machine_memory import most_bytes

FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
LARGEST_FILE = 2**26
LARGEST_SIDE = 4096
_GREY, _COLOUR = ("1", "L"), ("P", "RGB", "RGBA", "LA")
_IGNORED = ("Thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class _ImageFile:
    path: Path
    label: int
    digest: str
    size: tuple[int, int]
    mode: str


def read_folder(folder: Path | str, progress: Progress = silent, seed: int = 0) -> Dataset:
    """The data set in a folder; it is kept in the cache, from which it comes the next time.

    Classes are the sub-folders in alphabetical order: those of `folder`, or of `folder/train` with the test set in
    `folder/test` or `folder/val`.
    """
    folder = Path(folder)
    check_regular(folder)
    if not folder.is_dir():
        raise InvalidInputError(f"{folder}: is a file, not a folder of images")
    roots, names = _layout(folder)
    parts = [_survey(root, names, progress) for root in roots]
    _check_alike([file for part in parts for file in part])
    digest = hashlib.sha256(repr((names, seed if len(parts) == 1 else None)).encode())
    for root, part in zip(roots, parts, strict=True):
        for file in part:
            digest.update(
                f"{file.path.relative_to(root).as_posix()}\0{file.digest}\n".encode("utf-8", "surrogateescape")
            )
        digest.update(b"\n")
    name = own_name("folder", folder.resolve().name, digest.hexdigest())

    def decoded() -> Dataset:
        grey = all(file.mode in _GREY for part in parts for file in part)
        arrays = [(_decode(part, grey, progress), np.array([f.label for f in part], dtype=np.int64)) for part in parts]
        try:
            return assemble(name, arrays, names, f"read from {folder.resolve()}", seed)
        except InvalidInputError as error:
            raise InvalidInputError(f"{folder}: {error}") from error

    return kept(name, decoded)


def _layout(folder: Path) -> tuple[list[Path], list[str]]:
    """The folders above the classes (training, and test if there is one) and the names of the classes."""
    train = folder / "train"
    if not (train.is_dir() and _folders(train)):
        roots = [folder]
    else:
        roots = [train, *[folder / name for name in ("test", "val") if (folder / name).is_dir()][:1]]
    names = _folders(roots[0])
    if len(names) < 2:
        raise InvalidInputError(f"{roots[0]}: needs one sub-folder of images for each of two or more classes")
    if len(roots) == 2 and (strange := set(_folders(roots[1])) - set(names)):
        raise InvalidInputError(f"{roots[1] / min(strange)}: no class of this name in {roots[0]}")
    return roots, names


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _survey(root: Path, names: Sequence[str], progress: Progress) -> list[_ImageFile]:
    """All images below a folder, each read and looked at but not decoded."""
    if loose := sorted(file for file in root.iterdir() if file.suffix.lower() in SUFFIXES):
        raise InvalidInputError(f"{loose[0]}: an image outside of the folders of the classes")
    paths = [(path, label) for label, name in enumerate(names) for path in _images(root / name)]
    if not paths:
        raise InvalidInputError(f"{root}: has no images")
    return in_threads(lambda pair: _look(*pair), paths, "reading images", progress)


def _images(folder: Path) -> list[Path]:
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    entries = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in _IGNORED]
    for entry in entries:
        if not entry.is_file() or entry.suffix.lower() not in SUFFIXES:
            raise InvalidInputError(f"{entry}: not an image file; allowed in a class: {', '.join(SUFFIXES)}")
    return entries


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidInputError(f"{path}: has {path.stat().st_size:,} bytes, more than {LARGEST_FILE:,}")
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _open(path: Path, content: bytes) -> Image.Image:
    try:
        return open_image(content, *FORMATS)
    except UNREADABLE_IMAGE as error:
        raise InvalidInputError(f"{path}: not a readable image; allowed: {', '.join(FORMATS)}") from error


def _look(path: Path, label: int) -> _ImageFile:
    content = _content(path)
    with _open(path, content) as image:
        if image.mode not in _GREY + _COLOUR:
            raise InvalidInputError(f"{path}: has the colour mode {image.mode}; allowed: grey or RGB, 8 bits each")
        if max(image.size) > LARGEST_SIDE:
            raise InvalidInputError(f"{path}: has {_pixels(image.size)} pixels; at most {LARGEST_SIDE} a side")
        if getattr(image, "n_frames", 1) != 1:
            raise InvalidInputError(f"{path}: is an animation of {getattr(image, 'n_frames', 0)} pictures")
        return _ImageFile(path, label, hashlib.sha256(content).hexdigest(), image.size, image.mode)


def _check_alike(files: Sequence[_ImageFile]) -> None:
    first = files[0]
    for file in files:
        if file.size != first.size:
            raise InvalidInputError(
                f"{file.path}: has {_pixels(file.size)} pixels, {first.path} has {_pixels(first.size)}; "
                "all images must have one size: scale or crop them first"
            )
    if 3 * len(files) * first.size[0] * first.size[1] > most_bytes():
        raise InvalidInputError(f"{first.path.parent.parent}: more than {most_bytes():,} bytes of pixels")


def _decode(files: Sequence[_ImageFile], grey: bool, progress: Progress) -> Pixels:
    width, height = files[0].size
    return decode_all(lambda file: _decoded(file, grey), files, (1 if grey else 3, height, width), progress)


def _decoded(file: _ImageFile, grey: bool) -> NDArray[np.uint8]:
    content = _content(file.path)
    if hashlib.sha256(content).hexdigest() != file.digest:
        raise InvalidInputError(f"{file.path}: changed while it was read")
    with _open(file.path, content) as image:
        try:
            if "A" in image.mode or "transparency" in image.info:
                least = image.convert("RGBA").getchannel("A").getextrema()[0]
                if least != 255:
                    raise InvalidInputError(f"{file.path}: has transparent pixels; save it without transparency")
            pixels = np.asarray(image.convert("L" if grey else "RGB"))
        except InvalidInputError:
            raise
        except UNREADABLE_IMAGE as error:
            raise InvalidInputError(f"{file.path}: damaged or cut short ({error!s:.100})") from error
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def _pixels(size: tuple[int, int]) -> str:
    """Height and width, of what Pillow gives as width and height."""
    return f"{size[1]} x {size[0]}"
