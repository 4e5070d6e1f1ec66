"""Stopping on a signal: the first asks for a clean stop, the second stops at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def handled(handler: Callable[..., Any], *signals: signal.Signals) -> Iterator[None]:
    """Call `handler` for these signals inside the block."""
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


class StopOnSignal(contextlib.ExitStack):
    """A context manager; call it to ask whether to stop."""

    def __init__(self, *signals: signal.Signals) -> None:
        super().__init__()
        self.requested = False
        self.enter_context(handled(self._handle, *signals))

    def __call__(self) -> bool:
        return self.requested

    def _handle(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
