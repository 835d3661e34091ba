"""`onelip tune` and `onelip.tune`, which stay for one version to say that they are gone."""

from __future__ import annotations

import pytest

import onelip
from onelip.bench import cli


@pytest.mark.parametrize("options", [[], ["--show"], ["--reset"]])
def test_the_command_says_that_it_is_gone(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["tune", *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("onelip: tune is gone")
    assert printed.err.count("\n") == 1


def test_the_function_warns_and_measures_nothing() -> None:
    with pytest.warns(DeprecationWarning, match="leave the call out"):
        onelip.tune(print)
