"""Whole models as people write them: classes, residual networks, wrappers, exported and fused programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelip.certification import Certifier, certify, explain, lipschitz_bound
from onelip.errors import InvalidInputError
from onelip.fusing import fuse
from onelip.layers import LipschitzResidual, MaxMin, SOCConv2d, SOCLinear, UnitRowsLinear, create_conv
from onelip.models import ConvNet


class BasicBlock(nn.Module):
    """Two convolutions with normalisation, and a connection around them, written as in torchvision."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5, 2, 2, bias=False)
        self.bn1, self.relu, self.maxpool = nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(6, 6), BasicBlock(6, 6))
        self.layer2 = nn.Sequential(BasicBlock(6, 8, 2), BasicBlock(8, 8))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def trained_resnet() -> ResNet:
    """Running statistics that are not those of the start."""
    model = ResNet()
    for _ in range(3):
        model(torch.rand(8, 3, 16, 16))
    return model.eval()


def test_a_residual_network_gets_a_bound_and_certificates() -> None:
    model, x = trained_resnet(), torch.rand(6, 3, 16, 16)
    bound = lipschitz_bound(model, (3, 16, 16))
    certificate = certify(model, x)
    assert 0 < bound < 1e4
    assert (certificate.radii > 0).all()
    with torch.no_grad():
        assert torch.equal(certificate.predictions, model(x).argmax(1))
        for index in range(len(x)):
            noise = torch.randn(20, 3, 16, 16)
            noise *= (
                certificate.radii[index].float()
                / torch.linalg.vector_norm(noise.flatten(1), dim=1)[:, None, None, None]
            )
            assert (model(x[index] + 0.999 * noise).argmax(1) == certificate.predictions[index]).all()
    paths = [node.path for node in explain(model, (3, 16, 16)).nodes]
    assert "layer2.0.downsample.1" in paths
    assert "layer1.1.add" in paths


