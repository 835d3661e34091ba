"""Certificates that hold: proven Lipschitz bounds, certified radii, certified accuracy.

    lipschitz_bound(model, (3, 32, 32))            # a proven upper bound, rounding included
    certify(model, x).radii                        # no input within the radius changes the prediction
    certified_accuracy(model, loader).certified    # {36/255: 0.61, ...}

docs/certificates.md states what is promised, docs/proofs.md why it holds. The files follow each other like this:

    call_arguments, outputs    what a model is called with, and which part of what it returns counts
    frozen, precision          a copy with pinned weights, in IEEE arithmetic
    tracing                    the copy runs on values without numbers (traced), and its calls become a graph (graph);
                               interception and stopped_traces: what its own code is told, and where it cannot go on
    leaves, operations/        the bound of every call: of layers that know theirs, of torch's functions, and those that
                               users register (registered_bounds); ranges, joint, circular: of several calls together
    fingerprint, snapshots     whether the model changed while it ran
    proven_model               all of this once: `prove`. bounds and explain print what it found
    rounding, heads, margins   errors of a pass, and from scores to radii
    program                    the model's own outputs held against the exact ones
    certificates               `certify`; accuracy, regression, attacks, diagnostics are built on the same
    certificate_files          a file to be checked elsewhere: the model's calls (recording) as operations (listing,
                               listed_layers, listed_operators, plain_operations) with witnesses of their bounds
"""

from __future__ import annotations

from onelip.certification.accuracy import DEFAULT_EPS, CertifiedAccuracy, certified_accuracy
from onelip.certification.bounds import LayerRow, lipschitz_bound, lipschitz_table
from onelip.certification.certificates import Certificate, Certifier, certify
from onelip.certification.explain import ExplainedNode, Explanation, explain
from onelip.certification.modules import Normalise, Residual
from onelip.certification.registered_bounds import Argument, Bound, register_bound
from onelip.certification.regression import CertifiedValues, certify_values
from onelip.errors import BrokenCertificateError, UnknownLipschitzConstant

__all__ = [
    "DEFAULT_EPS",
    "Argument",
    "Bound",
    "BrokenCertificateError",
    "Certificate",
    "CertifiedAccuracy",
    "CertifiedValues",
    "Certifier",
    "ExplainedNode",
    "Explanation",
    "LayerRow",
    "Normalise",
    "Residual",
    "UnknownLipschitzConstant",
    "certified_accuracy",
    "certify",
    "certify_values",
    "explain",
    "lipschitz_bound",
    "lipschitz_table",
    "register_bound",
]
