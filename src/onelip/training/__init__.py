"""The only training loop, its configuration and its parts; see docs/training.md."""

from onelip.train_config import TrainConfig
from onelip.training.loop import TrainOptions, train
from onelip.training.schedule import OneCycle
from onelip.training.session import StopTraining
from onelip.training.validation import RADII, Scores, estimate_scores

__all__ = ["RADII", "OneCycle", "Scores", "StopTraining", "TrainConfig", "TrainOptions", "estimate_scores", "train"]
