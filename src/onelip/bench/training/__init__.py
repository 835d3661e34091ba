"""The only training loop, its configuration and its parts; see docs/training.md."""

from onelip.bench.training.config import TrainConfig
from onelip.bench.training.loop import LeftEarly, TrainOptions, train
from onelip.bench.training.schedule import OneCycle
from onelip.bench.training.session import StopTraining
from onelip.bench.training.validation import RADII, Scores, estimate_scores

__all__ = [
    "RADII",
    "LeftEarly",
    "OneCycle",
    "Scores",
    "StopTraining",
    "TrainConfig",
    "TrainOptions",
    "estimate_scores",
    "train",
]
