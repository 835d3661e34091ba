"""onelip: 1-Lipschitz layers for PyTorch, and certificates that hold.

This package needs torch, numpy and safetensors. `onelip.bench`, with the command line, is the benchmark that compares
the layers; it comes with the extra `bench`.
"""

from __future__ import annotations

from onelip import layers, losses, models, optim, pretrained
from onelip.certification import (
    Normalise,
    Residual,
    UnknownLipschitzConstant,
    certified_accuracy,
    certify,
    explain,
    lipschitz_bound,
    lipschitz_table,
)
from onelip.checkpoints import load_model, save_model
from onelip.conversion import convert
from onelip.errors import InvalidInputError, OnelipError
from onelip.export import export_onnx, export_torch
from onelip.fusing import fuse
from onelip.layers import create_conv, create_linear, get_method, list_methods
from onelip.layers.sharing import shared_transforms
from onelip.linalg.training_precision import exact_transforms
from onelip.losses import MultiMargin, OffsetCrossEntropy
from onelip.models import ConvNet, accelerate, create
from onelip.tuning import tune
from onelip.version import __version__

__all__ = [
    "ConvNet",
    "InvalidInputError",
    "MultiMargin",
    "Normalise",
    "OffsetCrossEntropy",
    "OnelipError",
    "Residual",
    "UnknownLipschitzConstant",
    "__version__",
    "accelerate",
    "certified_accuracy",
    "certify",
    "convert",
    "create",
    "create_conv",
    "create_linear",
    "exact_transforms",
    "explain",
    "export_onnx",
    "export_torch",
    "fuse",
    "get_method",
    "layers",
    "lipschitz_bound",
    "lipschitz_table",
    "list_methods",
    "load_model",
    "losses",
    "models",
    "optim",
    "pretrained",
    "save_model",
    "shared_transforms",
    "tune",
]


def __dir__() -> list[str]:
    return sorted(__all__)
