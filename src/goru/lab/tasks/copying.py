"""Copying: ten symbols, a long silence, a marker; then output the ten symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from goru.lab.tasks.recall import RecallTask
from goru.lab.tasks.task import GeneratedProblem


@dataclass(frozen=True)
class Copying(RecallTask):
    """The copying task."""

    placement: Literal["start", "random"] = "start"
    """Where the block of symbols is: at the start, or anywhere before the marker."""

    def problem(self, seed: int, batch_size: int) -> GeneratedProblem:
        from goru.lab.problems.recall import CopyingProblem

        return CopyingProblem(self, seed, batch_size)
