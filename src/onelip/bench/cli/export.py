"""`onelip export MODEL`: a trained network for other runtimes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from onelip.bench.cli.images import MODEL_HELP, load_trusted, shape_of_inputs
from onelip.bench.cli.stages import stages
from onelip.bench.runs import dump_json
from onelip.errors import InvalidInputError
from onelip.export import export_onnx, export_torch


@dataclass(frozen=True)
class ExportOptions:
    """Write a saved network as an ONNX file, as a torch.export program, or both.

    The network is fused first: no parameter transformation is left. The file is run by its own runtime and compared
    with the exact scores before it gets its name; a difference beyond the proven float32 error is an error.
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """File written by onelip.save_model, such as model.safetensors of a run."""
    onnx: Path | None = None
    """Write this ONNX file (needs the extra onnx)."""
    torch_export: Path | None = None
    """Write this program for torch.export.load."""

    model: Annotated[str | None, tyro.conf.arg(help=MODEL_HELP)] = None
    input_shape: tuple[int, ...] | None = None
    """Shape of one input, such as 3 32 32; by default what the network says, or that of the data of its run."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print a JSON list of the files with their sizes."""

    def run(self) -> int:
        """Export and say what was written."""
        if self.onnx is None and self.torch_export is None:
            raise InvalidInputError("say what to write: --onnx FILE, --torch-export FILE, or both")
        model = load_trusted(self.checkpoint, self.model)
        given = self.input_shape or shape_of_inputs(model, self.checkpoint)
        if given is None:
            raise InvalidInputError("say what the network takes: --input-shape CHANNELS HEIGHT WIDTH")
        written: list[Path] = []
        with stages(self.quiet) as tell:
            for path, export in ((self.onnx, export_onnx), (self.torch_export, export_torch)):
                if path is not None:
                    tell(f"writing and testing {path}")
                    export(model, path, given)
                    written.append(path)
        if self.json:
            print(dump_json([{"path": path, "shape": given, "bytes": path.stat().st_size} for path in written]))
            return 0
        shape = "x".join(str(length) for length in given)
        for path in written:
            print(f"{path}: batches of {shape}, {path.stat().st_size / 2**20:.1f} MiB, within the proven error")
        return 0


COMMAND = ExportOptions
