"""Kill -9 and loss of power at file operations: whoever comes next ends where an undisturbed process ends.

    python benchmarks/kills.py --kills 120 --out kills       # resumes where it was stopped
    python benchmarks/kills.py --only search --kills 10

A round is one scenario (a training, a search, jobs of a study, a comparison with its driver and workers, a report) in a
folder of its own. Its processes are ended at file operations that a seed chooses: before a file is made, before, in and
after a write, before the data reach the disk, before and after a rename. Some are killed; for others the power fails,
so that what was not yet forced to the disk is lost. In some rounds two processes work on the folder at once, in some
the disk is full. After each end every file has to be whole. At last one process is left in peace, and every record,
log, weight and report has to be, byte by byte, that of an undisturbed run. Clocks stand still in all of these
processes, so that times in records can be compared, too.

Controls: the same rounds with files that are written as many programs write them (over the old ones, or without forcing
them to the disk) have to show damage, or the experiment could not have found any. Results: docs/reliability.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

# The processes are forks of this one, so that what they need is imported once and not each time.
from kill_points import Careless
from kill_rounds import Rounds, run_as_worker

from onelip.bench.data import load
from onelip.bench.data.arrays import from_arrays
from onelip.bench.engines import engine_base

AS_COMMAND = "--as-command"


@dataclass(frozen=True)
class Planned:
    """A round to be played."""

    scenario: str
    kills: int
    processes: int = 1
    is_full: bool = False
    careless: Careless = ""


_ORDER = (
    Planned("training", 8),
    Planned("jobs", 10, processes=2),
    Planned("search", 8),
    Planned("report", 6),
    Planned("comparison", 8),
    Planned("training", 8, processes=2),
    Planned("search", 8, processes=2),
    Planned("training", 8, is_full=True),
    Planned("jobs", 10),
    Planned("report", 4, is_full=True),
    Planned("search", 8, is_full=True),
    Planned("jobs", 8, processes=2, is_full=True),
    Planned("comparison", 4, is_full=True),
)
_CONTROLS = (
    Planned("training", 5, careless="in place"),
    Planned("training", 5, careless="unsynced"),
    Planned("search", 5, careless="in place"),
    Planned("jobs", 5, careless="unsynced"),
    Planned("report", 5, careless="in place"),
    Planned("comparison", 5, careless="in place"),
)


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int = 8) -> Iterator[Path | None]:
    """A disk of a few megabytes; None where mounting is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def small_data(folder: Path) -> str:
    """The first images of cifar10-mini, every fourth pixel, as a data set in this folder: four steps of training."""
    os.environ["ONELIP_DATA"] = str(folder)
    data = load("cifar10-mini")
    train, test = data.train_images[:288, :, ::4, ::4], data.test_images[:64, :, ::4, ::4]
    return from_arrays(train, data.train_labels[:288], test, data.test_labels[:64], name="kills").name


def _plan(seed: int) -> Iterator[tuple[int, Planned]]:
    """Rounds with their seeds: first the controls, then for ever in a fixed order."""
    yield from ((seed, control) for control in _CONTROLS)
    while True:
        for one in _ORDER:
            yield seed, one
            seed += 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill -9 and loss of power at file operations.")
    parser.add_argument("--kills", type=int, default=120, help="how many in all, controls not counted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("kills"), help="folder of the results, which are continued")
    parser.add_argument("--only", choices=sorted({one.scenario for one in _ORDER}), help="one scenario")
    options = parser.parse_args()
    results = options.out / "rounds.jsonl"
    options.out.mkdir(parents=True, exist_ok=True)
    lines = results.read_text().splitlines() if results.exists() else []
    done = {(one["scenario"], one["seed"], one["careless"]): one for one in map(json.loads, lines)}
    engine_base.PROGRAM = (sys.executable, __file__, AS_COMMAND)
    with small_disk(options.out / "disk") as disk:
        rounds = Rounds(options.out.resolve() / "work", small_data(options.out.resolve() / "data"))
        for seed, one in _plan(options.seed):
            left = options.kills - sum(other["kills"] for other in done.values() if not other["careless"])
            if left <= 0 and not one.careless:
                break
            key = one.scenario, seed, one.careless
            if key in done or options.only not in (None, one.scenario):
                continue
            if one.is_full and disk is None:
                print(f"{one.scenario} {seed}: left out, a tmpfs cannot be mounted here")
                continue
            place = disk.resolve() if one.is_full and disk else None
            kills = one.kills if one.careless else min(one.kills, left)
            played = asdict(rounds.play(one.scenario, seed, kills, one.processes, place, one.careless))
            done[key] = played
            with results.open("a") as file:
                file.write(json.dumps(played) + "\n")
            print(played, flush=True)
    return _summary(list(done.values()))


def _summary(played: list[dict[str, Any]]) -> int:
    """Print the figures; 1 if a round differs, or a control does not."""
    controls, rounds = ([one for one in played if bool(one["careless"]) is wanted] for wanted in (True, False))
    for name in dict.fromkeys(one["scenario"] for one in rounds):
        own = [one for one in rounds if one["scenario"] == name]
        figures = [sum(one[field] for one in own) for field in ("kills", "power", "disk_full")]
        two = sum(one["kills"] for one in own if one["processes"] == 2)
        print(f"{name:12} {len(own):3} rounds, {two:3} kills of one of two;", *figures, "kills, of power, disk full")
    bad, blind = [one for one in rounds if one["differences"]], [one for one in controls if not one["differences"]]
    for one in (*bad, *blind):
        print("DIFFERS" if one in bad else "CONTROL WITHOUT DAMAGE", one)
    kills, seen = sum(one["kills"] for one in rounds), len(controls) - len(blind)
    print(f"{kills} kills, {len(bad)} rounds with differences; {seen} of {len(controls)} controls show damage")
    return 1 if bad or blind else 0


if __name__ == "__main__":
    if sys.argv[1:2] == [AS_COMMAND]:
        sys.exit(run_as_worker(sys.argv[2:]))
    sys.exit(main())
