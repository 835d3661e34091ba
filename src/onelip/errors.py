"""Errors that a user can act on: each message is one line that says what is wrong and what is allowed."""

import difflib
from collections.abc import Iterable


def one_line(error: BaseException) -> str:
    """Type and message of an unexpected error on one line, for records and tables."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'aol'?)` where a known name is close to this one, else nothing; letters swapped are closest."""
    close = difflib.get_close_matches(word, list(known), n=9, cutoff=0.5)
    close.sort(key=lambda name: sorted(name) != sorted(word))
    return f" (did you mean {close[0]!r}?)" if close else ""


class OnelipError(Exception):
    """Base of all errors raised on purpose; the command line prints the message and exits with code 2."""


class InvalidInputError(OnelipError, ValueError):
    """An argument, a file or a name that cannot be used.

    Examples:
        >>> import onelip
        >>> try:
        ...     onelip.create_linear("no such method", 4, 3)
        ... except onelip.InvalidInputError:
        ...     print("not a method")
        not a method
    """


class UnknownLipschitzConstant(InvalidInputError):  # noqa: N818 - the name says what is missing
    """A module for which no upper bound is known. It is never counted as 1.

    Examples:
        >>> import torch, onelip
        >>> try:
        ...     onelip.lipschitz_bound(torch.nn.Hardshrink(), (4,))
        ... except onelip.UnknownLipschitzConstant:
        ...     print("no bound is known")
        no bound is known
    """


class UnreliableRoutineError(OnelipError, ArithmeticError):
    """A routine of the linear algebra library returned what a product refutes, and no other routine did better."""


class BrokenCertificateError(OnelipError):
    """A proven statement turned out false: the program or its arithmetic is not what the proof speaks of."""
