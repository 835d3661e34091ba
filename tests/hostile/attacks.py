"""Attacks that no random damage finds: each was thought out, and each is one case of the corpus."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hostile.good_files import SEARCH, TRAIN
from hostile.trials import Trial
from PIL import Image
from synthetic_study import train_config

from onelip.bench.records import RunStatus, dump_json, parse_json, start_run

NASTY = "\x1b]0;owned\x07\x9b2J\u202e\ud800[red]x[/red][/]\\042\\076<img src=x onerror=hit()>"
REPORT = ("report", "runs", "--out", "out", "--no-theory")
_VICTIM = "victim"


def _only(sandbox: Path, pattern: str) -> Path:
    return sorted(sandbox.glob(pattern))[0]


def _sparse(path: Path, size: int = 2**40) -> None:
    """A file that claims a terabyte and takes no room."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _link_to_victim(path: Path, sandbox: Path) -> None:
    (sandbox / _VICTIM).write_text("precious\n")
    path.unlink(missing_ok=True)
    path.symlink_to(sandbox / _VICTIM)


def _folder_link(path: Path, sandbox: Path) -> None:
    (sandbox / _VICTIM).mkdir()
    for name in ("record.json", "output.log", "log.jsonl", "keep.txt"):
        (sandbox / _VICTIM / name).write_text("precious\n")
    if path.is_dir():
        path.rename(sandbox / "elsewhere")
    path.symlink_to(sandbox / _VICTIM)


def sparse_record(sandbox: Path) -> Trial:
    record = _only(sandbox, "runs/*/record.json")
    _sparse(record)
    return Trial(REPORT, names=(record.parent.name,))


def sparse_log(sandbox: Path) -> Trial:
    log = _only(sandbox, "runs/train-aol*/log.jsonl")
    _sparse(log)
    return Trial(REPORT, names=(log.parent.name, "log.jsonl"))


def piped_log(sandbox: Path) -> Trial:
    log = _only(sandbox, "runs/train-aol*/log.jsonl")
    _pipe(log)
    return Trial(REPORT, names=(log.parent.name, "log.jsonl"))


def piped_record(sandbox: Path) -> Trial:
    record = _only(sandbox, "runs/*/record.json")
    _pipe(record)
    return Trial(("runs", "show", record.parent.name))


def piped_run(sandbox: Path) -> Trial:
    folder = _only(sandbox, "runs/*/record.json").parent
    folder.rename(sandbox / "elsewhere")
    os.mkfifo(folder)
    return Trial(REPORT)


def sparse_model(sandbox: Path) -> Trial:
    model = _only(sandbox, "runs/*/model.safetensors")
    with model.open("r+b") as file:
        file.truncate(2**40)
    return Trial(("check", str(model), "--dataset", "tiny"), is_sealed=True)


def sparse_plan(sandbox: Path) -> Trial:
    _sparse(sandbox / "study/study.json")
    return Trial(("jobs", "study"), is_sealed=True)


def twice_in_the_plan(sandbox: Path) -> Trial:
    path = sandbox / "study/study.json"
    path.write_text(path.read_text().rstrip()[:-1] + ', "jobs": []}')
    return Trial(("jobs", "study"), is_sealed=True)


def endless_plan(sandbox: Path) -> Trial:
    path = sandbox / "study/study.json"
    tree = parse_json(path.read_text())
    tree["options"][0] |= {"search_runs": 10**9}
    path.write_text(dump_json(tree))
    return Trial(("jobs", "study"), is_sealed=True)


def crowded_plan(sandbox: Path) -> Trial:
    jobs = [{"name": [f"job {number}"], "kind": "train", "needs": []} for number in range(50_000)]
    (sandbox / "runs/study.json").write_text(json.dumps({"jobs": jobs, "notes": [NASTY * 1000] * 1000}))
    return Trial(REPORT)


def linked_notes(sandbox: Path) -> Trial:
    attempts = _only(sandbox, "study/jobs/*/attempts.jsonl")
    _link_to_victim(attempts, sandbox)
    _only(sandbox, "study/runs/*/record.json").unlink()
    return Trial(("job", "study", attempts.parent.name), is_sealed=True, untouched=(_VICTIM,), refusal=74)


