"""The first epochs of the comparison paper's runs, trained anew and compared with its logs."""

from onelip.bench.reproduction.running import METHODS, EpochComparison, reproduce, reproduction_spec, tolerance

__all__ = ["METHODS", "EpochComparison", "reproduce", "reproduction_spec", "tolerance"]