class TenLines(nn.Module):
    """The README's model as a class."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.first, self.second, self.last = layers[0], layers[2], layers[5]
        self.act = MaxMin()

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        x = self.act(self.second(x))
        return self.last(x.flatten(1))


def test_the_readmes_model_as_a_class_has_the_same_radii() -> None:
    layers = [SOCConv2d(3, 8, kernel_size=3, stride=2), MaxMin(), SOCConv2d(8, 16, kernel_size=3, stride=4), MaxMin()]
    sequence = nn.Sequential(*layers, nn.Flatten(), SOCLinear(64, 10)).eval()
    x = torch.rand(8, 3, 16, 16)
    assert torch.equal(certify(sequence, x).radii, certify(TenLines(sequence).eval(), x).radii)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile, about itself
def test_wrappers_are_taken_off() -> None:
    model, x = trained_resnet(), torch.rand(3, 3, 16, 16)
    radii = certify(model, x).radii
    compiled: Any = torch.compile(model, backend="eager")
    wrapped: list[Any] = [nn.DataParallel(model), compiled, nn.Sequential(compiled).eval()]
    for wrapper in wrapped:
        assert torch.equal(certify(wrapper, x).radii, radii)


def test_exported_programs() -> None:
    model, x = trained_resnet(), torch.rand(3, 3, 16, 16)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert lipschitz_bound(program.module(), (3, 16, 16)) == pytest.approx(
        lipschitz_bound(model, (3, 16, 16)), rel=1e-9
    )
    assert torch.allclose(certify(program.module(), x).radii, certify(model, x).radii, rtol=1e-6)


@pytest.mark.parametrize("method", ["bcop", "cayley"])
@pytest.mark.parametrize("fused", [True, False])
def test_exported_networks_have_the_radii_of_their_layers(method: str, fused: bool) -> None:
    """Circular convolutions arrive as padding and a convolution, frequency layers with the batch behind the pixels."""
    model = nn.Sequential(create_conv(method, 2, 4, kernel_size=3), MaxMin(), nn.Flatten(), SOCLinear(4 * 36, 3)).eval()
    x = torch.rand(3, 2, 6, 6)
    expected = certify(model, x)
    source = fuse(model, (2, 6, 6)) if fused else model
    program = torch.export.export(source, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    certificate = certify(program, x)
    assert torch.allclose(certificate.radii, expected.radii, rtol=1e-5, atol=0)
    assert torch.equal(certificate.predictions, expected.predictions)
    assert torch.allclose(certify(program, x[:1]).radii, expected.radii[:1], rtol=1e-5, atol=0)
    in_float32, ours = (certify(each, x, arithmetic="float32").radii for each in (program, model))
    assert (in_float32 <= 1.02 * ours).all()
    # Products in front of the batch, as exported frequency layers have them, round by norms and not by numbers.
    lost = expected.radii - ours
    assert (in_float32 >= expected.radii - (6 if method == "cayley" else 1.3) * lost).all()


def test_programs_that_were_exported_for_one_length_of_batches() -> None:
    model, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval(), torch.rand(6, 4)
    expected = certify(model, x).radii
    for length in (1, 3):
        program = torch.export.export(model, (x[:length],)).module()
        assert torch.allclose(certify(program, x).radii, expected, rtol=1e-6)
    with pytest.raises(InvalidInputError, match="batches of 3"):
        certify(program, x[:4])


def test_fused_models_have_the_radii_of_their_layers() -> None:
    model = ConvNet("bcop", None, 3, input_size=8, width=4).eval()
    x = torch.rand(4, 3, 8, 8)
    assert torch.allclose(certify(fuse(model), x).radii, certify(model, x).radii, rtol=1e-3, atol=1e-6)


def test_convex_connections_and_unit_rows() -> None:
    branch = nn.Sequential(SOCLinear(6, 6), MaxMin(), SOCLinear(6, 6))
    model = nn.Sequential(LipschitzResidual(branch), LipschitzResidual(branch), UnitRowsLinear(6, 4)).eval()
    assert lipschitz_bound(model[:2], (6,)) <= 1 + 1e-5
    assert (certify(model, torch.randn(20, 6)).radii > 0).any()


def test_modules_in_lists_and_weights_that_are_shared() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([SOCLinear(6, 6), SOCLinear(6, 6)])
            self.tied = nn.Linear(6, 6)
            self.layers.append(self.tied)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x).relu()
            return torch.nn.functional.linear(x, self.tied.weight)[:, :3]

    model = Listed().eval()
    norm = float(torch.linalg.matrix_norm(model.tied.weight.detach().double(), 2))
    assert norm**2 * (1 - 1e-9) <= lipschitz_bound(model, (6,)) <= norm**2 * (1 + 1e-4)
    assert (certify(model, torch.randn(5, 6)).radii >= 0).all()


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_heads_are_found_behind_scaling_and_selection(scale: float) -> None:
    """Rows (1, 0) and (0.6, 0.8) and one that is dropped: the distance of the first two counts, sqrt(2) L does not."""
    head = nn.Linear(2, 3, bias=False)
    head.weight.data = torch.tensor([[1.0, 0.0], [0.6, 0.8], [50.0, 0.0]])

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def forward(self, x: Tensor) -> Tensor:
            return scale * self.head(x).unsqueeze(1).flatten(1)[:, :2] + torch.tensor([0.25, 0.0])

    x = torch.tensor([[1.0, 0.25]])
    distance = torch.linalg.vector_norm((head.weight[0] - head.weight[1]).detach().double())
    margin = scale * (1.0 - 0.8) + 0.25
    assert float(certify(Scaled().eval(), x).radii) == pytest.approx(margin / float(scale * distance), rel=1e-5)


def test_half_precision_models_are_certified_in_float64() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).bfloat16().eval()
    x = torch.randn(4, 6, dtype=torch.bfloat16)
    assert (Certifier(model, (6,))(x).radii >= 0).all()