def linked_job(sandbox: Path) -> Trial:
    job = _only(sandbox, "study/jobs/*")
    _folder_link(job, sandbox)
    return Trial(("job", "study", job.name), is_sealed=True, untouched=(_VICTIM,))


def linked_run(sandbox: Path) -> Trial:
    folder = _only(sandbox, "runs/train-standard*")
    _folder_link(folder, sandbox)
    return Trial((*TRAIN, "--runs-dir", "runs"), is_sealed=True, untouched=(_VICTIM,))


def linked_trial(sandbox: Path) -> Trial:
    _folder_link(next(sandbox.glob("searches/*/jobs/trial-*")), sandbox)
    return Trial(SEARCH, is_sealed=True, untouched=(_VICTIM,))


def linked_lock(sandbox: Path) -> Trial:
    _link_to_victim(_only(sandbox, "runs/train-standard*") / ".lock", sandbox)
    return Trial((*TRAIN, "--runs-dir", "runs"), is_sealed=True, untouched=(_VICTIM,))


def piped_checkpoint(sandbox: Path) -> Trial:
    path = _only(sandbox, "runs/*/checkpoint.bin")
    _pipe(path)
    return Trial((*TRAIN, "--runs-dir", "runs"), may_write=(str(path.parent.relative_to(sandbox)),), is_sealed=True)


def piped_training_log(sandbox: Path) -> Trial:
    path = _only(sandbox, "runs/*/checkpoint.bin")
    _pipe(path.with_name("log.jsonl"))
    return Trial((*TRAIN, "--runs-dir", "runs"), may_write=(str(path.parent.relative_to(sandbox)),), is_sealed=True)


def looped_folders(sandbox: Path) -> Trial:
    (sandbox / "runs/loop").symlink_to("..")
    (sandbox / "runs/deep").mkdir()
    (sandbox / "runs/deep/loop").symlink_to("../..")
    return Trial(REPORT)


def odd_bytes_in_names(sandbox: Path) -> Trial:
    (sandbox / "runs" / os.fsdecode(b"train-\xff\x1b[2J-0123456789ab")).mkdir()
    (sandbox / "runs" / os.fsdecode(b"train-\xff\x1b[2J-0123456789ab/record.json")).write_text("{}")
    return Trial((*REPORT[:3], os.fsdecode(b"out\xff\x1b[2J"), "--no-theory"))


def nested_metrics(sandbox: Path) -> Trial:
    record = _only(sandbox, "runs/*/record.json")
    text = record.read_text().replace('"metrics": {', '"metrics": {"deep": ' + "[" * 950 + "]" * 950 + ",", 1)
    record.write_text(text)
    return Trial(("runs", "show", record.parent.name, "--json"))


def crowded_metrics(sandbox: Path) -> Trial:
    config = train_config("cayley", "XS", "cifar10", "1m")
    with start_run(sandbox / "runs", "train", config, job="x") as run:
        metrics = {f"test_accuracy_{number}": float("nan") for number in range(60_000)}
        run.update(status=RunStatus.FINISHED, metrics=metrics | {"train_seconds": 1.0})
    return Trial(REPORT, names=(run.folder.name,))


def nasty_record(sandbox: Path) -> Trial:
    config = train_config("aol", "XS", "cifar10", "1m") | {"note": NASTY, NASTY: 1}
    with start_run(sandbox / "runs", f"train{NASTY}", config, job=NASTY, device=NASTY) as run:
        run.update(status=RunStatus.FAILED, reason=NASTY, metrics={NASTY: NASTY}, command=[NASTY] * 9)
        run.update(machine={"cpu": NASTY, "gpus": [{"name": NASTY}], "os": [NASTY]}, versions={NASTY: NASTY})
    return Trial(("runs", "show", run.folder.name))


def nasty_records_in_lists(sandbox: Path) -> Trial:
    nasty_record(sandbox)
    return Trial(("runs", "list", "--metrics", NASTY))


def nasty_record_in_a_report(sandbox: Path) -> Trial:
    nasty_record(sandbox)
    return Trial(REPORT)


def _header(sandbox: Path, change: Callable[[dict[str, dict[str, object]]], None]) -> Trial:
    path = _only(sandbox, "runs/*/model.safetensors")
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change({name: value for name, value in header.items() if name != "__metadata__"})
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + content[8 + length :])
    return Trial(("check", str(path), "--dataset", "tiny", "--samples", "1"), is_sealed=True)


