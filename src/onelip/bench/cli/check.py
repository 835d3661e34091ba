"""`onelip check CHECKPOINT`: the sanity checks of a trained network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from onelip.bench.cli.images import MODEL_HELP, first_test_images, load_trusted, trained_on
from onelip.bench.cli.stages import stages
from onelip.bench.report.figures.layer_lines import save_diagnostics
from onelip.bench.runs.dataset_option import DatasetOption
from onelip.bench.terminal import plain_table
from onelip.certification import explain
from onelip.certification.diagnostics import Diagnostics, diagnose
from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.factories import build, find_factory, is_factory_name, search_working_folder, taken_arguments


@dataclass(frozen=True)
class CheckOptions:
    """Check that a saved network is 1-Lipschitz, layer by layer: proven bounds, norms, variances, gradients.

    Or, before any training, what can be certified of a model of your own: its graph, what has no Lipschitz constant and
    what makes it large.

    Example: onelip check my_module:make_net --input-shape 3 32 32

    Exit code 1 if a proven bound exceeds 1 + tolerance or the variance of a batch grows from one layer to the next.
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE|MODULE:FUNCTION")]
    """File written by onelip.save_model, name of one of onelip's own networks, or your function that returns a
    model, which is called with num_classes and input_shape if it takes them."""
    dataset: DatasetOption | None = None
    """Where the batch comes from; its images must have the size of the network's. By default what the network was
    trained on, if the file lies in the folder of its run, else cifar10-mini."""
    samples: int = 64
    """Test images in the batch."""
    tolerance: float = 1e-4
    """Excess of a bound over 1 that is put down to float32 weights."""
    model: Annotated[str | None, tyro.conf.arg(help=MODEL_HELP)] = None
    input_shape: tuple[int, ...] | None = None
    """For module:function: shape of one input, such as 3 32 32."""
    num_classes: int = 10
    """For module:function: number of classes."""
    all_layers: bool = False
    """Show layers without parameters too."""
    explain: bool = False
    """Also print the graph: every call, its constant, how much it rounds, and what makes the product large."""
    figure: Path | None = None
    """Write the figures to this file (png, pdf or svg)."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print a JSON object instead of a table."""

    def run(self) -> int:
        """Print the table, the product and what failed."""
        if is_factory_name(self.checkpoint) and not Path(self.checkpoint).exists():
            return self._check_factory()
        if self.figure is not None and not self.figure.parent.is_dir():
            raise InvalidInputError(f"{self.figure}: there is no folder {self.figure.parent}")
        model = load_trusted(self.checkpoint, self.model)
        x, labels = next(
            iter(first_test_images(model, self.dataset or trained_on(self.checkpoint), self.samples, self.samples))
        )
        with stages(self.quiet) as tell:
            tell(f"proving the bounds of {self.checkpoint}")
            found = diagnose(model, x, labels)
        failures = found.failures(self.tolerance)
        if self.figure is not None:
            save_diagnostics(found.as_records(), self.figure)
        if self.json:
            print(json.dumps({"layers": found.as_records(), "failures": failures}, indent=2))
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
    console = Console(highlight=False)
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
        console.print(f"[bold red]failed[/] {failure}")
    if not failures:
        console.print("[bold green]passed[/] no bound above 1, no variance that grows")


COMMAND = CheckOptions
