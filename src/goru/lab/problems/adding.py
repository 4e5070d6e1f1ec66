"""Adding: two numbers of a long sequence are marked; output their sum at the end.

Legend: T steps, B batch. Inputs (T, B, 2): a number in [0, 1) and a mark, which is 1 at one step of each half. Targets
(1, B): the sums.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from goru.lab.networks import LastStep
from goru.lab.tasks.adding import Adding
from goru.lab.tasks.task import Batch, GeneratedProblem, MakeRecurrent


class AddingProblem(GeneratedProblem):
    task: Adding

    def generate(self, rng: np.random.Generator, batch_size: int) -> Batch:
        T, half = self.task.length, self.task.length // 2
        numbers = rng.random((T, batch_size))
        places = np.stack([rng.integers(0, half, batch_size), rng.integers(half, T, batch_size)])
        marks = np.zeros((T, batch_size))
        np.put_along_axis(marks, places, 1.0, axis=0)
        sums = np.take_along_axis(numbers, places, axis=0).sum(0, keepdims=True)
        inputs = torch.from_numpy(np.stack([numbers, marks], -1))
        return Batch(inputs.float(), torch.from_numpy(sums).float())

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        return LastStep(make_recurrent, 2, 1)

    def loss(self, network: nn.Module, batch: Batch, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Mean squared error of the sum."""
        sums = network(batch.inputs).t()
        return functional.mse_loss(sums, batch.targets.to(sums.device)), carry

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        """Mean squared error; accuracy: the share of sums that are right within 0.04."""
        loss = right = 0.0
        for inputs, targets in self.test_batches():
            sums = network(inputs).t().cpu()
            loss += functional.mse_loss(sums, targets, reduction="sum").item()
            right += ((sums - targets).abs() < 0.04).sum().item()
        return {"loss": loss / self.task.test_size, "accuracy": right / self.task.test_size}

    def baseline(self) -> float:
        """The variance of the sum of two uniform numbers: the error of answering 1."""
        return 1 / 6