def overlapping_tensors(sandbox: Path) -> Trial:
    def change(tensors: dict[str, dict[str, object]]) -> None:
        alike = [one for one in tensors.values() if one["shape"] == next(iter(tensors.values()))["shape"]]
        for one in alike:
            one["data_offsets"] = alike[0]["data_offsets"]
        next(iter(tensors.values()))["data_offsets"] = [0, 8]

    return _header(sandbox, change)


def enormous_tensor(sandbox: Path) -> Trial:
    return _header(sandbox, lambda tensors: next(iter(tensors.values())).update(shape=[2**62, 2**62]))


def negative_offsets(sandbox: Path) -> Trial:
    return _header(sandbox, lambda tensors: next(iter(tensors.values())).update(data_offsets=[-8, 0]))


def integers_for_weights(sandbox: Path) -> Trial:
    return _header(sandbox, lambda tensors: next(iter(tensors.values())).update(dtype="I32"))


def _tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Trial:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content) if content else None)
    return Trial(("data", "fetch", "cifar10", "--from", path.name), is_sealed=True)


def _member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = size, kind, link
    return member


def climbing_members(sandbox: Path) -> Trial:
    members = [(_member(f"../../{name}", 4), b"evil") for name in ("data_1.bin", "evil", "test_one.bin")]
    return _tar(sandbox / "climb.tgz", *members)


def links_in_an_archive(sandbox: Path) -> Trial:
    kinds = ((tarfile.SYMTYPE, "data_1.bin"), (tarfile.LNKTYPE, "test_one.bin"), (tarfile.CHRTYPE, "data_1.bin"))
    return _tar(sandbox / "links.tgz", *((_member(name, 0, kind, "/etc/passwd"), b"") for kind, name in kinds))


def _bomb(path: Path, header: tarfile.TarInfo, size: int) -> Trial:
    """A tar whose one member claims so many zeros; the same compressed megabyte over and over."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    megabyte = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    start = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = start.compress(header.tobuf(tarfile.GNU_FORMAT)) + start.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(b"\x1f\x8b\x08\x00" + bytes(4) + b"\x02\xff" + head + megabyte * (size >> 20) + b"\x03\x00")
    return Trial(("data", "fetch", "cifar10", "--from", path.name), is_sealed=True)


def bomb_of_a_member(sandbox: Path) -> Trial:
    return _bomb(sandbox / "bomb.tgz", _member("data_1.bin", 3 * 2**30), 3 * 2**30)


def bomb_of_a_name(sandbox: Path) -> Trial:
    return _bomb(sandbox / "bomb.tgz", _member("././@LongLink", 3 * 2**30, tarfile.GNUTYPE_LONGNAME), 3 * 2**30)


def bomb_beside_the_members(sandbox: Path) -> Trial:
    return _bomb(sandbox / "bomb.tgz", _member("other", 3 * 2**30), 3 * 2**30)


def deep_gzip(sandbox: Path) -> Trial:
    content = (sandbox / "binary.tar.gz").read_bytes()
    for _ in range(20):
        content = gzip.compress(content, mtime=0)
    (sandbox / "deep.tgz").write_bytes(content)
    return Trial(("data", "fetch", "cifar10", "--from", "deep.tgz"), is_sealed=True)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _png(width: int, height: int, *extra: bytes) -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = _chunk(b"IDAT", zlib.compress(bytes(200)))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(extra) + pixels + _chunk(b"IEND", b"")


def _picture(sandbox: Path, content: bytes) -> Trial:
    path = _only(sandbox, "photos/*/*.png")
    path.write_bytes(content)
    return Trial(("data", "add", "photos"), (str(path.relative_to(sandbox)),), is_sealed=True)


def enormous_picture(sandbox: Path) -> Trial:
    return _picture(sandbox, _png(2**31 - 1, 2**31 - 1))


def wide_picture(sandbox: Path) -> Trial:
    return _picture(sandbox, _png(100_000, 100_000))


def bomb_in_a_comment(sandbox: Path) -> Trial:
    packed = zlib.compress(bytes(400 * 2**20), 1)
    return _picture(sandbox, _png(8, 8, *[_chunk(b"zTXt", b"a\0\0" + packed)] * 3))


def endless_animation(sandbox: Path) -> Trial:
    frames = [Image.new("RGB", (8, 8), (index % 256, 0, 0)) for index in range(300)]
    stream = io.BytesIO()
    frames[0].save(stream, "PNG", save_all=True, append_images=frames[1:])
    return _picture(sandbox, stream.getvalue())


def pickled_arrays(sandbox: Path) -> Trial:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {sandbox}/{_VICTIM}",)

    np.savez(sandbox / "data.npz", images=np.array([Evil()], dtype=object), labels=np.zeros(1, np.int64))
    return Trial(("data", "add", "data.npz"), is_sealed=True, untouched=(_VICTIM,))


def arrays_in_arrays(sandbox: Path) -> Trial:
    inner = (sandbox / "data.npz").read_bytes()
    with zipfile.ZipFile(sandbox / "data.npz", "w") as archive:
        archive.writestr("images.npy", inner)
        archive.writestr("labels.npy", inner)
    return Trial(("data", "add", "data.npz"), is_sealed=True)


def _bomb_of_arrays(sandbox: Path, dtype: str, shape: tuple[int, ...]) -> Trial:
    """An npz of 8 MB that claims, and would give, 8 GB of zeros."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = packer.compress(stream.getvalue()) + packer.flush(zlib.Z_FULL_FLUSH)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    megabyte = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed, size = head + megabyte * 2**13 + b"\x03\x00", 2**33 + len(stream.getvalue())
    with zipfile.ZipFile(sandbox / "data.npz", "w") as archive:
        archive.writestr("labels.npy", b"")
        archive.writestr("images.npy", packed)
        member = archive.getinfo("images.npy")
        member.compress_type, member.file_size = zipfile.ZIP_DEFLATED, size
    raw = bytearray((sandbox / "data.npz").read_bytes())
    local = raw.index(b"images.npy") - 30
    struct.pack_into("<H", raw, local + 8, zipfile.ZIP_DEFLATED)
    (sandbox / "data.npz").write_bytes(raw)
    return Trial(("data", "add", "data.npz"), is_sealed=True)


