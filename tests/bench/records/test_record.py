from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onelip.bench.records import (
    RECORD_FILE,
    NetworkSpec,
    RunStatus,
    canonical_json,
    dump_json,
    load_records,
    new_record,
    parse_json,
    read_record,
    run_name,
    start_run,
    to_plain,
)
from onelip.bench.records.machine import machine_facts
from onelip.errors import InvalidInputError

SOC = NetworkSpec(method="soc", dataset="cifar10-mini")
NETWORK = SOC.as_dict()


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1


@dataclass(frozen=True)
class Config:
    network: NetworkSpec = SOC
    seed: int = 0
    decay: float = 7e-6
    widths: tuple[int, ...] = (1, 2)
    path: Path = Path("a/b")
    colour: Colour = Colour.RED
    inner: Inner = field(default_factory=Inner)


SAME_CONFIG = {
    "inner": {"rate": 0.1},
    "colour": "red",
    "path": "a/b",
    "widths": [1, 2.0],
    "decay": np.float64(7e-6),
    "seed": 0,
    "network": NETWORK,
}


def test_name_depends_on_content_alone() -> None:
    name = run_name("train", Config())
    assert name.startswith("train-soc-XS-cifar10mini-s0-")
    assert run_name("train", SAME_CONFIG) == name
    others = [
        run_name("train", Config(decay=7.000000000000001e-6)),
        run_name("train", Config(seed=1)),
        run_name("measure", Config()),
        run_name("train", Config(inner=Inner(0.2))),
        run_name("train", Config(network=NetworkSpec(method="soc", dataset="cifar10-mini", kernel_size=1))),
    ]
    assert len({name, *others}) == 6


def test_name_is_fixed_for_ever() -> None:
    """A change of the hash would make every study on every disk run again."""
    config = {"network": {"method": "soc", "width": 8}, "lr": 0.05, "seed": 3}
    assert run_name("train", config) == "train-soc-w8-s3-450b963f9878"


@pytest.mark.parametrize("method", ["../../etc", "a/b", ".hidden", "x" * 300, "", "ä\n"])
def test_name_is_a_safe_folder_name(method: str) -> None:
    name = run_name(".k", {"network": {"method": method}})
    assert "/" not in name
    assert "\n" not in name
    assert not name.startswith(".")
    assert len(name) < 100


def test_canonical_json() -> None:
    assert canonical_json({"b": 1.0, "a": -0.0, "c": [1e-5, True, None, math.inf]}) == (
        '{"a":0,"b":1,"c":[1e-05,true,null,{"$nonfinite":"inf"}]}'
    )


