"""Errors that a user can act on: each message is one line that says what is wrong and what is allowed."""


class OnelipError(Exception):
    """Base of all errors raised on purpose; the command line prints the message and exits with code 2."""


class InvalidInputError(OnelipError, ValueError):
    """An argument, a file or a name that cannot be used."""
