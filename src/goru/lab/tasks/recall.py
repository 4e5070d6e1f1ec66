"""What copying and denoise share: see some symbols, wait for the marker, say them in order.

Legend: T steps, B batch, N symbols to recall. Input symbols: 0 blank (noise), 1..8 data, 9 marker.
Output classes: 0 blank, 1..8 data.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from goru.lab.networks import StepTagger
from goru.lab.tasks.task import TEST_SEED, MakeRecurrent, Problem, Task, stream

DATA_SYMBOLS = 8
BLANK, MARKER = 0, DATA_SYMBOLS + 1


class Sequences(NamedTuple):
    """Symbols in (T, B), classes out (T, B)."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class RecallTask(Task):
    """Settings that copying and denoise share."""

    delay: int = 200
    """T of the paper; a sequence has T + 2 recall steps."""
    recall: int = 10
    """How many symbols to recall."""
    loss_on: Literal["all", "recall"] = "all"
    """Steps that count in the loss: all, or the last ones alone."""
    test_size: int = 1024
    """Sequences in the held-out set."""

    def __post_init__(self) -> None:
        if self.recall < 1 or self.delay < 1 or self.test_size < 1:
            raise ValueError("delay, recall and test_size should be at least 1")

    def describe(self) -> str:
        return f"T = {self.delay}, {self.recall} symbols"

    @property
    def length(self) -> int:
        return self.delay + 2 * self.recall

    @abstractmethod
    def places(self, rng: np.random.Generator, batch_size: int) -> np.ndarray:
        """Where the data symbols stand, (N, B), rising along N, all before the marker."""

    def generate(self, rng: np.random.Generator, batch_size: int) -> Sequences:
        """A batch of sequences and their answers."""
        symbols = rng.integers(1, DATA_SYMBOLS + 1, (self.recall, batch_size))
        inputs = np.full((self.length, batch_size), BLANK)
        targets = np.full((self.length, batch_size), BLANK)
        np.put_along_axis(inputs, self.places(rng, batch_size), symbols, axis=0)
        inputs[self.length - self.recall - 1] = MARKER
        targets[-self.recall :] = symbols
        return Sequences(torch.from_numpy(inputs), torch.from_numpy(targets))

    def problem(self, seed: int, batch_size: int) -> RecallProblem:
        return RecallProblem(self, seed, batch_size)


class RecallProblem(Problem):
    def __init__(self, task: RecallTask, seed: int, batch_size: int) -> None:
        self.task, self.seed, self.batch_size = task, seed, batch_size
        self.test = task.generate(stream(TEST_SEED, "test"), task.test_size)

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        return StepTagger(make_recurrent, symbols=DATA_SYMBOLS + 2, outputs=DATA_SYMBOLS + 1)

    def batch(self, step: int) -> Sequences:
        return self.task.generate(stream(self.seed, "train", step), self.batch_size)

    def loss(self, network: nn.Module, batch: Sequences, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return self._cross_entropy(network(batch.inputs), batch.targets), carry

    def _cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.task.loss_on == "recall":
            logits, targets = logits[-self.task.recall :], targets[-self.task.recall :]
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        """Loss over all steps; accuracy over the recalled symbols, each and as whole sequences."""
        loss = right = whole = 0.0
        for first in range(0, self.task.test_size, self.batch_size):
            inputs, targets = (part[:, first : first + self.batch_size] for part in self.test)
            logits = network(inputs)
            correct = (logits.argmax(-1) == targets.to(logits.device))[-self.task.recall :]
            loss += self._cross_entropy(logits, targets.to(logits.device)).item() * inputs.shape[1]
            right += correct.double().mean(0).sum().item()
            whole += correct.all(0).sum().item()
        count = self.task.test_size
        return {"loss": loss / count, "accuracy": right / count, "sequence_accuracy": whole / count}

    def baseline(self) -> float:
        """Blank where blanks are due, then a uniform guess: N ln 8 over the steps that count."""
        steps = self.task.length if self.task.loss_on == "all" else self.task.recall
        return self.task.recall * math.log(DATA_SYMBOLS) / steps
