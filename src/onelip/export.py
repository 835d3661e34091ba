"""Fused models for other runtimes: ONNX files and torch.export programs, each checked against the proven error.

    export_onnx(model, "model.onnx", (3, 32, 32))
    export_torch(model, "model.pt2", (3, 32, 32))

The exported program computes in float32 what the fused model computes. Before the file gets its name, it is run by
its own runtime on random inputs of all sizes and compared with the exact scores: a difference beyond the proven
rounding error of float32 raises, and nothing is written.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onelip.atomic_files import write_atomically
from onelip.certification.proven_model import checked_shape, output_check
from onelip.errors import InvalidInputError
from onelip.fusing import fuse

Check = Callable[[Tensor, Tensor], None]
"""Of inputs and of what a program returns for them; raises where that is not the model's."""

_REWRITTEN: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.log_sigmoid.default: lambda x: -nn.functional.softplus(-x),
}
"""Operations that torch writes to ONNX as something else: the logarithm of a sigmoid, which is -inf at -90."""

OPSET = 20
"""Version of the ONNX operators: every runtime since 2023 has it."""

_SIZES = (1.0, 1.0, 1e-38, 1e-20, 1e-6, 10.0, 30.0, 100.0, 1e3, 1e6, 1e12, 1e30)
"""Of the random inputs on which an export is compared with the exact scores."""


def export_onnx(model: nn.Module, path: str | Path, input_shape: Sequence[int] | None = None) -> Path:
    """Write a fused copy of `model` as an ONNX file with input `x` and output `scores`, for batches of any size.

    Needs the extra `onnx`. `input_shape` is the shape of one input without the batch; by default `model.input_shape`.

    Examples:
        >>> import onelip
        >>> model = onelip.create_linear("aol", 4, 3)
        >>> onelip.export_onnx(model, "model.onnx", (4,)).name
        'model.onnx'
    """
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")):
        raise InvalidInputError('export to ONNX needs the extra "onnx": pip install "onelip[onnx]"')
    import onnxruntime

    fused, example, check = _fused(model, input_shape)
    batch = {0: torch.export.Dim("batch")}
    with _target(path) as temporary:
        with _quiet():
            exported = torch.export.export(fused, (example,), dynamic_shapes=(batch,))
            program = torch.onnx.export(
                exported.run_decompositions(_REWRITTEN),
                dynamo=True,
                opset_version=OPSET,
                input_names=["x"],
                output_names=["scores"],
                verbose=False,
            )
        assert program is not None
        program.save(str(temporary), external_data=False)
        session = onnxruntime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
        _check(check, example, lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0]))
    return Path(path)


def export_torch(model: nn.Module, path: str | Path, input_shape: Sequence[int] | None = None) -> Path:
    """Write a fused copy of `model` as a program of `torch.export` (read it with `torch.export.load`).

    Examples:
        >>> import torch, onelip
        >>> model = onelip.create_linear("aol", 4, 3)
        >>> path = onelip.export_torch(model, "model.pt2", (4,))
        >>> torch.export.load(path).module()(torch.randn(2, 4)).shape
        torch.Size([2, 3])
    """
    fused, example, check = _fused(model, input_shape)
    batch = {0: torch.export.Dim("batch")}
    with _target(path) as temporary:
        torch.export.save(torch.export.export(fused, (example,), dynamic_shapes=(batch,)), str(temporary))
        _check(check, example, torch.export.load(str(temporary)).module())
    return Path(path)


def _fused(model: nn.Module, input_shape: Sequence[int] | None) -> tuple[nn.Module, Tensor, Check]:
    """The fused model in float32 on the CPU, inputs of all sizes, and what tells outputs that are not the model's.

    What has no bound is refused before torch tries to export it. Scores are compared in pairs, as certificates compare
    them; the outputs of a critic, of a regression or of a network of images as they are.
    """
    shape = checked_shape(model, input_shape)
    fused = fuse(model, shape).cpu().float()
    for tensor in (*fused.parameters(), *fused.buffers()):
        tensor.data = tensor.data.contiguous()  # of kernels stored channels_last torch.export warns
    drawn = torch.randn((len(_SIZES), *shape), generator=torch.Generator().manual_seed(0))
    example = drawn * torch.tensor(_SIZES).reshape(-1, *[1] * len(shape))
    return fused, example, output_check(fused, shape)


def _check(check: Check, x: Tensor, program: Callable[[Tensor], Tensor]) -> None:
    for part in (x, x[:3]):  # two sizes of batches
        with torch.no_grad():
            check(part, program(part))


@contextlib.contextmanager
def _target(path: str | Path) -> Iterator[Path]:
    """A file elsewhere, whose content is written to `path` at once if nothing was raised."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InvalidInputError(f"cannot write {path}: there is no folder {path.parent}")
    with tempfile.TemporaryDirectory(prefix="onelip-export-") as folder:
        temporary = Path(folder) / path.name
        yield temporary
        write_atomically(path, temporary.read_bytes())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about packages that onelip does not use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
