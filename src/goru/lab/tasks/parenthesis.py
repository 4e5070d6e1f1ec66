"""Parenthesis: count the open brackets of each kind, through noise."""

from __future__ import annotations

from dataclasses import dataclass

from goru.lab.tasks.task import GeneratedProblem, Task


@dataclass(frozen=True)
class Parenthesis(Task):
    """The parenthesis task."""

    length: int = 200
    """Steps of a sequence."""
    kinds: int = 10
    """Kinds of brackets."""
    noise: int = 10
    """Noise symbols."""
    cap: int = 10
    """The count is capped at this number."""
    test_size: int = 1024
    """Sequences in the held-out set."""

    def __post_init__(self) -> None:
        if min(self.length, self.kinds, self.cap, self.test_size) < 1 or self.noise < 0:
            raise ValueError("length, kinds, cap and test_size should be at least 1, noise at least 0")

    def describe(self) -> str:
        return f"length {self.length}"

    @property
    def symbols(self) -> int:
        return 2 * self.kinds + self.noise

    def problem(self, seed: int, batch_size: int) -> GeneratedProblem:
        from goru.lab.problems.parenthesis import ParenthesisProblem

        return ParenthesisProblem(self, seed, batch_size)
