"""Models of packages that nobody here wrote: which have a constant as they are, and which after `convert`.

    python benchmarks/real_models.py                     # a Markdown table, and what it sums up to
    python benchmarks/real_models.py --only timm         # those whose name has this in it
    python benchmarks/real_models.py --write docs/reference/real_models.csv  # the table as a file

The models are built from configurations, with weights as they start; nothing is downloaded. Wanted, all without their
own requirements: `pip install --no-deps transformers tokenizers monai pytorchcv vit-pytorch timm
segmentation-models-pytorch einops regex`. What is missing is named below the table. Four of the packages import
torchvision, for pictures and not for their networks: where it cannot be imported, empty classes stand in for it.
Each model has a process of its own and 60 seconds for each of the two columns.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import math
import multiprocessing
import sys
import types
import warnings
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn

import onelip
from onelip.errors import OnelipError

Make = Callable[[], nn.Module]
VOLUMES = "aol"  # the method of 3-D networks, which bcop has no convolutions for
IMAGE, SECONDS = (3, 32, 32), 60
PACKAGES = ("transformers", "monai", "timm", "segmentation_models_pytorch", "pytorchcv", "vit_pytorch")


def transformers(name: str, **config: Any) -> Make:
    """An image classifier of transformers, named by what stands before `Config`."""

    def make() -> nn.Module:
        package = importlib.import_module("transformers")
        return getattr(package, f"{name}ForImageClassification")(
            getattr(package, f"{name}Config")(num_labels=10, **config)
        )

    return make


def of(path: str, *args: Any, **kwargs: Any) -> Make:
    """What the class or function at `module:name` returns."""
    module, _, name = path.partition(":")
    return lambda: getattr(importlib.import_module(module), name)(*args, **kwargs)


def monai(name: str, **kwargs: Any) -> Make:
    """A network of monai."""
    return of(f"monai.networks.nets:{name}", **kwargs)


def timm(name: str, **kwargs: Any) -> Make:
    """A classifier of timm."""
    return of("timm:create_model", name, num_classes=10, **kwargs)


def segmentation(name: str, encoder: str = "tu-resnet18", **kwargs: Any) -> Make:
    """A network of segmentation models."""
    return of(f"segmentation_models_pytorch:{name}", encoder, encoder_weights=None, classes=3, **kwargs)


def pytorchcv(name: str, **kwargs: Any) -> Make:
    """A network of pytorchcv."""
    return of("pytorchcv.model_provider:get_model", name, **kwargs)


def vit(path: str, **kwargs: Any) -> Make:
    """A network of vit-pytorch."""
    return of(f"vit_pytorch.{path}", num_classes=10, **kwargs)


_VIT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
_SIZES: dict[str, Any] = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}
_FEW: dict[str, Any] = {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1]}
_UNET: dict[str, Any] = {"channels": (8, 16, 32), "strides": (2, 2), "num_res_units": 1, "out_channels": 2}
_SEGRES: dict[str, Any] = {"init_filters": 8, "blocks_down": (1, 1), "blocks_up": (1,)}
_DENSE: dict[str, Any] = {"out_channels": 10, "init_features": 8, "growth_rate": 8, "block_config": (2, 2)}
_TOKENS: dict[str, Any] = {"dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}

MODELS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "transformers ResNet": (transformers("ResNet", layer_type="basic", **_SIZES), IMAGE),
    "transformers RegNet": (transformers("RegNet", groups_width=8, **_SIZES), IMAGE),
    "transformers BiT": (
        transformers("Bit", num_groups=4, **_SIZES),
        IMAGE,
    ),
    "transformers MobileNetV1": (transformers("MobileNetV1", depth_multiplier=0.25, image_size=32), IMAGE),
    "transformers MobileNetV2": (transformers("MobileNetV2", depth_multiplier=0.25, image_size=32), IMAGE),
    "transformers ConvNeXt": (transformers("ConvNext", **_FEW), IMAGE),
    "transformers ConvNeXt V2": (transformers("ConvNextV2", **_FEW), IMAGE),
    "transformers PoolFormer": (transformers("PoolFormer", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]), IMAGE),
    "transformers ViT": (transformers("ViT", **_VIT), IMAGE),
    "transformers Swin": (
        transformers("Swin", image_size=32, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4),
        IMAGE,
    ),
    "monai UNet 2-D": (monai("UNet", spatial_dims=2, in_channels=3, **_UNET), IMAGE),
    "monai UNet 3-D": (monai("UNet", spatial_dims=3, in_channels=1, **_UNET), (1, 16, 16, 16)),
    "monai BasicUNet": (
        monai("BasicUNet", spatial_dims=2, in_channels=3, features=(8, 8, 16, 16, 16, 8)),
        IMAGE,
    ),
    "monai SegResNet": (
        monai("SegResNet", spatial_dims=2, in_channels=3, **_SEGRES),
        IMAGE,
    ),
    "monai VNet": (monai("VNet", spatial_dims=2, in_channels=1, out_channels=2), (1, 32, 32)),
    "monai DenseNet 2-D": (monai("DenseNet", spatial_dims=2, in_channels=3, **_DENSE), IMAGE),
    "monai DenseNet 3-D": (monai("DenseNet", spatial_dims=3, in_channels=1, **_DENSE), (1, 16, 16, 16)),
    "monai ResNet 3-D": (
        monai("ResNet", block="basic", layers=[1, 1, 1, 1], block_inplanes=[8, 8, 16, 16], n_input_channels=1),
        (1, 16, 16, 16),
    ),
    "timm resnet10t": (timm("resnet10t", channels=(16, 16, 32, 32), stem_width=8), IMAGE),
    "timm regnetx_002": (timm("regnetx_002"), IMAGE),
    "timm mobilenetv3_small_050": (timm("mobilenetv3_small_050"), IMAGE),
    "timm efficientnet_lite0": (timm("efficientnet_lite0"), IMAGE),
    "timm convnext_atto": (timm("convnext_atto", dims=(8, 16, 24, 32), depths=(1, 1, 1, 1)), IMAGE),
    "timm repvgg_a0": (timm("repvgg_a0"), IMAGE),
    "timm MlpMixer": (
        of("timm.models.mlp_mixer:MlpMixer", 10, img_size=32, patch_size=8, num_blocks=2, embed_dim=32),
        IMAGE,
    ),
    "timm vit_tiny_patch16_224": (
        timm("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2),
        IMAGE,
    ),
    "segmentation Unet": (segmentation("Unet", decoder_channels=(32, 16, 16, 8, 8)), IMAGE),
    "segmentation Linknet": (segmentation("Linknet"), IMAGE),
    "segmentation FPN": (segmentation("FPN", decoder_pyramid_channels=32, decoder_segmentation_channels=32), IMAGE),
    "segmentation PSPNet": (segmentation("PSPNet", psp_out_channels=32), IMAGE),
    "segmentation DeepLabV3+": (segmentation("DeepLabV3Plus", decoder_channels=16), (3, 64, 64)),
    "pytorchcv resnet20_cifar10": (pytorchcv("resnet20_cifar10"), IMAGE),
    "pytorchcv preresnet20_cifar10": (pytorchcv("preresnet20_cifar10"), IMAGE),
    "pytorchcv seresnet20_cifar10": (pytorchcv("seresnet20_cifar10"), IMAGE),
    "pytorchcv densenet40_k12_cifar10": (pytorchcv("densenet40_k12_cifar10"), IMAGE),
    "pytorchcv nin_cifar10": (pytorchcv("nin_cifar10"), IMAGE),
    "pytorchcv squeezenet_v1_1": (pytorchcv("squeezenet_v1_1", num_classes=10), (3, 224, 224)),
    "pytorchcv shufflenetv2_wd2": (pytorchcv("shufflenetv2_wd2", num_classes=10), (3, 224, 224)),
    "pytorchcv fdmobilenet_wd4": (pytorchcv("fdmobilenet_wd4", num_classes=10), (3, 224, 224)),
    "vit-pytorch ViT": (vit("vit:ViT", image_size=32, patch_size=8, **_TOKENS), IMAGE),
    "vit-pytorch SimpleViT": (vit("simple_vit:SimpleViT", image_size=32, patch_size=8, **_TOKENS), IMAGE),
    "vit-pytorch CCT": (
        vit("cct:CCT", img_size=32, embedding_dim=32, num_layers=2, num_heads=2, mlp_ratio=2.0),
        IMAGE,
    ),
}


class EmptyClass(type):
    """A class of which every attribute is an empty class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return EmptyClass(name, (nn.Module,), {})


