"""Data of the page "What is a certified radius?": a network, its certificates, and the nearest other answers found.

The page computes answers itself, by sixty lines of JavaScript (interactive/network.js). The weights are a tenth of the
bytes of a general runtime in WebAssembly, and the page works from a file, without a server.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import torch
from torch import Tensor, nn

import onelip
from onelip.bench.data import load
from onelip.layers import MaxMin

NETWORK = "cifar10-fast-2m"
CLASSES = ["aeroplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "lorry"]
CANDIDATES = 200
PICTURES = 6


def radius_script() -> str:
    """The data as a script: a page that is opened as a file may load it."""
    return f"const onelipRadiusData = {json.dumps(radius_data())};\n"


def radius_data() -> dict[str, Any]:
    """Layers, class names, and the certified test images with the largest radii, one per class."""
    model = half_weights(onelip.fuse(onelip.load_model(NETWORK)))
    data = load("cifar10-mini")
    mean = torch.tensor(data.info.mean, dtype=torch.float64)
    pixels, labels = data.test_images[:CANDIDATES], data.test_labels[:CANDIDATES]
    x = pixels / torch.tensor(255.0, dtype=torch.float64) - mean[:, None, None]
    certificate = onelip.certify(model, x, labels)
    order = (certificate.radii * certificate.correct).argsort(descending=True).tolist()
    first = {int(labels[index]): index for index in reversed(order)}  # the best of each class
    chosen = [index for index in order if first[int(labels[index])] == index][:PICTURES]
    pictures = []
    for index in chosen:
        direction, found = nearest_change(model, x[index].float())
        picture = {"pixels": encoded(pixels[index].permute(1, 2, 0)), "answer": int(labels[index])}
        picture |= {"radius": float(certificate.radii[index]), "found": found}
        pictures.append(picture | {"direction": encoded(direction.half().permute(1, 2, 0))})
    return {"classes": CLASSES, "mean": mean.tolist(), "layers": layers(model), "pictures": pictures}


def half_weights(model: nn.Module) -> nn.Module:
    """The same network with weights that half precision can hold: these are certified, and sent to the page."""
    for parameter in (*model.parameters(), *model.buffers()):
        parameter.data = parameter.data.half().float()
    return model.eval()


def layers(model: nn.Module) -> list[dict[str, Any]]:
    """What network.js computes, in order; a layer that it does not know is an error."""
    found: list[dict[str, Any]] = []
    side, channels = 32, 3
    for layer in model.children():
        if isinstance(layer, nn.PixelUnshuffle):
            side, channels = side // layer.downscale_factor, channels * layer.downscale_factor**2
            found.append({"kind": "unshuffle", "factor": layer.downscale_factor})
        elif isinstance(layer, nn.Conv2d):
            size = layer.kernel_size[0]
            known = layer.kernel_size == (size, size) and layer.stride == layer.dilation == (1, 1) and layer.groups == 1
            padded = size == 1 or (layer.padding == (size // 2, size // 2) and layer.padding_mode == "circular")
            if not (known and padded and size % 2):
                raise NotImplementedError(f"network.js has no {layer}")
            taps = layer.weight.permute(2, 3, 0, 1)
            channels = layer.out_channels
            found.append({"kind": "convolution", "kernel": size, **weights(taps, layer.bias)})
        elif isinstance(layer, nn.Linear):
            shape = (layer.out_features, channels, side * side)
            pixels_first = layer.weight.reshape(shape).transpose(1, 2)
            found.append({"kind": "dense", **weights(pixels_first, layer.bias)})
        elif isinstance(layer, MaxMin):
            found.append({"kind": "maxmin"})
        elif not isinstance(layer, nn.Flatten):
            raise NotImplementedError(f"network.js has no {layer}")
    return found


def weights(weight: Tensor, bias: Tensor | None) -> dict[str, str]:
    """Both in half precision."""
    if bias is None:
        raise NotImplementedError("network.js adds a bias in every layer")
    return {"weight": encoded(weight.half()), "bias": encoded(bias.half())}


def encoded(values: Tensor) -> str:
    """Bytes as text."""
    return base64.b64encode(values.detach().contiguous().numpy().tobytes()).decode()


def nearest_change(model: nn.Module, x: Tensor, steps: int = 20) -> tuple[Tensor, float]:
    """The shortest change of the answer that was found: linear steps towards each rival at once, then bisection."""
    answer = int(model(x[None]).argmax())
    rivals = torch.tensor([rival for rival in range(10) if rival != answer])
    change = torch.zeros(len(rivals), *x.shape)
    for _ in range(steps):
        at = (x + change).requires_grad_()
        scores = model(at)
        gap = scores.gather(1, rivals[:, None])[:, 0] - scores[:, answer]
        (slope,) = torch.autograd.grad(gap.sum(), at)
        along = (change * slope).sum((1, 2, 3)) - gap.detach()
        change = (along / slope.square().sum((1, 2, 3)))[:, None, None, None] * slope
    unit = (change / change.flatten(1).norm(dim=1)[:, None, None, None]).half().float()
    low, high = torch.zeros(len(rivals), 1, 1, 1), torch.full((len(rivals), 1, 1, 1), 4.0)
    with torch.no_grad():
        for _ in range(20):
            middle = (low + high) / 2
            changed = (model(x + middle * unit).argmax(1) != answer)[:, None, None, None]
            low, high = torch.where(changed, low, middle), torch.where(changed, middle, high)
    best = int(high.argmin())
    return unit[best], float(high[best] * unit[best].norm())
