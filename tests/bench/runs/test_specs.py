from __future__ import annotations

from onelip.bench.runs import NetworkSpec


def test_a_network_has_a_usual_size() -> None:
    assert NetworkSpec(method="bcop").size == "XS"
    assert NetworkSpec(model="fastnet").size == "S"
    assert NetworkSpec(model="fastnet", size="xs").size == "XS"
    assert NetworkSpec(model="fastnet", width=64).size is None


def test_short_names_tell_networks_apart() -> None:
    assert NetworkSpec(method="bcop").short_name == "bcop"
    assert NetworkSpec(model="fastnet").short_name == "fastnet"
    assert NetworkSpec(model="fastnet", method="bcop").short_name == "fastnet bcop"
