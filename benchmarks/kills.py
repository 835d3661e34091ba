"""Kill -9 at file operations: whatever moment a process dies at, the next one ends where an undisturbed one ends.

    python benchmarks/kills.py --kills 120 --out kills       # resumes where it was stopped
    python benchmarks/kills.py --only search --kills 10
    python benchmarks/kills.py --naive --kills 10             # files written in place, for comparison

A round is one scenario (a training, a search, jobs of a study, a comparison, a report) in a folder of its own. Its
processes are killed at file operations that a seed chooses: before a file is made, in the middle of a write, before the
data reach the disk, before and after a rename. In some rounds two processes work on the folder at once, in some the
disk is full. Then one process is left in peace, and every record, log, weight and report has to be, byte by byte, that
of an undisturbed run. Clocks stand still in all of these processes, so that times in records can be compared, too.
Results: docs/reliability.md.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

# The processes are forks of this one, so that what they need is imported once and not each time.
from onelip import atomic_files
from onelip.bench.cli import run as run_command
from onelip.bench.data import load
from onelip.bench.data.arrays import from_arrays
from onelip.bench.engines import engine_base
from onelip.bench.report import write_report as report_writer
from onelip.bench.runs import record as run_record
from onelip.bench.runs.durations import TrainingClock
from onelip.bench.training import loop

AS_COMMAND = "--as-command"
_NOT_COMPARED = (".lock", ".journal-lock", "attempts.jsonl", "output.log", "journal.log", "study.json")
"""These tell who worked when, so they differ; what they are read for is tested in tests/hostile."""
_CREATING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Scenario:
    """Commands that are killed, one after the other, and what prepares their folder."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    prepare: Callable[[Path], None] = lambda folder: None


def scenarios(dataset: str, finished_study: Path) -> dict[str, Scenario]:
    """All of them; a report is made of a study that is done."""
    small = ["--width", "4", "--batch-size", "64", "--epochs", "1", "--device", "cpu"]
    one = [*small, "--dataset", dataset, "--quiet"]
    compare = ["compare", "--out", "study", "--methods", "standard", "--datasets", dataset, *small]
    compare += ["--measure", "none", "--search-runs", "1", "--no-report"]

    def plan_study(folder: Path) -> None:
        from onelip.bench.study.options import StudyOptions
        from onelip.bench.study.planner import plan
        from onelip.bench.study.study_file import add_to_study

        options = StudyOptions(
            methods=("aol", "standard"), sizes=(), width=4, datasets=(dataset,), epochs=1,
            batch_size=64, search_runs=2, recipe="short", measure="none",
        )  # fmt: skip
        jobs = plan(options)
        add_to_study(folder / "study", [options], jobs)
        names = [job.name for job in jobs]
        (folder / "names.json").write_text(json.dumps(names))

    return {
        "training": Scenario("training", (("train", "--method", "cpl", "--ema-decay", "0.9", *one),)),
        "search": Scenario("search", (("search", "--method", "aol", "--trials", "2", *one),)),
        "jobs": Scenario("jobs", (("job", "study", "?"),), plan_study),
        "comparison": Scenario("comparison", (tuple(compare),)),
        "report": Scenario(
            "report",
            (("report", "study", "--no-theory", "--out", "report"),),
            lambda folder: shutil.copytree(finished_study, folder / "study", dirs_exist_ok=True) and None,
        ),
    }


