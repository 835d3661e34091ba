"""Certificates that hold: proven Lipschitz bounds, certified radii, certified accuracy.

    lipschitz_bound(model, (3, 32, 32))            # a proven upper bound, rounding included
    certify(model, x).radii                        # no input within the radius changes the prediction
    certified_accuracy(model, loader).certified    # {36/255: 0.61, ...}

docs/certificates.md states what is promised and why it holds.
"""

from __future__ import annotations

# Importing these registers the bounds of the layers that they know.
from onelip.certification import (
    convolution_layers,
    plain_layers,
    residual_layers,
    sandwich_layers,
    soc_layers,
    spectral_layers,
)
from onelip.certification.accuracy import DEFAULT_EPS, CertifiedAccuracy, certified_accuracy
from onelip.certification.bounds import LayerRow, layer_lipschitz_bound, lipschitz_bound, lipschitz_table
from onelip.certification.certificates import Certificate, Certifier, certify
from onelip.certification.errors import BrokenCertificateError, UnknownLipschitzConstant, UnknownRoundingError
from onelip.certification.modules import Normalise, Residual

__all__ = [
    "DEFAULT_EPS",
    "BrokenCertificateError",
    "Certificate",
    "CertifiedAccuracy",
    "Certifier",
    "LayerRow",
    "Normalise",
    "Residual",
    "UnknownLipschitzConstant",
    "UnknownRoundingError",
    "certified_accuracy",
    "certify",
    "convolution_layers",
    "layer_lipschitz_bound",
    "lipschitz_bound",
    "lipschitz_table",
    "plain_layers",
    "residual_layers",
    "sandwich_layers",
    "soc_layers",
    "spectral_layers",
]
