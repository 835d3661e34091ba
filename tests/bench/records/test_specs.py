from __future__ import annotations

import subprocess
import sys

from onelip.bench.records import NetworkSpec


def test_a_network_has_a_usual_size() -> None:
    assert NetworkSpec(method="bcop").size == "XS"
    assert NetworkSpec(model="fastnet").size == "S"
    assert NetworkSpec(model="fastnet", size="xs").size == "XS"
    assert NetworkSpec(model="fastnet", width=64).size is None


def test_short_names_tell_networks_apart() -> None:
    assert NetworkSpec(method="bcop").short_name == "bcop"
    assert NetworkSpec(model="fastnet").short_name == "fastnet"
    assert NetworkSpec(model="fastnet", method="bcop").short_name == "fastnet bcop"


def test_records_are_read_without_torch() -> None:
    """Reports, lists of runs and the command line start in a fraction of the time that torch takes."""
    code = "import sys, onelip.bench.records; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
