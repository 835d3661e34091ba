"""Ordinary torch models made 1-Lipschitz: `onelip.convert(model, "bcop")`."""

from __future__ import annotations

from onelip.conversion.convert import ConvertedModel, convert
from onelip.conversion.report import Change, Conversion

__all__ = ["Change", "Conversion", "ConvertedModel", "convert"]
