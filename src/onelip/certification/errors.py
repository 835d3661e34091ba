"""What certification refuses to guess: each message names the module and says what would help."""

from __future__ import annotations

from onelip.errors import InvalidInputError, UnknownLipschitzConstant

__all__ = ["BrokenCertificateError", "UnknownLipschitzConstant", "UnknownRoundingError"]


class UnknownRoundingError(InvalidInputError):
    """A module with a declared Lipschitz constant, but without a bound of the rounding errors it makes."""


class BrokenCertificateError(Exception):
    """A proven statement turned out false on this machine: its arithmetic is not what the proof assumes."""
