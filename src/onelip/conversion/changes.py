"""What a conversion did, place by place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["converted", "kept", "not converted"]


@dataclass(frozen=True)
class Change:
    """One module or operation of the model: where, what it was, what it is, and why."""

    path: str
    outcome: Outcome
    before: str
    after: str
    note: str = ""


@dataclass(frozen=True)
class Conversion:
    """All changes in the order of the computation; `print` shows them as a table."""

    changes: tuple[Change, ...]
    shapes: str = ""
    """Of the inputs that the model was run on, such as "3x32x32"."""

    @property
    def failures(self) -> tuple[Change, ...]:
        """What has no 1-Lipschitz counterpart; a model without failures can be certified."""
        return tuple(change for change in self.changes if change.outcome == "not converted")

    def __str__(self) -> str:
        rows = [("place", "before", "after", "note")]
        for change in self.changes:
            after = {"kept": "(kept)", "not converted": "NOT CONVERTED"}.get(change.outcome, change.after)
            rows.append((change.path, change.before, after, change.note))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join([*(text.ljust(w) for text, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
        return "\n".join(line.rstrip() for line in lines)