class FaultPoints:
    """Counts the file operations of this process below a folder, and ends it with SIGKILL at a chosen one."""

    def __init__(self, folder: Path, fatal: int | None) -> None:
        self.folder, self.fatal, self.count = f"{folder.resolve()}/", fatal, 0
        self._write, self._fsync = os.write, os.fsync

    def install(self) -> None:
        """For the rest of the life of this process, which a fork has made for it."""
        sys.addaudithook(self._audited)
        os.write, os.fsync = self._torn_write, self._counted_fsync

    def _reached(self) -> bool:
        self.count += 1
        return self.count == self.fatal

    def _audited(self, event: str, arguments: Any) -> None:
        count = {"open": 1, "os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.symlink": 2}.get(event, 0)
        names = arguments[:count]
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _CREATING):
            return
        paths = [os.path.abspath(os.fsdecode(name)) for name in names if isinstance(name, (str, bytes, os.PathLike))]
        if any(path.startswith(self.folder) for path in paths) and self._reached():
            _die()

    def _torn_write(self, descriptor: int, data: Any) -> int:
        if not self._is_below(descriptor):
            return self._write(descriptor, data)
        if self._reached():
            self._write(descriptor, data[: len(data) // 2])
            _die()
        return self._write(descriptor, data)

    def _counted_fsync(self, descriptor: Any) -> None:
        if self._is_below(descriptor) and self._reached():
            _die()
        self._fsync(descriptor)

    def _is_below(self, descriptor: Any) -> bool:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/self/fd/{number}").startswith(self.folder)
        return False


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop_clocks() -> None:
    """No time passes in this process, so that records of equal runs are equal, and every step is a checkpoint."""
    names = ("monotonic", "process_time", "perf_counter")
    loop.time = SimpleNamespace(**dict.fromkeys(names, lambda: 0.0))  # type: ignore[assignment]
    assert TrainingClock.__init__.__kwdefaults__ is not None
    TrainingClock.__init__.__kwdefaults__["now"] = lambda: 0.0
    run_record._now = lambda: "2026-01-01T00:00:00.000+00:00"
    os.getloadavg = lambda: (0.0, 0.0, 0.0)
    begin = loop._Training.__init__

    def begin_often(self: Any, config: Any, folder: Path, run: Any, ranks: Any, options: Any) -> None:
        begin(self, config, folder, run, ranks, replace(options, checkpoint_seconds=0.0))

    loop._Training.__init__ = begin_often


@dataclass(frozen=True)
class Ended:
    """How a process ended, what it said on stderr, and how many file operations it made, if it lived to tell."""

    code: int
    errors: str
    operations: int


class Session:
    """`onelip` with these arguments in a fork of this process, in a folder; `wait` for it."""

    def __init__(self, folder: Path, command: Sequence[str], fatal: int | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait()
        self._told, tell = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            os.close(self._told)
            self._run(folder, command, fatal, tell)
        os.close(tell)

    def _run(self, folder: Path, command: Sequence[str], fatal: int | None, tell: int) -> None:
        code = 70
        points = FaultPoints(folder, fatal)
        try:
            os.setsid()
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(self._errors.fileno(), 2)
            sys.argv = ["onelip", command[0]]  # a record tells its command, and each job of a study may be the last one
            stop_clocks()
            points.install()
            code = run_command(list(command))
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            points._write(tell, str(points.count).encode())
            os._exit(code)

    def wait(self) -> Ended:
        _, status = os.waitpid(self.process, 0)
        with os.fdopen(self._told, "rb") as told:
            count = told.read()
        self._errors.seek(0)
        errors = self._errors.read().decode("utf-8", "replace")
        self._errors.close()
        return Ended(os.waitstatus_to_exitcode(status), errors, int(count or 0))


def tree(folder: Path) -> dict[str, str]:
    """Every file that has to be equal, with the hash of its content."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in _NOT_COMPARED)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@dataclass(frozen=True)
class Round:
    """What was done to one folder, and what differs from an undisturbed one: nothing, if all is well."""

    scenario: str
    seed: int
    kills: int
    processes: int
    disk_full: int
    differences: tuple[str, ...] = ()


class UnfinishedError(Exception):
    """A folder in which no process comes to its end any more."""


class Rounds:
    """Rounds of all scenarios, each compared with its undisturbed run."""

    def __init__(self, work: Path, dataset: str) -> None:
        self.work = work
        self.all = scenarios(dataset, work / "reference-jobs" / "study")
        self._operations: dict[str, int] = {}

    def reference(self, name: str) -> tuple[Path, int]:
        """The folder of an undisturbed run, and the number of its file operations."""
        folder = self.work / f"reference-{name}"
        if name not in self._operations:
            if name == "report":
                self.reference("jobs")
            shutil.rmtree(folder, ignore_errors=True)
            self._operations[name] = self._finish(self._new(name, folder), name)
        return folder, self._operations[name]

    def play(self, name: str, seed: int, kills: int, processes: int = 1, disk: Path | None = None) -> Round:
        """Kill so often, finish in peace, compare."""
        expected, operations = self.reference(name)
        random = Random(f"{name}/{seed}")
        folder = self.work / f"round-{name}-{seed}" if disk is None else disk / "work"
        shutil.rmtree(folder, ignore_errors=True)
        self._new(name, folder)
        killed = full = 0
        problems: list[str] = []
        for _attempt in range(4 * kills):
            if killed >= kills:
                break
            if disk is not None and random.randrange(2):
                _fill(disk, leave=random.randrange(4096, 300_000))
            command = random.choice(self._commands(name, folder))
            fatal = [random.randint(1, max(2, operations // 2)) for _ in range(processes)]
            sessions = [Session(folder, command, one) for one in fatal]
            for ended in [session.wait() for session in sessions]:
                killed += ended.code == -signal.SIGKILL
                full += "No space left" in ended.errors
                if "Traceback" in ended.errors:
                    problems.append(ended.errors[-2000:])
            if disk is not None:
                (disk / "filler").unlink(missing_ok=True)
        try:
            self._finish(folder, name)
        except UnfinishedError as error:
            problems.append(str(error))
        ours, theirs = tree(expected), tree(folder)
        problems += sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))
        if not problems:  # else it is kept, to be looked at
            shutil.rmtree(folder)
        return Round(name, seed, killed, processes, full, tuple(problems))

    def _new(self, name: str, folder: Path) -> Path:
        folder.mkdir(parents=True)
        self.all[name].prepare(folder)
        return folder

    def _commands(self, name: str, folder: Path) -> list[list[str]]:
        names = folder / "names.json"
        jobs = json.loads(names.read_text()) if names.exists() else ["?"]
        commands = [list(command) for command in self.all[name].commands]
        return [[job if word == "?" else word for word in command] for command in commands for job in jobs]

    def _finish(self, folder: Path, name: str) -> int:
        operations = 0
        for command in self._commands(name, folder):
            ended = Ended(0, "", 0)
            for _patience in range(60):  # jobs of a driver that was killed may still run: they are let to end
                ended = Session(folder, command).wait()
                if ended.code == 0:
                    break
                if "another process" not in ended.errors:
                    raise UnfinishedError(f"{' '.join(command)} ended with {ended.code}: {ended.errors}")
                time.sleep(1)
            operations += ended.operations
        return operations


def _fill(disk: Path, leave: int) -> None:
    free = shutil.disk_usage(disk).free
    (disk / "filler").write_bytes(bytes(max(0, free - leave)))


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


def write_in_place(files: Mapping[Path, bytes]) -> None:
    """What a careless program does."""
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(descriptor, content)
        os.close(descriptor)


def small_data(folder: Path) -> str:
    """The first images of cifar10-mini, every fourth pixel, as a data set in this folder: four steps of training."""
    os.environ["ONELIP_DATA"] = str(folder)
    data = load("cifar10-mini")
    train, test = data.train_images[:288, :, ::4, ::4], data.test_images[:64, :, ::4, ::4]
    return from_arrays(train, data.train_labels[:288], test, data.test_labels[:64], name="kills").name


def _plan(seed: int) -> Iterator[tuple[str, int, int, int, bool]]:
    """Scenario, seed, kills, processes, full disk: for ever, in a fixed order."""
    order = (
        ("training", 8, 1, False), ("jobs", 10, 2, False), ("search", 8, 1, False), ("report", 3, 1, False),
        ("training", 8, 2, False), ("search", 8, 2, False), ("training", 8, 1, True), ("jobs", 10, 1, False),
        ("report", 2, 1, True), ("comparison", 2, 1, False), ("search", 8, 1, True), ("jobs", 8, 2, True),
    )  # fmt: skip
    while True:
        for name, kills, processes, is_full in order:
            yield name, seed, kills, processes, is_full
            seed += 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill -9 at file operations.")
    parser.add_argument("--kills", type=int, default=120, help="how many in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("kills"), help="folder of the results, which are continued")
    parser.add_argument("--only", help="one scenario")
    parser.add_argument("--naive", action="store_true", help="write files in place")
    options = parser.parse_args()
    if options.naive:
        atomic_files.replace_files = report_writer.replace_files = write_in_place
    results = options.out / "rounds.jsonl"
    options.out.mkdir(parents=True, exist_ok=True)
    lines = results.read_text().splitlines() if results.exists() else []
    done = {(one["scenario"], one["seed"]): one for one in map(json.loads, lines)}
    engine_base.PROGRAM = (sys.executable, __file__, AS_COMMAND)
    with small_disk(options.out / "disk") as disk:
        rounds = Rounds(options.out.resolve() / "work", small_data(options.out.resolve() / "data"))
        for name, seed, kills, processes, is_full in _plan(options.seed):
            if sum(one["kills"] for one in done.values()) >= options.kills:
                break
            if (name, seed) in done or options.only not in (None, name):
                continue
            if is_full and disk is None:
                print(f"{name} {seed}: left out, a tmpfs cannot be mounted here")
                continue
            left = options.kills - sum(one["kills"] for one in done.values())
            played = rounds.play(name, seed, min(kills, left), processes, disk.resolve() if is_full and disk else None)
            done[name, seed] = asdict(played)
            with results.open("a") as file:
                file.write(json.dumps(asdict(played)) + "\n")
            print(asdict(played), flush=True)
    return _summary(list(done.values()))


def _summary(rounds: list[dict[str, Any]]) -> int:
    kills, full, counted = Counter(), Counter(), Counter()
    for one in rounds:
        kills[one["scenario"]] += one["kills"]
        full[one["scenario"]] += one["disk_full"]
        counted[one["scenario"]] += 1
    for name, count in kills.items():
        print(f"{name:12} {counted[name]:4} rounds {count:5} kills {full[name]:4} times no space left")
    two = sum(one["kills"] for one in rounds if one["processes"] == 2)
    bad = [one for one in rounds if one["differences"]]
    print(f"{sum(kills.values())} kills, {two} of them of one of two processes; {len(bad)} rounds with differences")
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:2] == [AS_COMMAND]:  # a job that the engine of a comparison starts
        stop_clocks()
        sys.argv = ["onelip", *sys.argv[2:]]
        sys.exit(run_command(sys.argv[1:]))
    sys.exit(main())
