"""Examples in docstrings: they run, and every public function and class of the reference has one."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from typing import Any

import pytest

import onelip
from onelip.certification import Certificate, CertifiedAccuracy, Certifier, Explanation, register_bound
from onelip.certification.operations import registered
from onelip.layers import LipschitzConv2d, LipschitzLinear, blocks, parametrize

WITHOUT = {"tune", "OnelipError"}
"""A name that does nothing, and the base of the errors."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def shown() -> dict[str, Any]:
    """What users call by name: functions and classes of `onelip`, its losses, and the parts of networks."""
    found = {name: getattr(onelip, name) for name in onelip.__all__ if name not in WITHOUT}
    found |= {name: getattr(onelip.losses, name) for name in onelip.losses.__all__}
    parts = {name: getattr(onelip.layers, name) for name in onelip.layers.__all__}
    found |= {name: part for name, part in parts.items() if part.__module__.startswith(blocks.__name__)}
    found |= {name: thing for name, thing in vars(onelip.layers).items() if name.startswith("create_")}
    others: list[Any] = [*onelip.models.NETWORKS.values(), LipschitzConv2d, LipschitzLinear, parametrize]
    others += [Certificate, CertifiedAccuracy, Certifier, Explanation, register_bound]
    things = [thing for thing in (*found.values(), *others) if callable(thing) and hasattr(thing, "__name__")]
    return {thing.__name__: thing for thing in things}


THINGS = shown()


@pytest.mark.parametrize("name", THINGS)
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registered, "_OPERATIONS", dict(registered._OPERATIONS))  # an example registers one
    thing = inspect.unwrap(THINGS[name])
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", {}, name, None, None)
    assert example.examples, "no example"
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append)
    assert not report, "".join(report)
