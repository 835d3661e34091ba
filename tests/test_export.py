"""Exported programs: any batch size, checked against the proven error, nothing written where the check fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import onelip
from onelip.certification import BrokenCertificateError
from onelip.certification.proven_model import output_check
from onelip.errors import InvalidInputError
from onelip.layers import Abs, AOLConv2d, AOLLinear, CayleyConv2d, FirstChannels, MaxMin


class Small(nn.Module):
    """A kernel layer, a frequency layer, a head, and a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = AOLConv2d(3, 8, 3, stride=2), CayleyConv2d(8, 8, 3)
        self.act, self.head = MaxMin(), AOLLinear(8 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.second(self.act(self.first(x))))
        return self.head(x.flatten(1))


def test_onnx_runs_on_any_batch_and_agrees(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = Small().eval()
    path = onelip.export_onnx(model, tmp_path / "model.onnx", (3, 8, 8))
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(str(path))
    for batch in (1, 5):
        x = torch.rand(batch, 3, 8, 8)
        (scores,) = session.run(["scores"], {"x": x.numpy()})
        assert torch.allclose(torch.from_numpy(scores), model(x).detach(), atol=1e-5)


def test_torch_export_runs_on_any_batch_and_agrees(tmp_path: Path) -> None:
    model = Small().eval()
    program = torch.export.load(str(onelip.export_torch(model, tmp_path / "model.pt2", (3, 8, 8)))).module()
    x = torch.rand(7, 3, 8, 8)
    assert torch.allclose(program(x), model(x), atol=1e-5)


def test_torch_export_of_kernels_stored_channels_last_warns_of_nothing(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), MaxMin())
    model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        onelip.export_torch(model.eval(), tmp_path / "model.pt2", (3, 8, 8))


def test_a_program_that_computes_something_else_is_not_written(tmp_path: Path, monkeypatch) -> None:
    wrong = torch.export.export(Small().eval(), (torch.rand(12, 3, 8, 8),))
    monkeypatch.setattr(torch.export, "load", lambda _: wrong)
    with pytest.raises((BrokenCertificateError, RuntimeError)):
        onelip.export_torch(Small().eval(), tmp_path / "model.pt2", (3, 8, 8))
    assert not list(tmp_path.iterdir())


OTHERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Sequential(AOLLinear(4, 8), MaxMin(), AOLLinear(8, 1)), (4,)),
    (nn.Sequential(AOLConv2d(3, 8, 3), MaxMin(), AOLConv2d(8, 2, 1)), (3, 8, 8)),
]


@pytest.mark.parametrize(("model", "shape"), OTHERS, ids=["critic", "images"])
def test_models_that_are_no_classifiers_are_exported_and_checked(
    model: nn.Module, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = onelip.export_torch(model.eval(), tmp_path / "model.pt2", shape)
    x = torch.rand(5, *shape)
    assert torch.allclose(torch.export.load(str(path)).module()(x), model(x), atol=1e-5)
    path.unlink()
    right = torch.export.load

    class Shifted:
        def __init__(self, program: torch.export.ExportedProgram) -> None:
            self.program = program

        def module(self) -> nn.Module:
            return nn.Sequential(self.program.module(), Add())

    monkeypatch.setattr(torch.export, "load", lambda name: Shifted(right(name)))
    with pytest.raises(BrokenCertificateError, match="more than rounding"):
        onelip.export_torch(model, path, shape)
    assert not list(tmp_path.iterdir())


ENTRYWISE: list[Callable[[Tensor], Tensor]] = [
    *(F.logsigmoid, F.softplus, F.elu, F.celu, F.selu, F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.softsign),
    *(torch.sigmoid, torch.tanh, F.tanhshrink, torch.sin, torch.cos, torch.atan, torch.asinh, torch.erf, F.softshrink),
    *(F.relu6, F.leaky_relu, torch.abs, lambda x: F.gelu(x, approximate="tanh"), lambda x: F.softplus(x, 30.0)),
    *(lambda x: x * 0.3, lambda x: x / 3, lambda x: torch.lerp(x, x.abs(), 0.3), lambda x: F.threshold(x, 0.2, 0.2)),
]


class All(nn.Module):
    """Functions of each entry, side by side."""

    def __init__(self, functions: list[Callable[[Tensor], Tensor]]) -> None:
        super().__init__()
        self.functions, self.kind = functions, nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([function(x) for function in self.functions], 1)


@pytest.mark.filterwarnings("ignore")
def test_onnx_computes_every_entry_as_torch_does_over_the_whole_range(tmp_path: Path) -> None:
    """Written as log(sigmoid(x)), LogSigmoid is -inf at -104 and -16.63 at -16."""
    onnxruntime = pytest.importorskip("onnxruntime")
    path = onelip.export_onnx(All(ENTRYWISE).eval(), tmp_path / "model.onnx", (2,))
    sizes = torch.cat([10.0 ** torch.linspace(-44, 30, 600), torch.linspace(0.1, 120, 300)])
    x = torch.stack([sizes, -sizes], 1)
    (found,) = onnxruntime.InferenceSession(str(path)).run(["scores"], {"x": x.numpy()})
    for function, part in zip(ENTRYWISE, torch.from_numpy(found).split(2, 1), strict=True):
        for place in (0, 1):
            check = output_check(All([function]).eval(), (1,))
            check(x[:, place : place + 1], part[:, place : place + 1])


@pytest.mark.filterwarnings("ignore")
def test_what_onnx_leaves_out_is_not_written(tmp_path: Path) -> None:
    """torch's exporter forgets the divisor."""
    pytest.importorskip("onnxruntime")
    model = All([lambda x: F.avg_pool2d(x, 2, divisor_override=3)]).eval()
    with pytest.raises(BrokenCertificateError, match="more than rounding"):
        onelip.export_onnx(model, tmp_path / "model.onnx", (1, 4, 4))
    assert not list(tmp_path.iterdir())


class Add(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.001


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no folder"):
        onelip.export_torch(Small(), tmp_path / "nowhere" / "model.pt2", (3, 8, 8))


def test_activations_by_relu_compute_the_same_and_certify() -> None:
    model = nn.Sequential(AOLLinear(6, 8), MaxMin(), AOLLinear(8, 8), Abs(), AOLLinear(8, 4), FirstChannels(3)).eval()
    fused = onelip.fuse(model, (6,), activations="relu")
    kinds = {type(module).__name__ for module in fused.modules()}
    assert {"ReluMaxMin", "ReluAbs"} <= kinds
    assert not {"MaxMin", "Abs"} & kinds
    x = torch.randn(20, 6)
    assert torch.allclose(fused(x), model(x), atol=1e-6)
    ours, theirs = onelip.certify(model, x).radii, onelip.certify(fused, x).radii
    assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-9)
    with pytest.raises(InvalidInputError, match="keep or relu"):
        onelip.fuse(model, (6,), activations="tanh")  # pyright: ignore[reportArgumentType]
