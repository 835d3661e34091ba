"""Malformed inputs by the thousand, and what the command line does with each.

    python -m hostile.corpus --cases 3000 --seed 0        # in tests/; or `make fuzz`
    python -m hostile.corpus --only model --case 17       # one case again, with its traceback

A case is a good file with seeded damage, and a command that reads it. It passes if the command

* refuses it: exit code 2, one printable line, no file written or changed, or
* names it: the output or the report says which file cannot be read, and shows the rest, or
* takes it, because it is still a good file. What stands under a checksum has no such cases.

Whatever else happens is a failure: an exception, a second line, an escape sequence, a changed file, 300 MB of memory, a
minute of processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from hostile.attacks import ATTACKS
from hostile.command_lines import command_line
from hostile.good_files import MAKERS, small_data_sets
from hostile.trials import KINDS, Kind, Trial

from onelip.bench.cli import run

_LONGEST_SECONDS = 60  # of the processor
_LONGEST_WAIT = 900  # by the clock, for what waits and does not compute
_MOST_MEMORY = 300 * 2**20
ALL_KINDS = KINDS | {"command line": Kind("runs", command_line, 8)}

Outcome = str
"""refused, named or taken; anything else is what went wrong."""
GOOD = ("refused", "named", "taken")


class HangError(BaseException):
    """The watchdog has waited long enough; no handler of errors may catch it."""


@dataclass(frozen=True)
class Result:
    """How one case ended."""

    kind: str
    number: int
    outcome: Outcome
    detail: str = ""


class Corpus:
    """Cases by kind, seed and number: the same three give the same case on every machine."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed

    def run(self, kind: str, number: int) -> Result:
        """Make one case and judge it."""
        if kind == "attack":
            make, world = list(ATTACKS.items())[number]
            name, damage = make.__name__, lambda _, sandbox: make(sandbox)
        else:
            name, world, damage = "", ALL_KINDS[kind].world, ALL_KINDS[kind].damage
        random = Random(f"{self.seed}/{kind}/{number}")
        sandbox = self.folder / "sandbox"
        shutil.rmtree(sandbox, ignore_errors=True)
        shutil.copytree(self._world(world), sandbox)
        (sandbox / "cache").mkdir(exist_ok=True)
        with _inside(sandbox):
            trial = damage(random, sandbox)
            outcome, detail = _judge(trial, sandbox)
        return Result(kind, number, outcome, f"{name} onelip {' '.join(trial.command)[:150]}: {detail}")

    def _world(self, name: str) -> Path:
        world = self.folder / name
        if not world.exists():
            world.mkdir(parents=True)
            with _inside(world):
                MAKERS[name](world)
        return world


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.environ.get("ONELIP_DATA")
    os.environ["ONELIP_DATA"] = str(folder / "cache")
    try:
        with contextlib.chdir(folder), small_data_sets():
            yield
    finally:
        os.environ.pop("ONELIP_DATA") if before is None else os.environ.update(ONELIP_DATA=before)


def _judge(trial: Trial, sandbox: Path) -> tuple[Outcome, str]:
    before, memory = _snapshot(sandbox), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _watchdog(), _warnings_shown(err):
            code = run(list(trial.command))
    except HangError:
        return "hang", "no end in sight"
    except SystemExit as stop:
        code = stop.code
    except BaseException as error:
        return "exception", "".join(traceback.format_exception(error)[-6:])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1024
    if grown > _MOST_MEMORY:
        return "memory", f"{grown / 2**20:.0f} MB more"
    text, problems = out.getvalue(), err.getvalue()
    odd = [letter for letter in text + problems if not letter.isprintable() and letter != "\n"]
    if odd:
        return "escape", ascii("".join(odd[:20]))
    allowed = trial.may_write or "\0"
    changes = sorted(_changes(before, _snapshot(sandbox)))
    if touched := [path for path in changes if trial.untouched and path.startswith(trial.untouched)]:
        return "files", f"{touched[:3]} must never change"
    changed = [path for path in changes if not path.startswith(allowed)]
    if code == trial.refusal:
        if not problems.startswith("onelip: ") or problems.count("\n") != 1:
            return "lines", problems[:500]
        return ("files", f"{changed[:3]}, although {problems}") if changed else ("refused", problems.strip())
    if code not in (0, 1):
        return "exit code", f"{code}: {problems}"
    if trial.is_sealed:
        return "undetected", f"{trial.damaged} was taken"
    return _named_or_taken(trial, text + problems, sandbox)


def _named_or_taken(trial: Trial, text: str, sandbox: Path) -> tuple[Outcome, str]:
    page = sandbox / "out/report.html"
    if trial.names:
        content = page.read_text(encoding="utf-8")
        lost = [name for name in trial.names if name not in content]
        return ("lost", f"{lost} not in the report") if lost else ("named", "")
    words = ("BAD", "damaged", "cannot be read", "is not", "not readable", "failed")
    is_named = any(Path(path).parts[-2 if len(Path(path).parts) > 1 else 0] in text for path in trial.damaged)
    return ("named" if is_named and any(word in text for word in words) else "taken"), ""


def _snapshot(folder: Path) -> dict[str, object]:
    """All files with their content, links with their target; locks and empty folders do not count as written."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file() and path.name != ".lock":
            size = path.stat().st_size  # that of a sparse file says enough
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).digest() if size < 2**28 else size
    return found


def _changes(before: dict[str, object], after: dict[str, object]) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


@contextlib.contextmanager
def _watchdog() -> Iterator[None]:
    def bark(number: int, frame: FrameType | None) -> None:
        raise HangError

    numbers = (signal.SIGPROF, signal.SIGALRM)
    previous = [signal.signal(number, bark) for number in numbers]
    signal.setitimer(signal.ITIMER_PROF, _LONGEST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_WAIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def _warnings_shown(stream: io.StringIO) -> Iterator[None]:
    """A warning is a line that the user sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, category, *_: print(f"{category.__name__}: {message}", file=stream)
        yield


def main() -> int:
    """Run the corpus and print its figures; 1 if a case failed."""
    parser = argparse.ArgumentParser(description="Malformed inputs, and what the command line does with them.")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=(*ALL_KINDS, "attack"))
    parser.add_argument("--case", type=int)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(6 * 3600, exit=True)
    started, counts, failures = time.process_time(), Counter(), []
    with tempfile.TemporaryDirectory(prefix="onelip-fuzz-") as folder:
        corpus = Corpus(Path(folder), options.seed)
        for kind in [options.only] if options.only else (*ALL_KINDS, "attack"):
            share = 0 if kind == "attack" else ALL_KINDS[kind].share
            count = max(1, options.cases * share // 100) if share else len(ATTACKS)
            for number in [options.case] if options.case is not None else range(count):
                result = corpus.run(kind, number)
                counts[kind, result.outcome if result.outcome in GOOD else "FAILED"] += 1
                if result.outcome not in GOOD:
                    failures.append(result)
                    print(f"{kind} {number}: {result.outcome}: {result.detail}", file=sys.stderr, flush=True)
                elif options.case is not None:
                    print(result)
    for kind in (*ALL_KINDS, "attack"):
        cells = [f"{counts[kind, outcome]:5d} {outcome}" for outcome in (*GOOD, "FAILED")]
        print(f"{kind:14}", *cells)
    total = counts.total()
    taken = sum(count for (_, outcome), count in counts.items() if outcome == "taken")
    seconds = time.process_time() - started
    print(f"{total} cases, {total - taken} malformed, {len(failures)} failed; seed {options.seed}, {seconds:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
