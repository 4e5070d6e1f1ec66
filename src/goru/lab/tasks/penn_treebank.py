"""Next characters of a text, the state carried from segment to segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from goru.lab.tasks.task import Problem, Task


@dataclass(frozen=True)
class PennTreebank(Task):
    """Next characters."""

    sources: ClassVar = {"files": ("ptb", "Penn Treebank"), "generated": (None, "generated text")}
    data: Literal["files", "generated"] = "files"
    """The Penn Treebank's characters, or a text that this project generates."""
    length: int = 50
    """Steps of a training segment, through which the gradient flows."""
    characters: int = 1_000_000
    """Training characters of a generated text."""

    def __post_init__(self) -> None:
        if self.length < 1 or self.characters < 1000:
            raise ValueError("length should be at least 1, characters at least 1000")

    def problem(self, seed: int, batch_size: int) -> Problem:
        from goru.lab.problems.penn_treebank import PennTreebankProblem, load

        return PennTreebankProblem(load(self), self.length, batch_size)
