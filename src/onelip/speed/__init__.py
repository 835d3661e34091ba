"""`onelip bench speed`: what every method costs relative to plain convolutions, beside what it is meant to cost."""

from onelip.speed.contestants import Contestant, choose_contestants
from onelip.speed.figure import draw_speed, save_speed
from onelip.speed.measure import SpeedResult, Suite, measure_contestant
from onelip.speed.results import SpeedReport
from onelip.speed.table import print_speed
from onelip.speed.targets import QUANTITIES, Goal, goals_of, load_targets

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
