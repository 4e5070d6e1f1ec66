"""What can go wrong in ways that a user can mend: one sentence each, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LabError(Exception):
    """Said in one sentence, ends the command with exit code 1."""

    exit_code = 1


class UsageError(LabError):
    """The command line asked for something that does not exist."""

    exit_code = 2


class RunBusyError(LabError):
    """Another process works on this run."""

    exit_code = 3


class RunInterruptedError(LabError):
    """Stopped by a signal, after a checkpoint."""

    exit_code = 130


def nearest(what: str, name: str, known: Iterable[str]) -> str:
    """'there is no experiment "copyng"; did you mean "copying"?'"""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f'did you mean "{close[0]}"?' if close else f"there are: {', '.join(names)}."
    return f'there is no {what} "{name}"; {hint}'
