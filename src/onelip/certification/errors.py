"""What certification refuses to guess: each message names the place and says what would help."""

from __future__ import annotations

from onelip.errors import UnknownLipschitzConstant

__all__ = ["BrokenCertificateError", "UnknownLipschitzConstant"]


class BrokenCertificateError(Exception):
    """A proven statement turned out false: the program or its arithmetic is not what the proof speaks of."""
