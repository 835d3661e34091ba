"""The methods that onelip comes with. Tests that name them must hold with further files in layers/methods/ too."""

from __future__ import annotations

SHIPPED = (
    *(
        "aoc",
        "aol",
        "bcop",
        "bjorck",
        "bro",
        "cayley",
        "cholesky",
        "cpl",
        "eco",
        "lot",
        "oni",
        "sandwich",
        "sll",
        "soc",
    ),
    *("spectral", "standard", "stiefel"),
)
