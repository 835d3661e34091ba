"""The log of a run: `log.jsonl`, one JSON object per validation, and the same for TensorBoard if it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onelip.atomic_files import append_line, read_regular, write_atomically
from onelip.bench.runs import dump_json, parse_json
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
        self._tensorboard = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add one entry."""
        append_line(self.path, dump_json(dict(entry), indent=None).encode())
        if self._tensorboard is not None:
            for name, value in entry.items():
                if isinstance(value, (int, float)):
                    self._tensorboard.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        """Write out what TensorBoard still holds."""
        if self._tensorboard is not None:
            self._tensorboard.close()
