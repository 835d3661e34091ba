"""Ship a trained network with onelip: python benchmarks/ship.py RUN NAME

Writes its weights, and a card of what its record says in the form that `onelip.pretrained` reads.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import onelip
from onelip.atomic_files import write_atomically
from onelip.bench.records import RunStatus, dump_json, read_record, view
from onelip.bench.records.views import TrainResult
from onelip.bench.training.loop import MODEL_FILE
from onelip.errors import InvalidInputError


def card_of_run(folder: Path, name: str) -> dict[str, Any]:
    """The card of a finished run that was evaluated on the test set."""
    record = read_record(folder)
    result = view(record).result if record.status is RunStatus.FINISHED else None
    if not isinstance(result, TrainResult) or record.model_sha256 is None or result.test_accuracy is None:
        raise InvalidInputError(f"{folder}: a card needs a finished training that was evaluated on the test set")
    return {
        "name": name,
        "network": record.network.label,
        "sha256": record.model_sha256,
        "data": record.network.dataset,
        "images": result.test_images,
        "accuracy": result.test_accuracy,
        "certified_accuracy": {str(radius): share for radius, share in result.certified.items()},
        "lipschitz_bound": result.test_lipschitz_bound,
        "arithmetic": "float64: the exact function of the stored weights, and the program in float64",
        "command": " ".join(["onelip", *without_folder(record.command[1:])]),
        "core_seconds": result.core_seconds,
        "steps": record.metrics["steps"],
        "seed": record.seed,
        "commit": None if record.commit is None else record.commit["id"],
        "versions": record.versions,
        "processor": record.machine.get("cpu"),
    }


def without_folder(arguments: list[str]) -> list[str]:
    """The arguments of a training but for --runs-dir, a folder of this machine."""
    at = arguments.index("--runs-dir") if "--runs-dir" in arguments else len(arguments)
    return arguments[:at] + arguments[at + 2 :]


def ship(folder: Path, name: str, out: Path) -> None:
    """Write card and weights of a run to `out` under this name."""
    card = card_of_run(folder, name)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / f"{name}.safetensors", (folder / MODEL_FILE).read_bytes())
    write_atomically(out / f"{name}.json", (dump_json(card) + "\n").encode())


if __name__ == "__main__":
    ship(Path(sys.argv[1]), sys.argv[2], Path(onelip.__file__).parent / "trained")
