"""The fixed reference network of every benchmark; it lives in the package because measurements need it too."""

from onelip.bench.measurement.reference import PlainMaxMin, ReferenceConvNet

__all__ = ["PlainMaxMin", "ReferenceConvNet"]
