"""Mutations of valid certificate files: is one accepted that is false, or does one hang or crash a checker?

    python benchmarks/certificate_tampering.py                    # 10,000 mutations for each checker, in ten minutes
    python benchmarks/certificate_tampering.py --mutations 500 --seed 7

A mutation changes a byte, a digit of the certificate, a number of a tensor, exchanges two tensors or fields, raises
radii, lowers bounds, takes bounds of another network, writes a key twice, NaN, infinities, huge numbers. Nine in ten
get their hashes mended, because a hash protects from accidents only. Whether an accepted file is true is decided in
float64 from dense matrices (tests/certificate_oracle.py), which know nothing of witnesses.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import onelip
import onelip_check
from onelip.layers import (
    Abs,
    BCOPConv2d,
    CayleyConv2d,
    CPLConv2d,
    FirstChannels,
    GroupSort,
    LipschitzResidual,
    MaxMin,
    SandwichConv2d,
)

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from certificate_oracle import falsehood, opened, sealed  # noqa: E402

Verdict = Callable[[bytes], bool]
_ODD = [float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e-300, 2.0**22, 1e300, 2.0**-41, 5e-324]
_WORDS = ["1e999", "NaN", "-1", "01", "1.0", "9" * 400, "null", "true", "[]", '"x"', "[" * 3000, "99999999999"]


def certificates(folder: Path) -> list[bytes]:
    """Small valid files that between them use every operation and every kind of witness."""
    torch.manual_seed(0)
    found = []
    step, convolutions = CPLConv2d(4, 4, 3, padding_mode="zeros"), (nn.Conv2d(4, 4, 2, padding=1), nn.Conv2d(4, 3, 3))
    first = nn.Sequential(BCOPConv2d(1, 4, 3, stride=2), MaxMin(), step, nn.Flatten(), nn.Linear(16, 3))
    sorted_ = nn.Sequential(nn.PixelUnshuffle(2), convolutions[0], GroupSort(4), nn.ReLU(), convolutions[1], Abs())
    branch = nn.Sequential(SandwichConv2d(1, 1, 3), nn.Conv2d(1, 1, 3, padding=1))
    third = nn.Sequential(LipschitzResidual(branch), CayleyConv2d(1, 1, 3), nn.Flatten(), nn.Linear(16, 3))
    second = nn.Sequential(sorted_, nn.Flatten(), nn.Linear(3, 4), FirstChannels(3))
    for model in (first, second, third):
        x = torch.rand(3, 1, 4, 4)
        path = folder / "valid.cert"
        onelip.certify(model, x).save(path, model=model)
        found.append(path.read_bytes())
    return found


def mutated(content: bytes, other: bytes, draw: random.Random) -> bytes:
    """A file that differs from the valid one in one respect."""
    if draw.random() < 0.1:
        return with_other_byte(content, draw)
    certificate, tensors = opened(content)
    certificate = copy.deepcopy(certificate)
    kind = draw.randrange(7)
    if kind == 0:
        return text_changed(content, draw)
    if kind == 1:
        borrowed(tensors, opened(other)[1], draw)
    else:
        changes = [entry_changed, entry_changed, number_changed, exchanged, claims_raised]
        changes[kind - 2](certificate, tensors, draw)
    return sealed(certificate, tensors)


def with_other_byte(content: bytes, draw: random.Random) -> bytes:
    """A bit flipped, a byte dropped or repeated, or the end cut off."""
    at, kind = draw.randrange(len(content)), draw.randrange(4)
    if kind == 0:
        return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    if kind == 1:
        return content[:at] + content[at + 1 :]
    return content[:at] if kind == 2 else content[:at] + content[at : at + 1] + content[at:]


def text_changed(content: bytes, draw: random.Random) -> bytes:
    """Another digit, an odd word in place of a number, or a key twice, with the right hash of the certificate."""
    certificate, tensors = opened(content)
    text = json.dumps(certificate)
    digits = [at for at, letter in enumerate(text) if letter.isdigit()]
    at, kind = draw.choice(digits), draw.randrange(3)
    if kind == 0:
        text = text[:at] + draw.choice("0123456789") + text[at + 1 :]
    elif kind == 1:
        text = text[:at] + draw.choice(_WORDS) + text[at + 1 :]
    else:
        entries = [place for place in range(len(text)) if text.startswith('{"', place)]
        place = draw.choice(entries)
        key = text[place + 1 : text.index(":", place)]
        text = f"{text[: place + 1]}{key}: {draw.choice(['1', '[1, 1]', chr(34) * 2])}, {text[place + 1 :]}"
    return sealed(text, tensors)


def entry_changed(certificate: dict[str, Any], tensors: dict[str, Tensor], draw: random.Random) -> None:
    """A field of an operation or of its witness is dropped, changed, or given to another."""
    entry = draw.choice(certificate["operations"])
    place = entry["witness"] if "witness" in entry and draw.random() < 0.5 else entry
    key = draw.choice(list(place))
    value = place[key]
    kind = draw.randrange(5)
    if kind == 4:
        entry["rest"] = draw.choice([0, 1, 4, 15, 16, 32, 10**9])
    elif kind == 0:
        del place[key]
    elif kind == 1 and isinstance(value, list):
        value[draw.randrange(len(value))] = draw.choice([0, 1, 2, 3, 5, 8, 2**32])
    elif kind == 2:
        names = [*tensors, "zeros", "circular", "input", "output", "linear", "relu", "abs", "residual", "sandwich"]
        place[key] = draw.choice([*names, 0, 1, 2, 4, [1, 1], [2, 2], [4, 2, 2], [2**32, 2**32], 10**10])
    else:
        operations = certificate["operations"]
        at = draw.randrange(len(operations))
        operations.insert(at, operations.pop(draw.randrange(len(operations))))


def number_changed(certificate: dict[str, Any], tensors: dict[str, Tensor], draw: random.Random) -> None:
    """One number of one tensor: a bit, a little more, much more, something odd."""
    name = draw.choice(list(tensors))
    tensor = tensors[name] = tensors[name].clone()
    flat = tensor.view(-1)
    at = draw.randrange(len(flat))
    if tensor.is_floating_point():
        kind = draw.randrange(3)
        if kind == 0:
            flat.view(torch.int64 if tensor.dtype == torch.float64 else torch.int32)[at] ^= 1 << draw.randrange(31)
        else:
            near = float(flat[at]) * (1 + draw.choice([-1, 1]) * 10 ** -draw.uniform(0, 9))
            flat[at : at + 1] = torch.tensor([draw.choice(_ODD) if kind == 1 else near], dtype=torch.float64)
    else:
        flat[at] = draw.choice([int(flat[at]) ^ 1, -1, 0, -2, 2**31 - 1, int(flat[at]) + 1])


def exchanged(certificate: dict[str, Any], tensors: dict[str, Tensor], draw: random.Random) -> None:
    """Two tensors take each other's names, if possible ones of one shape."""
    first = draw.choice(list(tensors))
    alike = [name for name in tensors if tensors[name].shape == tensors[first].shape and name != first]
    second = draw.choice(alike or list(tensors))
    tensors[first], tensors[second] = tensors[second], tensors[first]


