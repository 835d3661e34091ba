"""Who may write the study of a driver whose jobs work elsewhere; a whole study is in test_faults.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from onelip.bench.engines.ray_apart import Errand, StudyKeeper, write_files

JOB = Errand("job", "runs/train-1", ("runs/search-1/record.json",))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    files = {"study.json": b"{}", "runs/train-1/record.json": b"1", "runs/train-1/checkpoint.bin": b"half"}
    others = {"runs/search-1/record.json": b"2", "runs/search-1/large.bin": b"3", "runs/train-2/record.json": b"4"}
    write_files(tmp_path, {**files, **others})
    return tmp_path


def test_an_attempt_gets_its_run_and_the_records_that_it_needs(study: Path) -> None:
    found = StudyKeeper(str(study)).take(JOB, "a")
    assert found is not None
    names = {"study.json", "runs/train-1/record.json", "runs/train-1/checkpoint.bin", "runs/search-1/record.json"}
    assert found.keys() == names
    assert found["runs/train-1/checkpoint.bin"] == b"half"


def test_a_lost_attempt_that_lives_cannot_write_over_its_successor(study: Path) -> None:
    keeper, checkpoint = StudyKeeper(str(study)), "runs/train-1/checkpoint.bin"
    keeper.take(JOB, "lost")
    assert keeper.keep(JOB, "lost", {checkpoint: b"more"})
    found = keeper.take(JOB, "next")
    assert found is not None
    assert found[checkpoint] == b"more", "it goes on from there"
    assert not keeper.keep(JOB, "lost", {checkpoint: b"old"})
    keeper.leave(JOB, "lost")
    assert keeper.keep(JOB, "next", {checkpoint: None, "runs/train-1/record.json": b"done"})
    keeper.leave(JOB, "next")
    assert not keeper.keep(JOB, "lost", {checkpoint: b"old"}), "not after the end either"
    assert not (study / checkpoint).exists()
    assert (study / "runs/train-1/record.json").read_bytes() == b"done"


def test_two_drivers_share_a_study_and_a_keeper_may_die(study: Path) -> None:
    ours, theirs = StudyKeeper(str(study)), StudyKeeper(str(study))
    assert ours.take(JOB, "ours") is not None
    assert theirs.take(JOB, "theirs") is None
    ours._locks.pop("job").release()  # as its process ends
    again = StudyKeeper(str(study))
    assert again.keep(JOB, "ours", {"runs/train-1/checkpoint.bin": b"more"})
    assert theirs.take(JOB, "theirs") is None
    again.leave(JOB, "ours")
    assert theirs.take(JOB, "theirs") is not None
    theirs.leave(JOB, "theirs")
