"""Denoise: ten symbols scattered in noise, a marker; then output the ten symbols in order."""

from __future__ import annotations

from dataclasses import dataclass

from goru.lab.tasks.recall import RecallTask
from goru.lab.tasks.task import GeneratedProblem


@dataclass(frozen=True)
class Denoise(RecallTask):
    """The denoise task."""

    def problem(self, seed: int, batch_size: int) -> GeneratedProblem:
        from goru.lab.problems.recall import DenoiseProblem

        return DenoiseProblem(self, seed, batch_size)
