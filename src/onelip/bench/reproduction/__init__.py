"""The first epochs of the comparison paper's runs, trained anew and compared with its logs."""

from onelip.bench.reproduction.comparing import Comparison, compare, tolerance
from onelip.bench.reproduction.running import METHODS, reproduce, reproduction_spec

__all__ = ["METHODS", "Comparison", "compare", "reproduce", "reproduction_spec", "tolerance"]
