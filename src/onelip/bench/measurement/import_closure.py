"""Which source files a measurement depends on: the modules that what was measured reaches by import.

The walk reads import statements, at any depth of a module, without running them. A name that a package only passes on
(`from onelip.models import ConvNet`) leads to the module that defines it, not to all that the package imports. What is
found at run time by folder, the files of methods, is not reached: such modules are starting points of the walk.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import onelip

PACKAGE = Path(onelip.__file__).parent


def source_hash(modules: Iterable[str], package: Path = PACKAGE) -> str:
    """Hash of the source of these modules and of all that they import from the same package."""
    digest = hashlib.sha256()
    for name, path in sorted(import_closure(modules, package).items()):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def import_closure(modules: Iterable[str], package: Path = PACKAGE) -> dict[str, Path]:
    """Names and files of these modules and of those of the package that they reach by import."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and (path := _file(name, package)) is not None:
            found[name] = path
            waiting += [_defining_module(one, package) for one in _imports(name, package) if not one.is_for_types]
    return found


def _file(module: str, package: Path) -> Path | None:
    """The file of a module of the package, None for what is not one."""
    first, *rest = module.split(".")
    if first != package.name:
        return None
    path = package.joinpath(*rest)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _defining_module(found: _Import, package: Path) -> str:
    """The module that an imported name comes from, through packages that only pass it on."""
    origin = found.origin
    if found.name is None:
        return origin
    if _file(f"{origin}.{found.name}", package) is not None:
        return f"{origin}.{found.name}"
    path = _file(origin, package)
    if path is not None and path.name == "__init__.py":
        for other in _imports(origin, package):
            if other.bound == found.name:
                return _defining_module(other, package)
    return origin


class _Import(NamedTuple):
    origin: str
    name: str | None
    bound: str
    is_for_types: bool


def _imports(module: str, package: Path) -> list[_Import]:
    path = _file(module, package)
    assert path is not None
    folder = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return _parse_imports(path.read_text(encoding="utf-8"), folder)


@functools.lru_cache(maxsize=512)
def _parse_imports(source: str, folder: str) -> list[_Import]:
    """All imports of a module in this folder; those below `if TYPE_CHECKING` are marked."""
    tree = ast.parse(source)
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    for_types = {id(inner) for guard in guards for statement in guard.body for inner in ast.walk(statement)}
    found: list[_Import] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [
                _Import(alias.name, None, alias.asname or alias.name, id(node) in for_types) for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            above = folder.split(".")[: folder.count(".") + 2 - node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found += [_Import(origin, a.name, a.asname or a.name, id(node) in for_types) for a in node.names]
    return found
