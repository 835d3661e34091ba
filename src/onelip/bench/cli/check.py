"""`onelip check CHECKPOINT`: the sanity checks of a trained network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from onelip.bench.cli import CommandInfo
from onelip.bench.runs.dataset_option import DatasetOption

if TYPE_CHECKING:
    from rich.table import Table

    from onelip.certification.diagnostics import Diagnostics


@dataclass(frozen=True)
class CheckOptions:
    """Check that a saved network is 1-Lipschitz, layer by layer: proven bounds, norms, variances, gradients.

    Exit code 1 if a proven bound exceeds 1 + tolerance or the variance of a batch grows from one layer to the next.
    """

    checkpoint: Annotated[Path, tyro.conf.Positional]
    """File written by onelip.save_model."""
    dataset: DatasetOption = "cifar10-mini"
    """Where the batch comes from; its images must have the size of the network's."""
    samples: int = 64
    """Test images in the batch."""
    tolerance: float = 1e-4
    """Excess of a bound over 1 that is put down to float32 weights."""
    all_layers: bool = False
    """Show layers without parameters too."""
    explain: bool = False
    """Also print the graph: every call, its constant, how much it rounds, and what makes the product large."""
    figure: Path | None = None
    """Write the figures to this file (png, pdf or svg)."""
    json: bool = False
    """Print a JSON object instead of a table."""

    def run(self) -> int:
        """Print the table, the product and what failed."""
        from onelip.bench.cli.images import first_test_images
        from onelip.certification.diagnostics import diagnose
        from onelip.checkpoints import load_model

        model = load_model(self.checkpoint)
        x, labels = next(iter(first_test_images(model, self.dataset, self.samples, self.samples)))
        found = diagnose(model, x, labels)
        failures = found.failures(self.tolerance)
        if self.figure is not None:
            from onelip.bench.report.figures.layer_lines import save_diagnostics

            save_diagnostics(found.as_records(), self.figure)
        if self.json:
            print(json.dumps({"layers": found.as_records(), "failures": failures}, indent=2))
        else:
            _print(found, failures, self.all_layers)
            if self.explain:
                from onelip.certification import explain

                print(explain(model, tuple(x.shape[1:])))
        return 1 if failures else 0


def _print(found: Diagnostics, failures: list[str], all_layers: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_table(found, all_layers))
    console.print(
        f"proven Lipschitz bound of the network: {found.layers[-1].bound_product:.8f}. "
        "norm: power iteration, from below; bound: proven, from above, minus 1."
    )
    for failure in failures:
        console.print(f"[bold red]failed[/] {failure}")
    if not failures:
        console.print("[bold green]passed[/] no bound above 1, no variance that grows")


def _table(found: Diagnostics, all_layers: bool) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("layer", no_wrap=True)
    for title in ("output", "variance", "norm", "bound - 1", "gradient"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_row("input", "", f"{found.input_variance:.4g}", "", "", "")
    for layer in found.layers:
        if layer.norm_estimate is None and not all_layers:
            continue
        shape = "x".join(str(length) for length in layer.output_shape)
        norm = "" if layer.norm_estimate is None else f"{layer.norm_estimate:.6f}"
        gradient = "" if layer.gradient_norm is None else f"{layer.gradient_norm:.3g}"
        table.add_row(layer.path, shape, f"{layer.variance:.4g}", norm, f"{layer.bound - 1:.2g}", gradient)
    return table


COMMAND = CommandInfo("check", CheckOptions)