def claims_raised(certificate: dict[str, Any], tensors: dict[str, Tensor], draw: random.Random) -> None:
    """More is claimed: larger radii or margins, smaller bounds, errors or scales, other predictions, moved inputs."""
    name = draw.choice(["radii", "margins", "bounds", "errors", "input_scale", "predictions", "inputs", "scores"])
    amount = 10 ** -draw.uniform(0, 8)
    up = name in ("radii", "margins")
    if name == "predictions":
        tensors[name] = tensors[name].roll(1)
    elif name in ("inputs", "scores"):
        tensors[name] = tensors[name] + amount
    else:
        tensors[name] = tensors[name] * (1 + amount if up else 1 - amount)


def borrowed(tensors: dict[str, Tensor], others: dict[str, Tensor], draw: random.Random) -> None:
    """A tensor of another network, cut or repeated to fit."""
    name = draw.choice([name for name in tensors if name in others])
    source, wanted = others[name].flatten(), tensors[name]
    copies = source.repeat(-(-wanted.numel() // source.numel()))[: wanted.numel()]
    tensors[name] = copies.reshape(wanted.shape).to(wanted.dtype)


def accepted_by_python(content: bytes) -> bool:
    """Verdict of `onelip_check.py`, in this process: anything but its own exception would be a crash."""
    try:
        check = onelip_check.Check(content)
        check.check_images(0, check.images)
    except onelip_check.NotProvenError:
        return False
    return True


def compiled(folder: Path, compiler: str) -> Verdict:
    """Verdict of the checker in C, compiled with the sanitizers that stop at undefined behaviour."""
    program, file = folder / "onelip_check", folder / "mutated.cert"
    flags = ["-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([compiler, *flags, "-o", program, ROOT / "checkers" / "onelip_check.c"], check=True)
    environment = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}

    def verdict(content: bytes) -> bool:
        file.write_bytes(content)
        done = subprocess.run([program, file], capture_output=True, text=True, timeout=60, env=environment, check=False)
        if done.returncode not in (0, 1):
            raise AssertionError(f"the checker in C ends with {done.returncode}: {done.stderr[:2000]}")
        return done.returncode == 0

    return verdict


def attack(mutations: int, seed: int, folder: Path, verdicts: dict[str, Verdict]) -> collections.Counter[str]:
    """Counts of what happened; raises at the first false file that is accepted, and where two checkers disagree."""
    draw, counts = random.Random(seed), collections.Counter[str]()
    valid = certificates(folder)
    for content in valid:
        assert all(verdict(content) for verdict in verdicts.values())
        assert falsehood(content) is None
    for number in range(mutations):
        content = mutated(valid[number % 3], valid[(number + 1) % 3], draw)
        began = time.process_time()
        said = {name: verdict(content) for name, verdict in verdicts.items()}
        counts["slower than a second"] += time.process_time() - began > 1
        if len(set(said.values())) > 1:
            raise AssertionError(f"mutation {number} of seed {seed}: the checkers disagree: {said}")
        if not next(iter(said.values())):
            counts["refused"] += 1
        elif content in valid:
            counts["unchanged"] += 1
        elif (false := falsehood(content)) is not None:
            raise AssertionError(f"mutation {number} of seed {seed} is accepted and false: {false}")
        else:
            counts["accepted and true"] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiler", default="cc")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        verdicts = {"python": accepted_by_python, "C": compiled(folder, options.compiler)}
        print(dict(attack(options.mutations, options.seed, folder, verdicts)))


if __name__ == "__main__":
    main()
