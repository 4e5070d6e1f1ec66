"""The settings that copying and denoise share: see some symbols, wait for the marker, output them in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from goru.lab.tasks.task import Task


@dataclass(frozen=True)
class RecallTask(Task):
    """Settings that copying and denoise share."""

    delay: int = 200
    """Steps to remember over (the paper's T); a sequence has T + 2 * recall steps."""
    recall: int = 10
    """How many symbols to recall."""
    loss_on: Literal["all", "recall"] = "all"
    """Steps that count in the loss: all, or only the last ones."""
    test_size: int = 1024
    """Sequences in the held-out set."""

    def __post_init__(self) -> None:
        if self.recall < 1 or self.delay < 1 or self.test_size < 1:
            raise ValueError("delay, recall and test_size should be at least 1")

    def describe(self) -> str:
        return f"T = {self.delay}, {self.recall} symbols"

    @property
    def length(self) -> int:
        return self.delay + 2 * self.recall
