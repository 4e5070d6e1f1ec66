"""Errors that a user can fix: one sentence each, no traceback."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable


def printable(text: str) -> str:
    """`text` with escapes for characters that control a terminal or reorder a line.

    >>> printable("red \\x1b[31m and a\\nnew line")
    'red \\\\x1b[31m and a new line'
    """
    if text.isprintable():
        return text
    shown = []
    for c in text:
        space = c in "\n\t" or unicodedata.category(c) == "Zs"
        same = c.isprintable() or c == "\u00a0"
        shown.append(c if same else " " if space else c.encode("unicode_escape").decode())
    return "".join(shown)


class LabError(Exception):
    """One sentence; ends the command with exit code 1."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class UsageError(LabError):
    """The command line asked for something that does not exist."""

    exit_code = 2


class UnreadableError(LabError):
    """A file is there, but the system cannot read it: that says nothing about its content."""


class RunBusyError(LabError):
    """Another process is working on this run."""

    exit_code = 3


class RunEndedError(LabError):
    """A run ends for a reason that all of its processes see; the first one prints it."""


class RunInterruptedError(RunEndedError):
    """Stopped by a signal, after a checkpoint."""

    exit_code = 130


def near(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant; empty if none is close.

    >>> near("copyng", ["copying", "denoise"]), near("nope", ["copying", "denoise"])
    ('copying', '')
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.65)
    return close[0] if close else ""


def nearest(what: str, name: str, known: Iterable[str]) -> str:
    """'there is no experiment "copyng"; did you mean "copying"?'"""
    names = list(known)
    if len(name) > 60:
        name = f"{name[:60]}..."
    close = near(name, names)
    hint = f'did you mean "{close}"?' if close else f"there are: {', '.join(names)}."
    return f'there is no {what} "{name}"; {hint}'
