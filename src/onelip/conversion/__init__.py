"""Ordinary torch models made 1-Lipschitz: `onelip.convert(model, "bcop")`."""

from __future__ import annotations

from onelip.conversion.changes import Change, Conversion
from onelip.conversion.convert import ConvertedModel, convert

__all__ = ["Change", "Conversion", "ConvertedModel", "convert"]
