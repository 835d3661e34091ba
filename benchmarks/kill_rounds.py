"""Rounds of kills.py: what is run, how it is ended, and what is left compared with an undisturbed run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from kill_points import LOCKS, Careless, Fate, KillPoints, be_careless, stop_clocks

from onelip.bench.cli import run as run_command
from onelip.bench.records import RECORD_FILE, STUDY_FILE, load_checkpoint, parse_json
from onelip.bench.records.resume_file import CHECKPOINT_FILE
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import add_to_study
from onelip.errors import InvalidInputError

_FATE_VARIABLE = "ONELIP_BENCHMARK_FATE"
"""Environment variable with the fate of the workers that a comparison starts, and the seed that varies it."""
_NOT_COMPARED = (*LOCKS, "attempts.jsonl", "output.log", STUDY_FILE)
"""These tell who worked when, so they differ; what they are read for is tested in tests/hostile."""
_GROWING = (RECORD_FILE, CHECKPOINT_FILE, "log.jsonl")
"""Files that are not yet those of an undisturbed run while the run goes on."""
_MOST_OPERATIONS_OF_A_WORKER = 120


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


@dataclass(frozen=True)
class Ended:
    """How a process ended, what it said on stderr, and how many file operations it made, if it lived to tell."""

    code: int
    errors: str
    operations: int


class Session:
    """`onelip` with these arguments in a fork of this process, in a folder; `wait` for it."""

    def __init__(self, folder: Path, command: Sequence[str], fate: Fate, seed: str = "") -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait()
        self._told, tell = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            os.close(self._told)
            os.environ[_FATE_VARIABLE] = json.dumps({"fate": asdict(fate), "seed": seed})
            self._run(folder, command, fate, tell)
        os.close(tell)

    def _run(self, folder: Path, command: Sequence[str], fate: Fate, tell: int) -> None:
        code = 70
        points = KillPoints(fate)
        try:
            os.setsid()
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(self._errors.fileno(), 2)
            sys.argv = ["onelip", command[0]]  # a record tells its command, and each job of a study may be the last one
            stop_clocks()
            be_careless(fate.careless)
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


def run_as_worker(arguments: list[str]) -> int:
    """A job that the driver of a comparison starts: two of three end at a file operation, while there is a fate."""
    given = json.loads(os.environ[_FATE_VARIABLE])
    fate = Fate(**given["fate"])
    sys.argv = ["onelip", arguments[0]]
    stop_clocks()
    be_careless(fate.careless)
    if fate.operation is not None:
        random = Random(f"{given['seed']}/{arguments}/{Path(fate.tally).stat().st_size}")
        number = random.randint(1, _MOST_OPERATIONS_OF_A_WORKER) if random.randrange(3) else None
        power = random.random() < 0.5 if not fate.careless else fate.power
        KillPoints(Fate(fate.folder, fate.tally, number, power)).install()
    return run_command(arguments)


def torn_files(folder: Path, expected: dict[str, str]) -> list[str]:
    """Files that are not whole, old or new, at this moment: hidden ones have no name yet."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or path.name.startswith("."):
            continue
        try:
            if path.name in (RECORD_FILE, STUDY_FILE):
                parse_json(path.read_text())
            elif path.name == CHECKPOINT_FILE:
                load_checkpoint(path.parent)
            elif path.name not in (*_NOT_COMPARED, *_GROWING) and _digest(path) != expected.get(name):
                found.append(f"{name}: torn")
        except (InvalidInputError, ValueError) as error:
            found.append(f"{name}: torn ({error!s:.100})")
    return found


def tree(folder: Path) -> dict[str, str]:
    """Every file that has to be equal, with the hash of its content."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in _NOT_COMPARED)
    return {str(path.relative_to(folder)): _digest(path) for path in files}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Round:
    """What was done to one folder, and what differs from an undisturbed one: nothing, if all is well."""

    scenario: str
    seed: int
    kills: int
    power: int
    """How many of them were losses of power."""
    processes: int
    disk_full: int
    careless: Careless
    differences: tuple[str, ...] = ()


class UnfinishedError(Exception):
    """A folder in which no process comes to its end any more."""


class Rounds:
    """Rounds of all scenarios, each compared with its undisturbed run."""

    def __init__(self, work: Path, dataset: str) -> None:
        self.work, self.tally = work, work / "tally"
        work.mkdir(parents=True, exist_ok=True)
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

    def play(
        self, name: str, seed: int, kills: int, processes: int = 1, disk: Path | None = None, careless: Careless = ""
    ) -> Round:
        """Kill so often, finish in peace, compare."""
        reference, operations = self.reference(name)
        expected, size = tree(reference), sum(path.stat().st_size for path in reference.rglob("*"))
        random = Random(f"{name}/{seed}")
        folder = self.work / f"round-{name}-{seed}" if disk is None else disk / "work"
        shutil.rmtree(folder, ignore_errors=True)
        self._new(name, folder)
        self.tally.write_bytes(b"")
        full, problems = 0, list[str]()
        for attempt in range(4 * kills):
            if problems or self.tally.stat().st_size >= kills:
                break
            is_full = disk is not None and random.randrange(3) > 0
            if disk is not None and is_full:
                _fill(disk, leave=random.randrange(size // 4))
            command = random.choice(self._commands(name, folder))
            fates = [self._fate(random, folder, operations, careless) for _ in range(processes)]
            if is_full and random.randrange(2):  # so that nothing else ends it
                fates = [replace(fate, operation=None) for fate in fates]
            sessions = [Session(folder, command, fate, f"{seed}/{attempt}") for fate in fates]
            for ended in [session.wait() for session in sessions]:
                full += "No space left" in ended.errors
                if "Traceback" in ended.errors:
                    problems.append(ended.errors[-2000:])
            if disk is not None:
                (disk / "filler").unlink(missing_ok=True)
            problems += torn_files(folder, expected)
        problems += self._finish_and_compare(folder, name, expected, careless)
        if not problems or careless:  # else it is kept, to be looked at
            shutil.rmtree(folder)
        ends = Counter(self.tally.read_bytes().decode())
        return Round(name, seed, ends.total(), ends["p"], processes, full, careless, tuple(problems))

    def _fate(self, random: Random, folder: Path, operations: int, careless: Careless) -> Fate:
        """A control is ended in the way that its carelessness does not survive."""
        number, power = random.randint(1, max(4, operations // 4)), random.random() < 0.5
        return Fate(str(folder), str(self.tally), number, power if not careless else careless == "unsynced", careless)

    def _finish_and_compare(self, folder: Path, name: str, expected: dict[str, str], careless: Careless) -> list[str]:
        try:
            self._finish(folder, name, careless)
        except UnfinishedError as error:
            return [str(error)]
        found = tree(folder)
        return sorted(path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path))

    def _new(self, name: str, folder: Path) -> Path:
        folder.mkdir(parents=True)
        self.all[name].prepare(folder)
        return folder

    def _commands(self, name: str, folder: Path) -> list[list[str]]:
        names = folder / "names.json"
        jobs = json.loads(names.read_text()) if names.exists() else ["?"]
        commands = [list(command) for command in self.all[name].commands]
        return [[job if word == "?" else word for word in command] for command in commands for job in jobs]

    def _finish(self, folder: Path, name: str, careless: Careless = "") -> int:
        operations, peace = 0, Fate(str(folder), str(self.tally), careless=careless)
        for command in self._commands(name, folder):
            ended = Ended(0, "", 0)
            for _patience in range(60):  # jobs of a driver that was killed may still run: they are let to end
                ended = Session(folder, command, peace).wait()
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
