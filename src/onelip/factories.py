"""Functions that build models, named as `package.module:function`.

Importing a module runs its code. A name that comes from a file is therefore imported only if the caller allows it, by
the name itself, its module or a package above: see `allowed_factory`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from onelip.errors import InvalidInputError, OnelipError, one_line

if TYPE_CHECKING:
    from torch import nn

Factory = Callable[..., "nn.Module"]

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_factory_name(name: str) -> bool:
    """Whether a text reads `package.module:function`."""
    return _NAME.fullmatch(name) is not None


def factory_name(factory: Factory | str) -> str:
    """`package.module:function` of a function or class at the top level of its module, or of such a name."""
    name = factory if isinstance(factory, str) else f"{factory.__module__}:{getattr(factory, '__qualname__', '')}"
    if not is_factory_name(name):
        raise InvalidInputError(
            f"factory {name!r:.100} cannot be found by name; use module:function, a function at the top of a module"
        )
    return name


def find_factory(name: str) -> Factory:
    """Import the module and return the function; runs the code of that module."""
    module_name, function_name = factory_name(name).split(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module's own code may fail in any way
        raise InvalidInputError(f"{name}: cannot import {module_name} ({one_line(error):.200})") from error
    factory: Any = getattr(module, function_name, None)
    if not callable(factory):
        raise InvalidInputError(f"{name}: {module_name} has no function {function_name}")
    return cast(Factory, factory)


def factory_source(name: str) -> bytes:
    """The source of the module of a factory, found without running any of it; empty where there is none."""
    places: Sequence[str] | None = None
    spec, words = None, factory_name(name).split(":")[0].split(".")
    for depth in range(len(words)):
        spec = PathFinder.find_spec(".".join(words[: depth + 1]), places)
        places = None if spec is None else spec.submodule_search_locations
        if spec is None or (places is None and depth + 1 < len(words)):
            return b""
    origin = None if spec is None else spec.origin
    return Path(origin).read_bytes() if origin is not None and Path(origin).is_file() else b""


def allowed_factory(name: str, allow: str | Sequence[str]) -> Factory:
    """The factory that a file names, if the caller allows it.

    Allowed is what equals an entry of `allow` or lies in the module or package that it names. Under a package only what
    is defined there counts: a function that one of its modules has merely imported, such as `os.system`, does not.
    """
    entries = (allow,) if isinstance(allow, str) else tuple(allow)
    module_name = factory_name(name).split(":")[0]
    if name in entries:
        return find_factory(name)
    if not any(_lies_in(module_name, entry) for entry in entries):
        package = module_name.split(".")[0]
        raise InvalidInputError(
            f"its network is built by {name}, and importing that runs code; if you trust it, pass the function, "
            f"load_model(path, factory=...), or allow its package, load_model(path, allow=({package!r},)); on the "
            f"command line --model {name}"
        )
    factory = find_factory(name)
    home = getattr(factory, "__module__", None)
    if not isinstance(home, str) or not any(_lies_in(home, entry) for entry in entries):
        raise InvalidInputError(
            f"{name} is defined in {home!r:.100}, which is not allowed; allow {name!r} by its full name"
        )
    return factory


def _lies_in(module_name: str, package: str) -> bool:
    return module_name == package or module_name.startswith(f"{package}.")


def taken_arguments(factory: Factory, offered: Mapping[str, Any]) -> dict[str, Any]:
    """Of the arguments offered those that the factory takes: make(), make(num_classes) and make(**options) all work."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # a callable that does not tell
        return dict(offered)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(offered)
    by_name = {name for name, parameter in parameters.items() if parameter.kind is not parameter.POSITIONAL_ONLY}
    return {name: value for name, value in offered.items() if name in by_name}


def build(factory: Factory, arguments: Mapping[str, Any]) -> nn.Module:
    """The model that a factory makes of these arguments; the global random state stays as it was."""
    import torch  # here, since records name factories without torch
    from torch import nn

    name = f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', type(factory).__name__)}"
    try:
        with torch.random.fork_rng(devices=[]):
            model = factory(**arguments)
    except OnelipError:
        raise
    except Exception as error:  # somebody else's code
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise InvalidInputError(f"{name}({given:.200}) failed ({one_line(error):.200})") from error
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"{name} returned a {type(model).__name__}, not an nn.Module")
    return model


def search_working_folder() -> None:
    """Let modules of the working folder be imported, as `python -m` does; for the command line."""
    if "" not in sys.path:
        sys.path.insert(0, "")
