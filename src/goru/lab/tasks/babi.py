"""Questions about stories: read statements and a question, answer with one word (or one joined list)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from goru.lab.tasks.task import Problem, Task

TASKS = 20
GENERATED_TASKS = (1, 5, 6, 17)
"""The tasks that the small world of this project can write."""
QUESTIONS = 1000
"""In each of a task's two files."""


@dataclass(frozen=True)
class Babi(Task):
    """Questions about stories."""

    sources: ClassVar = {"files": ("babi", "bAbI"), "generated": (None, "generated small world")}
    data: Literal["files", "generated"] = "files"
    """The bAbI files, or stories of a small world that this project writes (tasks 1, 5, 6 and 17)."""
    number: int = 1
    """Which task."""
    embedding: int = 50
    """Size of the word vectors."""
    word_scale: float = 0.05
    """Word vectors start uniform between minus this and this."""
    joined: Literal["last", "sequence"] = "last"
    """What the third network reads: the last outputs of the other two in one step, or the outputs over the statements
    step by step, each beside the last output over the question."""
    dropout: float = 0.0
    """Share of the word vectors' elements, and of the third network's output, that is zero in training."""
    questions: int = QUESTIONS
    """Training questions of generated data, as many again for the test set; the files have 1000."""

    def __post_init__(self) -> None:
        if not 1 <= self.number <= TASKS or self.embedding < 1 or self.questions < 10:
            raise ValueError(f"number should be from 1 to {TASKS}, embedding at least 1, questions at least 10")
        if not 0 < self.word_scale < math.inf:
            raise ValueError(f"word-scale should be a positive number, got {self.word_scale}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout should be from 0 to below 1, got {self.dropout}")
        if self.data == "generated" and self.number not in GENERATED_TASKS:
            raise ValueError(f"the small world has tasks {GENERATED_TASKS}, not {self.number}")

    def problem(self, seed: int, batch_size: int) -> Problem:
        from goru.lab.problems.babi import BabiProblem, load

        return BabiProblem(self, *load(self), seed=seed, batch_size=batch_size)
