"""Digits pixel by pixel: read a picture one pixel at a time, then say which digit it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from goru.lab.tasks.task import Problem, Task

SIDES = (28, 14, 7)


@dataclass(frozen=True)
class Digits(Task):
    """Digits pixel by pixel."""

    sources: ClassVar = {
        "mnist10k": ("mnist10k", "10,000 digits of MNIST"),
        "mnist": ("mnist", "MNIST"),
        "generated": (None, "generated digits"),
    }
    data: Literal["mnist10k", "mnist", "generated"] = "mnist10k"
    """10,000 digits of MNIST, all 70,000, or digits that this project draws."""
    permuted: bool = True
    """Whether the pixels come in one fixed random order rather than row by row."""
    side: int = 28
    """Rows and columns of a picture: 28, or 14 or 7, with the means of neighboring pixels."""
    digits: int = 1600
    """Training digits of generated data (validation and test: an eighth each)."""

    def __post_init__(self) -> None:
        if self.side not in SIDES or self.digits < 80:
            raise ValueError(f"side should be one of {', '.join(map(str, SIDES))}, digits at least 80")

    def describe(self) -> str:
        return f"{self.side * self.side} pixels"

    def problem(self, seed: int, batch_size: int) -> Problem:
        from goru.lab.problems.digits import DigitsProblem, load

        return DigitsProblem(self, load(self), seed, batch_size)
