"""Text files, line by line, and an error that names the line."""

from __future__ import annotations

from collections.abc import Iterator

from goru.lab.errors import LabError

LONGEST_LINE = 65_536
"""Bytes; no line of these formats comes near it."""


class FormatError(LabError):
    """A file with the wrong format."""

    def __init__(self, source: str, line: int | None, what: str) -> None:
        place = source if line is None else f"{source}, line {line}"
        super().__init__(f"{place}: {what}.")


def numbered(content: bytes, source: str) -> Iterator[tuple[int, str]]:
    """The lines of a text with their numbers from 1, without line ends.

    >>> list(numbered(b"one\\ntwo\\n", "here"))
    [(1, 'one'), (2, 'two')]
    """
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise FormatError(source, number, f"{len(line)} bytes long, at most {LONGEST_LINE} are expected")
        try:
            text = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise FormatError(source, number, "not text in UTF-8") from None
        strange = next((c for c in text if not (c.isprintable() or c == "\t")), None)
        if strange is not None:
            raise FormatError(source, number, f"the character {strange!r} is not allowed in a text file")
        yield number, text


def shown(text: str) -> str:
    """A text as an error message quotes it: not too much of it."""
    return repr(text if len(text) <= 40 else text[:40] + "...")
