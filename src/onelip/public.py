"""The names of `import onelip`, written here and nowhere else: `onelip` imports this file when one of them is used."""

import warnings as _warnings
from typing import Any as _Any

from onelip import fast as fast
from onelip import layers as layers
from onelip import losses as losses
from onelip import models as models
from onelip import optim as optim
from onelip import pretrained as pretrained
from onelip.certification import Normalise as Normalise
from onelip.certification import Residual as Residual
from onelip.certification import UnknownLipschitzConstant as UnknownLipschitzConstant
from onelip.certification import certified_accuracy as certified_accuracy
from onelip.certification import certify as certify
from onelip.certification import explain as explain
from onelip.certification import lipschitz_bound as lipschitz_bound
from onelip.certification import lipschitz_table as lipschitz_table
from onelip.checkpoints import load_model as load_model
from onelip.checkpoints import save_model as save_model
from onelip.conversion import convert as convert
from onelip.errors import InvalidInputError as InvalidInputError
from onelip.errors import OnelipError as OnelipError
from onelip.export import export_onnx as export_onnx
from onelip.export import export_torch as export_torch
from onelip.fast.sharing import shared_transforms as shared_transforms
from onelip.fusing import fuse as fuse
from onelip.layers import create_conv as create_conv
from onelip.layers import create_linear as create_linear
from onelip.layers import get_method as get_method
from onelip.layers import list_methods as list_methods
from onelip.linalg.training_precision import exact_transforms as exact_transforms
from onelip.losses import MultiMargin as MultiMargin
from onelip.losses import OffsetCrossEntropy as OffsetCrossEntropy
from onelip.models import ConvNet as ConvNet
from onelip.models import accelerate as accelerate
from onelip.models import create as create
from onelip.version import __version__ as __version__


def tune(*_: _Any, **__: _Any) -> None:
    """Nothing: every machine has the built-in values. The next version has no such function."""
    _warnings.warn("onelip.tune measures nothing any more: leave the call out", DeprecationWarning, stacklevel=2)
