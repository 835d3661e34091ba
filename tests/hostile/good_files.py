"""The good files that are damaged: one folder for each kind, small, made by the program itself."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import tiny_data
from PIL import Image
from synthetic_study import layers, train_config, train_metrics

from onelip.bench.cli import run
from onelip.bench.data import catalogue, cifar
from onelip.bench.data.cifar import Part, read_cifar
from onelip.bench.data.tiny_imagenet import TINY_IMAGENET, read_tiny_imagenet
from onelip.bench.records import RunStatus, start_run
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import add_to_study
from onelip.bench.training import LeftEarly, TrainOptions, train

NETWORK = ("--method", "standard", "--width", "4", "--dataset", "tiny", "--batch-size", "64", "--device", "cpu")
TRAIN = ("train", *NETWORK, "--epochs", "1", "--quiet", "--skip-test")
SEARCH = ("search", *NETWORK, "--epochs", "1", "--trials", "2", "--quiet", "--studies-dir", "searches")
TINY_ZIP = replace(TINY_IMAGENET, num_classes=2, train_size=4, test_size=2)


def make_runs(folder: Path) -> None:
    """A training with its log and weights, and records of every status and kind that the report shows."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert run([*TRAIN, "--runs-dir", str(folder / "runs")]) == 0
    for seed, method in enumerate(("aol", "soc")):
        config = train_config(method, "XS", "cifar10", "1m", seed)
        with start_run(folder / "runs", "train", config) as one:
            one.update(status=RunStatus.FINISHED, metrics=train_metrics(0.5, 0.6, 60.0) | {"diagnostics": layers(0.9)})
            lines = [{"step": step, "train_loss": 1 / step, "lr": 0.1} for step in range(1, 9)]
            (one.folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with start_run(folder / "runs", "train", train_config("lot", "S", "cifar10", "1m")) as one:
        one.update(status=RunStatus.FAILED, reason="out of memory")
    for quantity, metrics in (
        ("memory", {"parameters": 1, "training": 2, "inference": 3}),
        ("macs", {"parameters": 1, "input": 1, "training_step": 2, "inference": 3}),
        ("time", {"training": _phase(), "inference": _phase(), "seconds_per_epoch": 1.0}),
    ):
        network = train_config("aol", "XS", "cifar10", "1m")["network"]
        config = {"network": network, "batch_size": 8, "quantity": quantity, "device": "cpu", "hardware": "one core"}
        with start_run(folder / "runs", "measure", config) as one:
            one.update(status=RunStatus.FINISHED, metrics={"fits": True, **metrics})


def _phase() -> dict[str, dict[str, float]]:
    return {name: {"median": 1.0, "low": 0.9, "high": 1.1} for name in ("seconds", "reference_seconds", "ratio")}


def make_study(folder: Path) -> None:
    """A plan of one training, which is done."""
    network: dict[str, Any] = {"methods": ("standard",), "sizes": (), "width": 4, "datasets": ("tiny",)}
    options = StudyOptions(**network, epochs=1, batch_size=64, recipe="short", measure="none")
    jobs = plan(options)
    add_to_study(folder / "study", [options], jobs)
    for job in jobs:
        assert run(["job", str(folder / "study"), job.name]) == 0


def make_checkpoint(folder: Path) -> None:
    """A training that was stopped after three steps."""
    steps = itertools.count(1)
    options = TrainOptions(device="cpu", checkpoint_seconds=0.0, stop_requested=lambda: next(steps) >= 3)
    spec = tiny_data.run_spec(method="standard", width=4, dataset="tiny", batch_size=64, epochs=1)
    with contextlib.suppress(LeftEarly):
        train(spec, folder / "runs", options)
    assert list((folder / "runs").glob("*/checkpoint.bin"))


def make_search(folder: Path) -> None:
    """A search whose trials are done."""
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        assert run([*SEARCH]) == 0


def make_archives(folder: Path) -> None:
    """CIFAR-10 in its three forms and Tiny ImageNet, each with a handful of images; see `small_data_sets`."""
    _write_tar(folder / "binary.tar.gz", {f"{part.name}.bin": _records(part) for part in _PARTS})
    labels = {split: [int(r[0]) for p in _PARTS if p.split == split for r in _rows(p)] for split in ("train", "test")}
    pictures = {f"{part.name}.png": _strip(part) for part in _PARTS}
    names = {f"{split}_lables.json": json.dumps(values).encode() for split, values in labels.items()}
    _write_tar(folder / "npm.tgz", pictures | names)
    with zipfile.ZipFile(folder / "tiny.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _tiny_files().items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)


def make_images(folder: Path) -> None:
    """A folder of images with two classes, in four formats, and the same as arrays."""
    pixels = np.random.default_rng(0).integers(256, size=(8, 8, 8, 3), dtype=np.uint8)
    suffixes = itertools.cycle(("png", "jpg", "webp", "bmp"))
    for index, image in enumerate(pixels):
        place = folder / "photos" / "ab"[index % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{index}.{next(suffixes)}")
    np.savez_compressed(folder / "data.npz", images=pixels, labels=np.arange(8) % 2)
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["data", "add", str(folder / "data.npz")]) == 0
    shutil.move(str(Path.cwd() / "cache"), folder / "cache")


MAKERS: dict[str, Callable[[Path], None]] = {
    "runs": make_runs,
    "study": make_study,
    "checkpoint": make_checkpoint,
    "search": make_search,
    "archives": make_archives,
    "images": make_images,
}


@contextlib.contextmanager
def small_data_sets() -> Iterator[None]:
    """The data set "tiny" is known, and the official ones have a handful of images, so that good archives are small."""
    layout = replace(cifar.CIFAR10, parts=_PARTS)
    with contextlib.ExitStack() as stack:
        tiny_data.install(lambda target, name, value: stack.enter_context(patch.object(target, name, value)))
        entries = dict(catalogue._ENTRIES)
        entries["cifar10"] = replace(entries["cifar10"], read=lambda path, progress: read_cifar(path, layout, progress))
        entries["tiny-imagenet"] = replace(
            entries["tiny-imagenet"],
            read=lambda path, progress: read_tiny_imagenet(path, progress, info=TINY_ZIP, zip_md5=""),
        )
        stack.enter_context(patch.object(catalogue, "_ENTRIES", entries))
        yield


def _rows(part: Part) -> np.ndarray:
    random = np.random.default_rng(len(part.name))
    return np.concatenate([random.integers(10, size=(part.count, 1)), random.integers(256, size=(part.count, 3072))], 1)


def _records(part: Part) -> bytes:
    return _rows(part).astype(np.uint8).tobytes()


def _strip(part: Part) -> bytes:
    pixels = _rows(part)[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def _parts() -> tuple[Part, ...]:
    plain = (Part("data_1", "train", 3, ""), Part("test_one", "test", 2, ""))
    return tuple(replace(part, sha256=hashlib.sha256(_records(part)).hexdigest()) for part in plain)


def _tiny_files() -> dict[str, bytes]:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(256, size=(64, 64, 3), dtype=np.uint8)).save(stream, "JPEG")
    classes = ("n00000001", "n00000002")
    files = {"wnids.txt": "\n".join(classes).encode(), "words.txt": b"n00000001\tcat\nn00000002\tdog\n"}
    files |= {f"train/{key}/images/{key}_{n}.JPEG": stream.getvalue() for key in classes for n in range(2)}
    files |= {f"val/images/val_{n}.JPEG": stream.getvalue() for n in range(2)}
    lines = (f"val_{n}.JPEG\t{key}\t0\t0\t1\t1\n" for n, key in enumerate(classes))
    return files | {"val/val_annotations.txt": "".join(lines).encode()}


def _write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


_PARTS = _parts()
