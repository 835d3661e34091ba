"""The share of ordinary programs that certify knows a constant of, and that no constant is wrong."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

FILE = Path(__file__).parents[2] / "benchmarks" / "ordinary_programs.py"
LEAST_SHARE = 0.9


def test_most_ordinary_programs_are_certified_and_none_wrongly() -> None:
    specification = importlib.util.spec_from_file_location("ordinary_programs", FILE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["ordinary_programs"] = module
    specification.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {
            (group, name): (useful, *module.tried(name, shape, make))
            for group, name, shape, make, useful in module.programs()
        }
    assert not {key: said for key, said in found.items() if said[1] in ("crashed", "wrong")}
    assert not [key for key, said in found.items() if said[1] == "certified" and not said[0]]
    useful = [outcome for useful, outcome, _ in found.values() if useful]
    assert useful.count("certified") >= LEAST_SHARE * len(useful)