@pytest.mark.parametrize(
    "value", [torch.ones(1), np.float32(1), {1, 2}, {"a": b"x"}, {1: "a"}, {"$nonfinite": "nan"}, Config]
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^config"):
        to_plain(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_any_value_survives_strict_json(value: object) -> None:
    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    text = dump_json(value)
    json.loads(text, parse_constant=refuse)
    assert repr(parse_json(text)) == repr(value)  # repr: nan equals itself, -0.0 differs from 0.0, 1 from 1.0


def test_record_round_trip_with_non_finite_metrics(tmp_path: Path) -> None:
    with start_run(tmp_path, "train", Config()) as run:
        metrics = {"loss": math.nan, "worst": -math.inf, "accuracy": 0.1 + 0.2, "note": "NaN"}
        run.update(status=RunStatus.DIVERGED, reason="loss is nan at step 7", metrics=metrics, seconds=1.5)
    loaded = read_record(tmp_path / run.folder.name)
    assert repr(loaded) == repr(run.record)
    assert loaded.name == run.folder.name
    assert loaded.seed == 0
    assert math.isnan(loaded.metrics["loss"])
    assert loaded.metrics["note"] == "NaN"
    assert "NaN," not in (run.folder / RECORD_FILE).read_text().replace('"NaN"', "")


@pytest.mark.parametrize("network", [None, "soc", {"method": "soc"}, NETWORK | {"width": "8"}, NETWORK | {"size": "Q"}])
def test_every_record_names_its_network(network: object) -> None:
    with pytest.raises(InvalidInputError, match=r"config\.network"):
        new_record("train", {"network": network})


def test_a_run_belongs_to_the_job_that_took_it_last(tmp_path: Path) -> None:
    with start_run(tmp_path, "train", Config(), job="a search") as run:
        run.update(status=RunStatus.FINISHED)
    with start_run(tmp_path, "train", Config()) as run:
        assert run.record.job == "a search"
    with start_run(tmp_path, "train", Config(), job="a training") as run:
        assert run.record.status is RunStatus.FINISHED
    assert read_record(run.folder).job == "a training"


@pytest.mark.parametrize("status", ["diverged", "failed", "interrupted", "pruned"])
def test_an_ending_needs_a_reason(status: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{status} needs a reason"):
        new_record("train", Config()).changed(status=RunStatus(status))


def _edited(change: dict[str, object]) -> str:
    tree = json.loads(new_record("train", Config()).to_json()) | change
    return json.dumps({key: value for key, value in tree.items() if value != "DELETE"})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "damaged: not valid JSON"),
        (b'{"schema_version": 1, "na', "damaged: not valid JSON"),
        (b'{"schema_version": NaN}', "NaN is not JSON"),
        (b"\xff\xfe\x00", "damaged: not UTF-8 text"),
        (b"[" * 100_000, "damaged: not valid JSON"),
        (b"[1, 2]", "not an onelip record"),
        (b'{"name": "left-pad"}', "not an onelip record"),
        (_edited({"schema_version": 1}), "older onelip"),
        (_edited({"schema_version": 3}), "update onelip"),
        (_edited({"schema_version": "2"}), "update onelip"),
        (_edited({"metrics": "DELETE"}), "metrics"),
        (_edited({"extra": 1}), "unknown fields: extra"),
        (_edited({"seconds": "12"}), "seconds is '12'"),
        (_edited({"seconds": 10**4000}), "seconds is int"),
        (_edited({"seconds": True}), "seconds is True"),
        (_edited({"command": ["a", 1]}), "command.1 is int"),
        (_edited({"versions": {"torch": None}}), "versions.torch is None"),
        (_edited({"config": {"network": NETWORK, "seed": True}}), "config.seed"),
        (_edited({"config": {"network": NETWORK | {"kernel_size": 3.5}}}), "config.network.kernel_size is 3.5"),
        (_edited({"config": {}}), "config.network"),
        (_edited({"job": 5}), "job is int"),
        (_edited({"status": "great"}), "status is 'great'; known: running, finished"),
        (_edited({"status": "failed"}), "failed needs a reason"),
        (_edited({"updated_at": "yesterday"}), "damaged: updated_at is not a time"),
        (_edited({"created_at": "2026-01-01T00:00:00"}), "damaged: created_at has no time zone"),
        (_edited({"config": {"network": NETWORK}}), "edited by hand"),
    ],
)
def test_a_bad_record_is_named_and_the_others_load(tmp_path: Path, content: bytes | str, problem: str) -> None:
    for method in ("aol", "lot"):
        with start_run(tmp_path, "train", {"network": NetworkSpec(method=method)}) as run:
            run.update(status=RunStatus.FINISHED)
    bad = tmp_path / "train-soc-0123456789ab"
    bad.mkdir()
    (bad / RECORD_FILE).write_bytes(content if isinstance(content, bytes) else content.encode())
    loaded = load_records(tmp_path)
    assert [run.record.network.method for run in loaded.runs] == ["aol", "lot"]
    (message,) = loaded.problems
    assert message.startswith(f"{bad / RECORD_FILE}: ")
    assert problem in message
    assert "\n" not in message


def test_foreign_folders_and_files_are_not_runs(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / RECORD_FILE).write_text("{}")
    (tmp_path / "file.txt").write_text("")
    loaded = load_records(tmp_path)
    assert (loaded.runs, loaded.problems) == ([], [])
    with pytest.raises(InvalidInputError, match="no such folder of runs"):
        load_records(tmp_path / "missing")


def test_machine_facts_are_plain_and_complete() -> None:
    facts = machine_facts()
    assert parse_json(dump_json(facts)) == facts
    assert facts["cpu"]
    assert 1 <= facts["usable_cores"] <= facts["cores"]
    assert facts["memory_bytes"] > 2**28
    assert facts["torch_threads"] == torch.get_num_threads()
    assert facts["versions"]["torch"] == torch.__version__
    facts["versions"]["torch"] = "changed by the caller"
    assert machine_facts()["versions"]["torch"] == torch.__version__
