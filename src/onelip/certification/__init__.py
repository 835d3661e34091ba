"""Certificates that hold: proven Lipschitz bounds, certified radii, certified accuracy.

    lipschitz_bound(model, (3, 32, 32))            # a proven upper bound, rounding included
    certify(model, x).radii                        # no input within the radius changes the prediction
    certified_accuracy(model, loader).certified    # {36/255: 0.61, ...}

docs/certificates.md states what is promised and why it holds.
"""

from __future__ import annotations

from onelip.certification.accuracy import DEFAULT_EPS, CertifiedAccuracy, certified_accuracy
from onelip.certification.bounds import LayerRow, lipschitz_bound, lipschitz_table
from onelip.certification.certificates import Certificate, Certifier, certify
from onelip.certification.explain import ExplainedNode, Explanation, explain
from onelip.certification.modules import Normalise, Residual
from onelip.errors import BrokenCertificateError, UnknownLipschitzConstant

__all__ = [
    "DEFAULT_EPS",
    "BrokenCertificateError",
    "Certificate",
    "CertifiedAccuracy",
    "Certifier",
    "ExplainedNode",
    "Explanation",
    "LayerRow",
    "Normalise",
    "Residual",
    "UnknownLipschitzConstant",
    "certified_accuracy",
    "certify",
    "explain",
    "lipschitz_bound",
    "lipschitz_table",
]
