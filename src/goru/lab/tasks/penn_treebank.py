"""Next characters of a text, the state carried from segment to segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from goru.lab.tasks.task import Task

if TYPE_CHECKING:
    from goru.lab.problems.penn_treebank import PennTreebankProblem


@dataclass(frozen=True)
class PennTreebank(Task):
    """Next characters."""

    data: Literal["files", "generated"] = "files"
    """The Penn Treebank's characters, or a text that this project generates."""
    length: int = 50
    """Steps of a training segment, through which the gradient flows."""
    characters: int = 1_000_000
    """Training characters of a generated text."""

    def __post_init__(self) -> None:
        if self.length < 1 or self.characters < 1000:
            raise ValueError("length should be at least 1, characters at least 1000")

    @property
    def data_set(self) -> str | None:
        return "ptb" if self.data == "files" else None

    @property
    def data_title(self) -> str:
        return "Penn Treebank" if self.data == "files" else "generated text"

    def problem(self, seed: int, batch_size: int) -> PennTreebankProblem:
        from goru.lab.problems.penn_treebank import PennTreebankProblem, load

        return PennTreebankProblem(load(self), self.length, batch_size)
