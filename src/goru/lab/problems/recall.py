"""Copying and denoise: see some symbols, wait for the marker, output them in order.

Legend: T steps, B batch, N symbols to recall. Input symbols (T, B): 0 blank (noise), 1..8 data, 9 marker.
Output classes (T, B): 0 blank, 1..8 data.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from goru.lab.networks import StepTagger
from goru.lab.tasks.copying import Copying
from goru.lab.tasks.denoise import Denoise
from goru.lab.tasks.recall import RecallTask
from goru.lab.tasks.task import Batch, GeneratedProblem, MakeRecurrent

DATA_SYMBOLS = 8
BLANK, MARKER = 0, DATA_SYMBOLS + 1

Settings = TypeVar("Settings", bound=RecallTask)


class RecallProblem(GeneratedProblem, Generic[Settings]):
    """What copying and denoise share."""

    task: Settings

    @abstractmethod
    def places(self, rng: np.random.Generator, batch_size: int) -> np.ndarray:
        """The steps of the data symbols, (N, B), rising along N, all before the marker."""

    def generate(self, rng: np.random.Generator, batch_size: int) -> Batch:
        task = self.task
        symbols = rng.integers(1, DATA_SYMBOLS + 1, (task.recall, batch_size))
        inputs = np.full((task.length, batch_size), BLANK)
        targets = np.full((task.length, batch_size), BLANK)
        np.put_along_axis(inputs, self.places(rng, batch_size), symbols, axis=0)
        inputs[task.length - task.recall - 1] = MARKER
        targets[-task.recall :] = symbols
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        return StepTagger(make_recurrent, symbols=DATA_SYMBOLS + 2, outputs=DATA_SYMBOLS + 1)

    def loss(self, network: nn.Module, batch: Batch, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return self._cross_entropy(network(batch.inputs), batch.targets), carry

    def _cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.task.loss_on == "recall":
            logits, targets = logits[-self.task.recall :], targets[-self.task.recall :]
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        """Loss over all steps; accuracy over the recalled symbols, each and as whole sequences."""
        loss = right = whole = 0.0
        for inputs, targets in self.test_batches():
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


class CopyingProblem(RecallProblem[Copying]):
    def places(self, rng: np.random.Generator, batch_size: int) -> np.ndarray:
        """One block: at the start, or anywhere before the marker."""
        block = np.arange(self.task.recall)[:, None]
        if self.task.placement == "start":
            return np.broadcast_to(block, (self.task.recall, batch_size))
        return block + rng.integers(0, self.task.delay, batch_size)


class DenoiseProblem(RecallProblem[Denoise]):
    def places(self, rng: np.random.Generator, batch_size: int) -> np.ndarray:
        """Distinct steps, every choice equally likely: the positions of the N smallest of random numbers."""
        order = rng.random((batch_size, self.task.length - self.task.recall - 1), dtype=np.float32)
        return np.sort(order.argpartition(self.task.recall - 1)[:, : self.task.recall]).T
