"""Which code a measurement depends on: the modules that what was measured reaches by import, as one hash.

The walk reads import statements, at any depth of a module, without running them. A name that a package only passes on
(`from onelip.models import ConvNet`) leads to the module that defines it, not to all that the package imports. What is
found at run time by folder, the files of methods, is not reached: such modules are starting points of the walk.

The hash is of syntax trees without docstrings, comments and what is for type checkers alone: a sentence changes
nothing, a statement does. Empty fields of a tree are left out, since versions of Python differ in them.
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
    """Hash of the code of these modules and of all that they import from the same package."""
    digest = hashlib.sha256()
    for name in sorted(import_closure(modules, package)):
        digest.update(f"{name} {_module(name, package).digest}\n".encode())
    return digest.hexdigest()[:12]


def import_closure(modules: Iterable[str], package: Path = PACKAGE) -> dict[str, Path]:
    """Names and files of these modules and of those of the package that they reach by import."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and (path := _file(name, package)) is not None:
            found[name] = path
            waiting += [_defining_module(one, package) for one in _module(name, package).imports]
    return found


@functools.cache
def source_stamp(package: Path = PACKAGE) -> str:
    """Names, sizes and times of all source files: as long as it is the same, so is every hash."""
    files = sorted(package.rglob("*.py"))
    facts = [(str(path.relative_to(package)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


class _Import(NamedTuple):
    origin: str
    name: str | None
    bound: str


class _Module(NamedTuple):
    digest: str
    imports: list[_Import]


@functools.cache
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
        for other in _module(origin, package).imports:
            if other.bound == found.name:
                return _defining_module(other, package)
    return origin


def _module(name: str, package: Path) -> _Module:
    path = _file(name, package)
    assert path is not None
    return _parse(path.read_text(encoding="utf-8"), name if path.name == "__init__.py" else name.rpartition(".")[0])


@functools.lru_cache(maxsize=1024)
def _parse(source: str, folder: str) -> _Module:
    """Digest and imports of a module in this folder."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, field, None), list):
                setattr(node, field, [one for one in statements if not _says_nothing(one)])
        if isinstance(node, ast.JoinedStr):  # Python 3.12 ends some of them with an empty text
            node.values = [one for one in node.values if not isinstance(one, ast.Constant) or one.value]
    imports: list[_Import] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [_Import(alias.name, None, alias.asname or alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = folder.split(".")[: folder.count(".") + 2 - node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            imports += [_Import(origin, alias.name, alias.asname or alias.name) for alias in node.names]
    return _Module(hashlib.sha256(repr(_plain(tree)).encode()).hexdigest(), imports)


def _says_nothing(statement: ast.stmt) -> bool:
    """Whether it is a docstring, of whatever, or for type checkers alone."""
    match statement:
        case ast.Expr(ast.Constant(str())):
            return True
        case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=[]):
            return True
    return False


def _plain(value: object) -> object:
    """A tree as nested tuples of names, lists and constants, without empty fields."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, ast.AST):
        return value
    fields = ((name, _plain(child)) for name, child in ast.iter_fields(value))
    return type(value).__name__, *(field for field in fields if field[1] is not None and field[1] != [])
