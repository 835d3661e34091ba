"""Command lines that nobody should type: names, paths, numbers and devices that do not exist or mean harm."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from hostile.good_files import NETWORK, TRAIN
from hostile.trials import Trial

_QUICK = (*NETWORK, "--epochs", "1", "--quiet", "--skip-test")
_VALUES = (
    "", " ", "-", "--", "--help=1", "nan", "inf", "-inf", "1e400", "-1", "0", "9" * 5000, "1e-320", "0x10", "NaN",
    "None",
    "\x1b]0;owned\x07", "[red]x[/red]", "[/]", "\u202eevil", os.fsdecode(b"\xff\xfe"), "%s%n{0}", "x" * 5000,
    "a/" * 3000,
    "$(reboot)", "'; rm -rf ~;'", "file", "file/below", "folder", "pipe", "link", "loop", "loop/x",
    "missing/deep/file.svg",
    "cuda", "cuda:99", "cpu:7", "meta", "mps", "xla", "tpu", "os:system", "os.path:join", "a:b:c", "tests", ".",
    "1/0",
    "1e9h", "1m1m", "-5s", "\u0663", "\u00b2", "1_000",
)  # fmt: skip
_PLACES: tuple[tuple[str, ...], ...] = (
    ("?",),
    ("runs", "?"), ("runs", "list", "--runs-dir", "?"), ("runs", "list", "--status", "?"), ("runs", "show", "?"),
    ("runs", "list", "--metrics", "?"), ("runs", "rm", "?", "--yes"), ("runs", "list", "--?"),
    ("report", "?", "--no-theory"), ("report", "?", "--out", "file/below", "--no-theory"),
    ("advise", "--dataset", "?"), ("advise", "--gpu-memory", "?"), ("advise", "--train-hours", "?"),
    ("advise", "--max-latency", "?"), ("advise", "--study", "?"),
    ("train", "--method", "?", *_QUICK[2:]), (*TRAIN, "--device", "?"), (*TRAIN, "--runs-dir", "?"),
    (*TRAIN, "--budget", "?"), (*TRAIN, "--checkpoint-every", "?"), (*TRAIN, "--lr", "?"), (*TRAIN, "--dataset", "?"),
    (*TRAIN, "--model", "?"), (*TRAIN, "--optimizer", "?"), (*TRAIN, "--width", "?"), (*TRAIN, "--seed", "?"),
    ("evaluate", "?"), ("evaluate", "train-standard", "--device", "?"),
    ("evaluate", "train-standard", "--model", "?"),
    ("check", "?"), ("check", "?", "--input-shape", "3", "8", "8"), ("check", "model.safetensors", "--dataset", "?"),
    ("check", "model.safetensors", "--dataset", "tiny", "--samples", "?"),
    ("attack", "?"), ("attack", "model.safetensors", "--eps", "?"), ("attack", "model.safetensors", "--attacks", "?"),
    ("export", "?"), ("export", "model.safetensors", "--input-shape", "?", "--onnx", "out.onnx"),
    ("data", "add", "?"), ("data", "verify", "?"), ("data", "fetch", "?"),
    ("data", "fetch", "cifar10", "--from", "?"),
    ("compare", "--out", "?", "--dry-run", "--methods", "?"),
    ("compare", "--budgets", "?", "--dry-run", "--width", "4"),
    ("compare", "--engine", "?", "--dry-run"), ("compare", "--workers", "?", "--dry-run", "--width", "?"),
    ("job", "?", "x"), ("job", "runs", "?"), ("jobs", "?"),
    ("search", *NETWORK, "--epochs", "1", "--quiet", "--trials", "1", "--studies-dir", "?"),
    ("search", *NETWORK, "--epochs", "1", "--trials", "?", "--search-seed", "?"),
    ("methods", "?"), ("theory", "?"), ("published", "?"), ("reproduce", "--methods", "?"), ("measure", "?"),
    ("measure", "macs", "--methods", "?"),
)  # fmt: skip


def command_line(random: Random, sandbox: Path) -> Trial:
    """One place of one command takes one odd value."""
    (sandbox / "file").write_text("a file\n")
    (sandbox / "folder").mkdir()
    (sandbox / "link").symlink_to("/dev/zero")
    (sandbox / "loop").symlink_to("loop")
    os.mkfifo(sandbox / "pipe")
    model = next(sandbox.glob("runs/*/model.safetensors"))
    model.rename(sandbox / "model.safetensors")
    place = random.choice(_PLACES)
    return Trial(tuple(word.replace("?", random.choice(_VALUES)) for word in place))
