"""Adding: two numbers of a long sequence are marked; output their sum at the end."""

from __future__ import annotations

from dataclasses import dataclass

from goru.lab.tasks.task import GeneratedProblem, Task


@dataclass(frozen=True)
class Adding(Task):
    """The adding problem."""

    length: int = 200
    """Steps of a sequence."""
    test_size: int = 1024
    """Sequences in the held-out set."""

    def __post_init__(self) -> None:
        if self.length < 2 or self.test_size < 1:
            raise ValueError("length should be at least 2, test_size at least 1")

    def describe(self) -> str:
        return f"length {self.length}"

    def problem(self, seed: int, batch_size: int) -> GeneratedProblem:
        from goru.lab.problems.adding import AddingProblem

        return AddingProblem(self, seed, batch_size)
