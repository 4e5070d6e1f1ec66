"""Read untrusted files: only regular files of bounded size, and JSON of bounded depth.

Text from such files never reaches a terminal or a page with control characters in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from goru.lab.errors import LabError, UnreadableError, printable

SIZE_LIMIT = 64 * 2**20
"""Bytes; the largest file of a run, the metrics of millions of steps, stays below it."""
DEPTH_LIMIT = 20
INTEGER_DIGITS = 18
"""Longer integers do not fit 64 bits; arithmetic on them and `float` would fail later."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file, open for reading; LabError if it is anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LabError(f"{path} is not a regular file.")
        yield file


def read_bytes(path: Path, limit: int = SIZE_LIMIT) -> bytes | None:
    """The content of a regular file; None if there is no file, LabError if it is not safe."""
    try:
        with opened(path) as file:
            content = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(content) > limit:
        raise LabError(f"{path} is larger than {limit >> 20} MiB.")
    return content


def parse_json(content: bytes | str, source: str) -> Any:
    """A JSON value with harmless texts and numbers; LabError names `source`."""
    try:
        value = json.loads(content, parse_int=_integer)
        return _checked(value, DEPTH_LIMIT)
    except RecursionError:
        raise LabError(f"{source} is nested too deeply.") from None
    except ValueError as error:
        raise LabError(f"{source} is not valid JSON: {error}.") from None


def read_json(path: Path) -> Any:
    """The JSON value in a file; None if there is no file."""
    content = read_bytes(path)
    return None if content is None else parse_json(content, str(path))


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > INTEGER_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _checked(value: Any, depth: int) -> Any:
    if depth < 0:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_checked(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {printable(name): _checked(item, depth - 1) for name, item in value.items()}
    return value