class Empty(types.ModuleType):
    """A package of which every part is an empty class, so that what imports it does."""

    __version__ = "0.0"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        return EmptyClass.__getattr__(type(self), name)  # type: ignore[arg-type]


class EmptyFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torchvision and its parts, all of them empty."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Ours to load where it is torchvision's."""
        ours = name.partition(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The empty package."""
        return Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def found(model: nn.Module, shape: tuple[int, ...]) -> str:
    """The proven constant of a model in evaluation mode."""
    returned = model(torch.zeros(2, *shape))
    part = None if torch.is_tensor(returned) else "logits" if isinstance(returned, dict) else 0
    return f"{onelip.lipschitz_bound(model, shape, output=part):.3g}"


def tried(run: Callable[[], str]) -> str:
    """What it returns, or how it was refused or crashed, in one line."""
    try:
        with torch.no_grad():
            return run()
    except OnelipError as error:
        return "refused: " + line(error)
    except Exception as error:
        return f"crash: {type(error).__name__}: {line(error)}"


def line(error: Exception) -> str:
    """What the first line of a message gives as the reason, cut to what a cell holds."""
    text = str(error).strip().partition("\n")[0].replace("|", "/")
    text = (text.partition(" is not known: ")[2] or text).partition(";")[0]
    return text if len(text) <= 90 else text[:87] + "..."


def built(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """The model and the shape of its inputs, tried once."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    model(torch.zeros(2, *shape))
    return model, shape


def plain(name: str, method: str) -> dict[str, str]:
    """The constant of the model as it is."""
    del method
    model, shape = built(name)
    return {"plain": tried(lambda: found(model, shape))}


def converted(name: str, method: str) -> dict[str, str]:
    """The constant of the converted model, and how many failures the conversion lists."""
    model, shape = built(name)
    row = {"failures": ""}

    def run() -> str:
        with torch.enable_grad():
            result = onelip.convert(model, method if len(shape) < 4 else VOLUMES, input_shape=shape)
        row["failures"] = str(len(result.conversion.failures))
        if result.conversion.failures:
            row["first"] = line(Exception(result.conversion.failures[0].note))
        return found(result.eval(), shape)

    return {"converted": tried(run), **row}


def limited(task: Callable[[str, str], dict[str, str]], name: str, method: str, column: str) -> dict[str, str]:
    """What a task returns, in a process of its own that has 60 seconds."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def work(end: Connection) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        try:
            end.send(task(name, method))
        except Exception as error:  # the package could not build its own model
            end.send({column: f"not built: {type(error).__name__}: {line(error)}"})

    process = context.Process(target=work, args=(theirs,))
    process.start()
    theirs.close()
    try:
        result = ours.recv() if ours.poll(SECONDS) else {column: f"more than {SECONDS} s"}
    except EOFError:
        result = {column: "crash: the process ended"}
    process.kill()
    process.join()
    return result


def number(text: str) -> float:
    """The constant in a cell, or not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def main() -> int:
    """Print the table and its sums; 1 where a model crashed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the name")
    parser.add_argument("--method", default="bcop", help="the method to convert to")
    parser.add_argument("--write", type=Path, help="a CSV file for the table")
    args = parser.parse_args()
    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(EmptyFinder())
    missing, versions = [], [f"onelip {onelip.__version__}", f"torch {version('torch')}"]
    for package in PACKAGES:
        try:
            importlib.import_module("pytorchcv.model_provider" if package == "pytorchcv" else package)
            versions.append(f"{package} {version(package.replace('_', '-'))}")
        except (ImportError, AttributeError, TypeError, RuntimeError) as error:
            missing.append(f"{package} ({line(error)})")
    heads = {package.partition("_")[0] for package in (entry.partition(" ")[0] for entry in missing)}
    rows = []
    table = [["model", "constant as it is", "failures", "constant converted"]]
    print("| " + " | ".join(table[0]) + " |", "|---|---|---|---|", sep="\n")
    for name in MODELS:
        if args.only not in name or name.partition(" ")[0].partition("-")[0] in heads:
            continue
        row = limited(plain, name, args.method, "plain") | limited(converted, name, args.method, "converted")
        rows.append(row)
        failures = row.get("failures", "") + (f": {row['first']}" if "first" in row else "")
        table.append([name, row["plain"], failures, row["converted"]])
        print("| " + " | ".join(table[-1]) + " |", flush=True)
    constants = [number(row["converted"]) for row in rows]
    whole = sum(row.get("failures") == "0" for row in rows)
    crashes = sum("crash:" in row["plain"] + row["converted"] for row in rows)
    print(
        f"\nOf these {len(rows)} models {sum(number(row['plain']) >= 0 for row in rows)} have a constant as they are; "
        f'`convert(model, "{args.method}")` (3-D: "{VOLUMES}") has no failures with {whole}; '
        f"{sum(c >= 0 for c in constants)} converted models have a constant, "
        f"{sum(0.3 <= c <= 1.001 for c in constants)} of them between 0.3 and 1; {crashes} crash. "
        f"Measured with {', '.join(versions)}." + (f" Missing: {', '.join(missing)}." if missing else "")
    )
    if args.write:
        with args.write.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table)
    return int(crashes > 0)


if __name__ == "__main__":
    sys.exit(main())
