"""What a bad command line is answered with: one line in the words of onelip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from cyclopts import App
from cyclopts.argument import Argument
from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from onelip.errors import did_you_mean

_KINDS = {int: "no whole number", float: "no number"}


def message_of(error: CycloptsError) -> str:
    """What is wrong, what was probably meant, and where to read on."""
    command = " ".join(error.command_chain or ())
    return f"{_what_is_wrong(error, command)}; see onelip {command} --help"


def _what_is_wrong(error: CycloptsError, command: str) -> str:
    match error:
        case UnknownCommandError(app=app, unused_tokens=[word, *_]) if app is not None:
            known = [name for name in app if not name.startswith("-")]
            return f"{command} {word!r} is none of {', '.join(known)}{did_you_mean(word, known)}"
        case UnknownOptionError(token=token, argument_collection=arguments):
            word = token.keyword or token.value
            return f"{command} has no option {word!r}{_closest(word, (n for one in arguments for n in one.names))}"
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return f"{command} has no argument {word!r}"
        case CoercionError(token=token, argument=argument, target_type=kind) if token and argument:
            if choices := list(argument.get_choices() or get_args(kind)):
                wrong = f"none of {', '.join(map(str, choices))}{did_you_mean(token.value, map(str, choices))}"
            else:
                wrong = _KINDS.get(kind, f"no {getattr(kind, '__name__', kind)}") if kind else "not understood"
            return f"{token.keyword or _placeholder(argument)}: {token.value!r} is {wrong}"
        case ValidationError(argument=argument, exception_message=wrong) if argument:
            given = " ".join(token.value for token in argument.tokens)
            if wrong.startswith("must be"):
                return f"{argument.name} {wrong}, not {given}"
            is_named = repr(given) in wrong or not given
            return f"{argument.name}: {wrong}" if is_named else f"{argument.name} {given}: {wrong}"
        case MissingArgumentError(argument=argument, keyword=keyword) if argument:
            if keyword or argument.index is None:
                return f"{keyword or argument.name} needs a value"
            return f"{command} needs {_placeholder(argument)}{_meaning(argument, error.app)}"
    return str(error)


def _placeholder(argument: Argument) -> str:
    return argument.name.removeprefix("--").upper()


def _meaning(argument: Argument, app: App | None) -> str:
    """The first words of its help, for which cyclopts reads docstrings only when it is asked to."""
    known = app.assemble_argument_collection(parse_docstring=True) if app else ()
    text = next((one.parameter.help for one in known if one.name == argument.name and one.parameter.help), "")
    return f": {' '.join(text.split()).rstrip('.')}" if text else ""


def _closest(word: str, options: Iterable[str]) -> str:
    """`did_you_mean` without the dashes, which all options share."""
    close = did_you_mean(word.lstrip("-"), [option.lstrip("-") for option in options])
    return close.replace("mean '", "mean '--")
