"""Write a saved network for ONNX or torch.export.

```
onelip export runs/NAME/model.safetensors --onnx model.onnx
```

The network is fused first: no parameter transformation is left. The file is run by its own runtime and compared with
the exact scores before it gets its name; a difference beyond the proven float32 error is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from onelip.bench.cli.options import FILE, SHAPE
from onelip.bench.cli.saved_network import SavedNetwork
from onelip.bench.data import get_dataset
from onelip.bench.records import dump_json
from onelip.bench.terminal import stages
from onelip.errors import InvalidInputError
from onelip.export import export_onnx, export_torch


@dataclass(frozen=True, kw_only=True)
class Command(SavedNetwork):
    onnx: Annotated[Path | None, FILE] = None
    """Write this ONNX file (needs the extra onnx)."""
    torch_export: Annotated[Path | None, FILE] = None
    """Write this program for torch.export.load."""
    input_shape: Annotated[tuple[int, ...] | None, SHAPE] = None
    """Shape of one input, such as 3 32 32; by default what the network says, or that of the data of its run."""

    def run(self) -> int:
        if self.onnx is None and self.torch_export is None:
            raise InvalidInputError("say what to write: --onnx FILE, --torch-export FILE, or both")
        model = self.network()
        given = self.input_shape or getattr(model, "input_shape", None)
        if given is None and (dataset := self.training_data()) is not None:
            given = get_dataset(dataset).shape
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
