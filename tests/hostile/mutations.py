"""Seeded damage: bytes as disks and networks damage them, JSON as careless or hostile people write it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

DEEP = "[" * 100_000
NASTY_TEXTS = (
    "",
    " ",
    "\x1b]0;owned\x07\x1b[2J",
    "[red]rich[/red][/]",
    "<script>hit()</script>",
    "\\042\\076\\g<0>",
    "../outside",
    "/dev/zero",
    "a\x00b",
    "\ud800",
    "\u202eevil",
    "=1+1",
    "nan",
    "9" * 5000,
    "x" * 200_000,
    "%s%n{0}{{",
)
NASTY_VALUES: tuple[Any, ...] = (
    *NASTY_TEXTS, None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 10**400, 0.5, -0.0, 1e308, -1e-320,
    {"$nonfinite": "nan"}, {"$nonfinite": "inf"}, {"$nonfinite": "-inf"}, {"$nonfinite": 1},
    {"$nonfinite": "nan", "a": 1},
    [], {}, [[]], [None], {"": ""}, {"a": {"b": {"c": []}}}, [1] * 3000, {str(k): k for k in range(3000)},
)  # fmt: skip


_OTHER_FILES = (b"", b"\x00", b"\n", b"null", b"[]", b"{}", b'"x"', b"1e999", b"\xff\xfe", DEEP.encode())
_NOT_IN_TREES = (', "x": ' + DEEP, ', "x": NaN', ', "x": Infinity', ', "x": 1, "x": 2', ", ", ', "x": ' + "9" * 5000)


def damaged_bytes(random: Random, content: bytes) -> bytes:
    """Cut short, bits flipped, parts lost, doubled, moved, zeroed, overwritten, or something else altogether."""
    place, other = (random.randrange(len(content) + 1) for _ in range(2))
    low, high = sorted((place, other))
    high = min(high, low + random.choice((1, 4, 16, 512, len(content))))
    noise = random.randbytes(random.choice((1, 2, 8, 64)))
    kinds: tuple[Callable[[], bytes], ...] = (
        lambda: content[:place],
        lambda: _flipped(random, content, 1),
        lambda: _flipped(random, content, 8),
        lambda: _flipped(random, content[:512], 2) + content[512:],  # headers are at the beginning
        lambda: content[:-512] + _flipped(random, content[-512:], 2),  # and, in zips, at the end
        lambda: content[:low] + content[high:],
        lambda: content[:high] + content[low:high] * random.choice((1, 3, 100)) + content[high:],
        lambda: content[:low] + bytes(high - low) + content[high:],
        lambda: content[:low] + b"\xff" * (high - low) + content[high:],
        lambda: content[:place] + noise + content[place:],
        lambda: content[:place] + noise + content[place + len(noise) :],
        lambda: content + noise,
        lambda: random.choice(_OTHER_FILES),
        lambda: random.randbytes(random.choice((1, 100, 5000))),
    )  # fmt: skip
    return random.choice(kinds)()


def _flipped(random: Random, content: bytes, count: int) -> bytes:
    changed = bytearray(content)
    for _ in range(count if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def damaged_json(random: Random, text: str) -> str:
    """One to three places of a tree lost, renamed, replaced by what is not expected there, or nested beyond reason."""
    tree = copy.deepcopy(json.loads(text))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            break
        parent, key = random.choice(places)
        kind = random.randrange(8)
        if kind == 0:
            del parent[key]
        elif kind == 1 and isinstance(parent, dict):
            parent[random.choice(NASTY_TEXTS)] = parent.pop(key)
        elif kind == 2 and isinstance(parent, dict):
            parent[random.choice(NASTY_TEXTS)] = copy.deepcopy(random.choice(NASTY_VALUES))
        elif kind == 3 and isinstance(parent, list):
            parent += [copy.deepcopy(random.choice(NASTY_VALUES)), *parent]
        else:
            parent[key] = copy.deepcopy(random.choice(NASTY_VALUES))
    text = json.dumps(tree)
    if random.randrange(12) == 0:  # what no tree can hold: depth without end, bare words, a key twice
        last = text.rindex("}")
        text = text[:last] + random.choice(_NOT_IN_TREES) + "}"
    return text


def _places(tree: Any) -> Any:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)
