"""The only training loop, its configuration and its parts; see docs/training.md."""

from onelip.bench.training.loop import LeftEarly as LeftEarly
from onelip.bench.training.loop import TrainOptions as TrainOptions
from onelip.bench.training.loop import train as train
from onelip.bench.training.validation import estimate_scores as estimate_scores
