"""The only training loop, its configuration and its parts; see docs/training.md."""

from onelip.bench.training.loop import LeftEarly, TrainOptions, train
from onelip.bench.training.schedule import OneCycle
from onelip.bench.training.trainer import StopTraining
from onelip.bench.training.validation import Scores, estimate_scores

__all__ = ["LeftEarly", "OneCycle", "Scores", "StopTraining", "TrainOptions", "estimate_scores", "train"]
