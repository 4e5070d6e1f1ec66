"""What a task has to provide so that the one training loop can run it.

A `Task` is settings only (a frozen dataclass, part of the run's configuration). `Task.problem` makes it ready
for one run: a `Problem` provides batches, builds the network, computes losses and scores. The loop calls nothing
else. Importing this module does not import torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

TEST_SEED = 20170610
"""The held-out sets depend on this alone: the same for every run, whatever its seed."""

_STREAMS = {"train": 0, "valid": 1, "test": 2}

MakeRecurrent = Callable[[int], "nn.Module"]
"""From an input size to a recurrent layer with the contract of nn.GRU and a `hidden_size`."""


@dataclass(frozen=True)
class Task(ABC):
    """The settings of a task."""

    sources: ClassVar[Mapping[str, tuple[str | None, str]]] = {}
    """The `data_set` and `data_title` for each value of the field `data`, if the task has that field."""

    @property
    def data_set(self) -> str | None:
        """The data set that the task needs on this machine; None: the data are generated."""
        return self.sources[vars(self)["data"]][0] if self.sources else None

    @property
    def data_title(self) -> str:
        """The name of the data; empty if the experiment's own title names them."""
        return self.sources[vars(self)["data"]][1] if self.sources else ""

    def describe(self) -> str:
        """The size of the task in a few words, for titles."""
        return ""

    @abstractmethod
    def problem(self, seed: int, batch_size: int) -> Problem:
        """Make the task ready for one run (load or generate what is fixed, such as the test set)."""


class Problem(ABC):
    """A task made ready: batches by number, a network, a loss, scores."""

    steps_per_epoch: int | None = None
    """Steps of one pass over a finite training set; None if data are generated without end."""
    tracked: tuple[str, ...] = ("test",)
    """Sets that are scored during training."""
    final: tuple[str, ...] = ("test",)
    """Sets that are scored at the end, with the best parameters where `score` chooses."""

    @abstractmethod
    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        """A fresh network around a recurrent layer."""

    @abstractmethod
    def batch(self, step: int) -> Any:
        """The training batch of a step. It depends on the seed and the step only, not on earlier steps.

        A named tuple; its tensors have their rows as only or as second dimension: (B) or (T, B, ...).
        """

    @abstractmethod
    def loss(self, network: nn.Module, batch: Any, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The loss to minimize, and the state to carry into the next step (empty for most tasks)."""

    def weight(self, batch: Any) -> float:
        """How many terms the mean in `loss` has, up to a factor; the losses of parts of a batch are averaged by it.

        The default, the number of rows, is right where every row has the same number of terms.
        """
        return count_rows(batch)

    @abstractmethod
    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        """Scores on a held-out set, `loss` among them. Called without gradients, in evaluation mode."""

    @abstractmethod
    def baseline(self) -> float:
        """The loss of the best answer that ignores the sequence."""

    def score(self, metrics: dict[str, float]) -> float | None:
        """The number that selects the best parameters, lower is better; None: use the last parameters."""
        return None

    def about(self) -> dict[str, Any]:
        """What a table should show about the data besides the scores: sizes, reference levels."""
        return {}

    def figure(self, network: nn.Module) -> dict[str, Any] | None:
        """What the figures need from the trained network beyond its scores, as JSON."""
        return None


class Batch(NamedTuple):
    """What goes into the network, and what should come out."""

    inputs: Tensor
    targets: Tensor


class GeneratedProblem(Problem):
    """A problem whose data are generated without end; its test set is the same for every run."""

    def __init__(self, task: Any, seed: int, batch_size: int) -> None:
        self.task, self.seed, self.batch_size = task, seed, batch_size
        self.test = self.generate(stream(TEST_SEED, "test"), task.test_size)

    @abstractmethod
    def generate(self, rng: np.random.Generator, batch_size: int) -> Batch:
        """Random sequences and their answers."""

    def batch(self, step: int) -> Batch:
        return self.generate(stream(self.seed, "train", step), self.batch_size)

    def test_batches(self) -> Iterator[Batch]:
        for first in range(0, self.task.test_size, self.batch_size):
            yield take_rows(self.test, slice(first, first + self.batch_size))


class DataProblem(Problem):
    """A problem with a finite training set: the validation loss selects the parameters that are tested."""

    tracked = ("valid",)
    final = ("valid", "test")

    def score(self, metrics: dict[str, float]) -> float | None:
        return metrics["valid_loss"]


def count_rows(batch: Any) -> int:
    """The rows of a batch, a named tuple of tensors: (B), or (T, B) and more dimensions."""
    from torch import Tensor

    shape = next(part.shape for part in batch if isinstance(part, Tensor))
    return shape[0] if len(shape) == 1 else shape[1]


def take_rows(batch: Any, rows: slice) -> Any:
    """Some rows of a batch or of a list of states; other members than tensors stay as they are."""
    from torch import Tensor

    parts = [
        part if not isinstance(part, Tensor) else part[rows] if part.dim() == 1 else part[:, rows] for part in batch
    ]
    return parts if isinstance(batch, list) else type(batch)(*parts)


def stream(seed: int, split: str, step: int = 0) -> np.random.Generator:
    """Random numbers that depend on the seed, the set and the step alone.

    Philox is counter-based: its key is (seed, set), its counter starts at the step, so no earlier step is replayed.
    """
    import numpy as np

    return np.random.Generator(np.random.Philox(key=[seed, _STREAMS[split]], counter=[0, 0, 0, step]))
