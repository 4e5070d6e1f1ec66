"""For tests that feed a parser anything: a value or a clear error, never another exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from goru.lab.errors import LabError

T = TypeVar("T")


def attempt(source: str, parse: Callable[[], T]) -> T | None:
    """What `parse` gives, or None after an error in one short sentence that begins with the source's name."""
    try:
        return parse()
    except LabError as error:
        message = str(error)
    assert message.startswith(source)
    assert len(message) < 400
    assert "\n" not in message
    return None
