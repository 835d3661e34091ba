"""A small part of the corpus; `make fuzz` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile.attacks import ATTACKS, SLOW
from hostile.corpus import ALL_KINDS, GOOD, Corpus

SEED = 7


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("hostile"), SEED)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_malformed_inputs_are_refused_or_named(corpus: Corpus, kind: str) -> None:
    results = [corpus.run(kind, number) for number in range(1 if kind == "report" else 6)]
    assert [result for result in results if result.outcome not in GOOD] == []


@pytest.mark.parametrize("name", [attack.__name__ for attack in ATTACKS if attack not in SLOW])
def test_attacks_are_refused_or_shown(corpus: Corpus, name: str) -> None:
    number = [attack.__name__ for attack in ATTACKS].index(name)
    result = corpus.run("attack", number)
    assert result.outcome in GOOD, result


def test_the_same_seed_gives_the_same_cases(tmp_path: Path) -> None:
    first, again = (Corpus(tmp_path / name, SEED).run("archive", 3) for name in "ab")
    assert first == again
