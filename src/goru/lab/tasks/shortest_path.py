"""Shortest path: read a graph edge by edge and a query, then output the nodes of the path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from goru.lab.tasks.task import Problem, Task

FOLDS = 10


@dataclass(frozen=True)
class ShortestPath(Task):
    """The shortest-path task."""

    sources: ClassVar = {"files": ("shortest_path", "graphs of Li et al."), "generated": (None, "generated graphs")}
    data: Literal["files", "generated"] = "files"
    """The published graphs, or graphs of the same distribution drawn by this project."""
    fold: int = 1
    """Which of the ten folds."""
    feed: Literal["ans", "path"] = "ans"
    """What the network reads while it answers: the same symbol at every step, or the node of the true path before."""
    padded: bool = False
    """Whether an answer is filled up with end symbols to the length of the longest, and these count too."""
    graphs: int = 950
    """Training graphs of generated data (validation and test: in proportion); the files have 950."""

    def __post_init__(self) -> None:
        if not 1 <= self.fold <= FOLDS:
            raise ValueError(f"fold should be from 1 to {FOLDS}")
        if self.graphs < 19:
            raise ValueError("graphs should be at least 19")

    def problem(self, seed: int, batch_size: int) -> Problem:
        from goru.lab.problems.shortest_path import ShortestPathProblem, load

        feed_path = self.feed == "path"
        return ShortestPathProblem(load(self), seed, batch_size, feed_path=feed_path, padded=self.padded)