def bomb_of_images(sandbox: Path) -> Trial:
    return _bomb_of_arrays(sandbox, "|u1", (2**13, 1024, 1024))


def bomb_of_records(sandbox: Path) -> Trial:
    return _bomb_of_arrays(sandbox, f"|V{2**30}", (8,))


def climbing_arrays(sandbox: Path) -> Trial:
    with zipfile.ZipFile(sandbox / "data.npz", "w") as archive:
        archive.writestr("../../images.npy", b"evil")
        archive.writestr("/labels.npy", b"evil")
    return Trial(("data", "add", "data.npz"), is_sealed=True)


ATTACKS: dict[Callable[[Path], Trial], str] = {
    **dict.fromkeys(
        (
            sparse_record, sparse_log, piped_log, piped_record, piped_run, sparse_model, crowded_plan, linked_run,
            linked_lock, looped_folders, odd_bytes_in_names, nested_metrics, crowded_metrics, nasty_record,
            nasty_records_in_lists, nasty_record_in_a_report, overlapping_tensors, enormous_tensor, negative_offsets,
            integers_for_weights,
        ),
        "runs",
    ),
    **dict.fromkeys((sparse_plan, twice_in_the_plan, endless_plan, linked_notes, linked_job), "study"),
    **dict.fromkeys((piped_checkpoint, piped_training_log), "checkpoint"),
    linked_trial: "search",
    **dict.fromkeys(
        (climbing_members, links_in_an_archive, bomb_of_a_member, bomb_of_a_name, bomb_beside_the_members, deep_gzip),
        "archives",
    ),
    **dict.fromkeys(
        (
            enormous_picture, wide_picture, bomb_in_a_comment, endless_animation, pickled_arrays, arrays_in_arrays,
            bomb_of_images, bomb_of_records, climbing_arrays,
        ),
        "images",
    ),
}  # fmt: skip
"""Each attack with the world that it needs."""
SLOW = (
    sparse_record, sparse_log, piped_log, piped_run, crowded_plan, looped_folders, odd_bytes_in_names, crowded_metrics,
    nasty_record_in_a_report,
)  # fmt: skip
"""Those that make a report."""
