"""`onelip bench speed`: what every method costs relative to plain convolutions, beside what it is meant to cost."""

from onelip.bench.speed.contestants import Contestant, choose_contestants
from onelip.bench.speed.figure import draw_speed, save_speed
from onelip.bench.speed.measure import SpeedResult, Suite, measure_contestant
from onelip.bench.speed.results import SpeedReport
from onelip.bench.speed.table import print_speed
from onelip.bench.speed.targets import QUANTITIES, Goal, goals_of, load_targets

__all__ = [
    "QUANTITIES",
    "Contestant",
    "Goal",
    "SpeedReport",
    "SpeedResult",
    "Suite",
    "choose_contestants",
    "draw_speed",
    "goals_of",
    "load_targets",
    "measure_contestant",
    "print_speed",
    "save_speed",
]
