"""Stopping on a signal: the first asks for a clean stop, the second stops at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def interrupted_by(number: signal.Signals) -> Iterator[None]:
    """Make a signal act like Ctrl-C inside the block, so everything is cleaned up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, interrupt)
    try:
        yield
    finally:
        signal.signal(number, before)


class StopOnSignal:
    """A context manager; call it to ask whether to stop."""

    def __init__(self, *signals: signal.Signals) -> None:
        self._signals = signals
        self._before: dict[signal.Signals, Any] = {}
        self.requested = False

    def __enter__(self) -> StopOnSignal:
        for number in self._signals:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        return self.requested

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
