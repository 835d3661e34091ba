"""Check, layer by layer, that a network is 1-Lipschitz.

```
onelip check runs/NAME/model.safetensors
onelip check my_module:make_net --input-shape 3 32 32
```

The second line checks a model of your own before any training: it prints its graph, what has no known Lipschitz
constant and what makes the constant large. The exit code is 1 if a proven bound exceeds 1 + tolerance, or if the
variance of a batch grows from one layer to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.text import Text

from onelip.bench.cli.options import AT_LEAST_1, FIGURE, SHAPE, checked, must
from onelip.bench.cli.saved_network import NetworkOnImages
from onelip.bench.records import dump_json
from onelip.bench.report.figures.layer_lines import save_diagnostics
from onelip.bench.terminal import Terminal, plain_table, stages
from onelip.certification import explain
from onelip.certification.diagnostics import Diagnostics, diagnose
from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.factories import build, find_factory, is_factory_name, search_working_folder, taken_arguments

_TOLERABLE = checked(must(lambda excess: 0 <= excess < math.inf, "must be a number of 0 or more"))


@dataclass(frozen=True, kw_only=True)
class Command(NetworkOnImages):
    checkpoint: str = field(kw_only=False)
    """File written by onelip.save_model, name of one of onelip's own networks, or your function that returns a
    model, which is called with num_classes and input_shape if it takes them."""
    samples: Annotated[int, AT_LEAST_1] = 64
    """Test images in the batch."""
    tolerance: Annotated[float, _TOLERABLE] = 1e-4
    """Excess of a bound over 1 that is put down to float32 weights."""
    input_shape: Annotated[tuple[int, ...] | None, SHAPE] = None
    """For module:function: shape of one input, such as 3 32 32."""
    num_classes: Annotated[int, AT_LEAST_1] = 10
    """For module:function: number of classes."""
    all_layers: bool = False
    """Show layers without parameters too."""
    explain: bool = False
    """Also print the graph: every call, its constant, how much it rounds, and what makes the product large."""
    figure: Annotated[Path | None, FIGURE] = None
    """Write the figures to this file (png, pdf or svg)."""

    def run(self) -> int:
        if is_factory_name(self.checkpoint) and not Path(self.checkpoint).exists():
            return self._check_factory()
        model = self.network()
        [(x, labels)] = self.first_images(model)
        with stages(self.quiet) as tell:
            tell(f"proving the bounds of {self.checkpoint}")
            found = diagnose(model, x, labels)
        failures = found.failures(self.tolerance)
        if self.figure is not None:
            save_diagnostics(found.as_records(), self.figure)
        if self.json:
            print(dump_json({"layers": found.as_records(), "failures": failures}))
        else:
            _print(found, failures, self.all_layers)
            if self.explain:
                print(explain(model, tuple(x.shape[1:])))
        return 1 if failures else 0

    def _check_factory(self) -> int:
        """The graph of a model that is not trained yet; 1 if something in it has no known constant."""
        if self.input_shape is None:
            raise InvalidInputError(f"{self.checkpoint}: say what the model takes: --input-shape CHANNELS HEIGHT WIDTH")
        search_working_folder()
        factory = find_factory(self.checkpoint)
        offered = {"num_classes": self.num_classes, "input_shape": list(self.input_shape)}
        model = build(factory, taken_arguments(factory, offered))
        advice = "`onelip.convert(model, method=...)` returns a copy in which every operation has a bound of 1"
        try:
            explanation = explain(model, self.input_shape)
        except UnknownLipschitzConstant as error:
            print(f"cannot be certified: {error}\n{advice}, where it can.")
            return 1
        print(explanation)
        if explanation.lipschitz > 1 + self.tolerance:
            print(f"can be certified, with radii divided by {explanation.lipschitz:.4g}; {advice}.")
        else:
            print("can be certified: 1-Lipschitz.")
        return 0


def _print(found: Diagnostics, failures: list[str], all_layers: bool) -> None:
    console = Terminal()
    table = plain_table(("layer",), ("output", "variance", "norm", "bound - 1", "gradient"))
    table.add_row("input", "", f"{found.input_variance:.4g}", "", "", "")
    for layer in found.layers:
        if layer.norm_estimate is None and not all_layers:
            continue
        shape = "x".join(str(length) for length in layer.output_shape)
        norm = "" if layer.norm_estimate is None else f"{layer.norm_estimate:.6f}"
        gradient = "" if layer.gradient_norm is None else f"{layer.gradient_norm:.3g}"
        table.add_row(layer.path, shape, f"{layer.variance:.4g}", norm, f"{layer.bound - 1:.2g}", gradient)
    console.print(table)
    console.print(
        f"proven Lipschitz bound of the network: {found.layers[-1].bound_product:.8f}. "
        "norm: power iteration, from below; bound: proven, from above, minus 1."
    )
    for failure in failures:
        console.print(Text.assemble(("failed", "bold red"), f" {failure}"))
    if not failures:
        console.print(Text.assemble(("passed", "bold green"), " no bound above 1, no variance that grows"))
