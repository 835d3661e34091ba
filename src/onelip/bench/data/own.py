"""Names of data sets of one's own, and what is known of them: the cache has one file for each.

`folder:flowers-5f0c61a2b3d4` is kind, a word from the folder's name, and a hash of the content. Records hold this name,
never a path: the same name is the same data, wherever they lie.
"""

from __future__ import annotations

import re
from typing import Any

from onelip.bench.data.cache import cached_info, load_cached, stored_at
from onelip.bench.data.dataset import DataError, Dataset
from onelip.errors import OnelipError
from onelip.local_machine import cache_folder
from onelip.protocol import DatasetInfo

_NAME = re.compile(r"(folder|npz|arrays):[A-Za-z0-9._-]{1,40}-[0-9a-f]{12}")


def own_name(kind: str, word: str, digest: str) -> str:
    """The name of a data set with this SHA-256 of its content."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", word).strip("-.")[:40] or "data"
    return f"{kind}:{plain}-{digest[:12]}"


def is_own(name: str) -> bool:
    """Whether a name is one of a data set of one's own."""
    return _NAME.fullmatch(name) is not None


def find_kept(name: str) -> Dataset | None:
    """The data set of this name in the cache; None if it is not there, or damaged, so that it has to be read anew."""
    try:
        return load_cached(own_info(name))
    except OnelipError:
        return None


def own_info(name: str) -> DatasetInfo:
    """The facts about a data set of one's own that the cache has."""
    found = cached_info(stored_at(name)) if is_own(name) else None
    if found is None or found.name != name:
        raise DataError(
            f"{name} is not in {cache_folder()}; `onelip data add PATH` reads it from the folder or file it was made of"
        )
    return found


def list_own() -> list[str]:
    """The names of all that are in the cache."""
    files = sorted(file for file in cache_folder().glob("*.safetensors") if file.is_file())
    infos: list[Any] = [cached_info(file) for file in files]
    return [info.name for info in infos if info is not None and is_own(info.name)]
