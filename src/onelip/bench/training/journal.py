"""What a run tells: its log (`log.jsonl`, one JSON object per validation) and its progress on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from onelip.atomic_files import append_line, read_regular, write_atomically
from onelip.bench.records import dump_json, parse_json
from onelip.bench.terminal import Terminal
from onelip.errors import InvalidInputError

LOG_FILE = "log.jsonl"


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The entries of a run's log up to the first line that is none: a kill may cut the last one short."""
    path = folder / LOG_FILE
    if not path.exists():
        return []
    try:
        lines = read_regular(path).splitlines()
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}; delete it to go on without it") from error
    entries = []
    for line in lines:
        try:
            entry = parse_json(line.decode("utf-8"))
        except ValueError:
            break
        if not isinstance(entry, dict) or type(entry.get("step")) is not int:
            break
        entries.append(entry)
    return entries


class Journal:
    """Appends entries; the beginning up to `step` is that of an earlier session, later entries are dropped.

    What an earlier session wrote after its last checkpoint is made, and written, again.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / LOG_FILE
        kept = [entry for entry in read_log(folder) if entry["step"] <= step]
        text = "".join(dump_json(entry, indent=None) + "\n" for entry in kept)
        write_atomically(self.path, text.encode())

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add one entry."""
        append_line(self.path, dump_json(dict(entry), indent=None).encode())


_HEADER = f"{'epoch':>7} {'train loss':>10} {'loss':>8} {'acc %':>6} {'cert@36 %':>9} {'img/s':>7} {'seconds':>8}"


class ProgressDisplay:
    """Shows a run on stderr; without a terminal, only the lines. Silent if `enabled` is False."""

    def __init__(self, title: str, *, enabled: bool) -> None:
        self._enabled = enabled
        self._console = Terminal(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("lr {task.fields[lr]:.1e}"),
        )
        self._progress = Progress(
            *columns, console=self._console, transient=True, disable=not (enabled and self._console.is_terminal)
        )
        self._task = self._progress.add_task(title, total=1.0, lr=0.0)

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        if self._enabled:
            self._console.print("validation; certified accuracy is an estimate until `onelip evaluate` proves it")
            self._console.print(_HEADER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self, fraction: float, lr: float) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=fraction, lr=lr)

    def entry(self, entry: Mapping[str, Any]) -> None:
        """Print the line of a validation."""
        if not self._enabled:
            return
        accuracy, certified = entry.get("validation_accuracy"), entry.get("validation_certified_accuracy_36")
        loss = entry.get("validation_loss")
        self._console.print(
            f"{entry['epoch']:7.2f} {entry['train_loss']:10.4f} {_cell(loss, '8.4f')} {_cell(accuracy, '6.2f', 100)} "
            f"{_cell(certified, '9.2f', 100)} {entry['images_per_second']:7.0f} {entry['train_seconds']:8.1f}"
        )


def _cell(value: float | None, form: str, factor: float = 1.0) -> str:
    return "-".rjust(int(form[0])) if value is None else format(factor * value, form)
