"""Parenthesis: count the open brackets of each kind, through noise.

Legend: T steps, B batch, K kinds. Input symbols: 0..K-1 open, K..2K-1 close, 2K.. noise.
Output (T, B, K) for each kind: one of the classes 0..cap, the number of open brackets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from goru.lab.networks import StepTagger, update_gates
from goru.lab.tasks.parenthesis import Parenthesis
from goru.lab.tasks.task import Batch, GeneratedProblem, MakeRecurrent

OPEN_GATE = 0.7
"""A unit counts in the gate figure when its update gate is above this."""
GATE_SEQUENCES = 256
"""Sequences over which the shares on noise and on brackets are averaged."""


def count(task: Parenthesis, inputs: np.ndarray) -> np.ndarray:
    """Open brackets of each kind after every step, (T, B, K), between 0 and the cap."""
    T, B = inputs.shape
    moves = np.zeros((T, B, task.symbols), dtype=np.int16)
    np.put_along_axis(moves, inputs[:, :, None], 1, axis=2)
    moves = moves[:, :, : task.kinds] - moves[:, :, task.kinds : 2 * task.kinds]
    walk = moves.cumsum(0, dtype=np.int16)
    # A walk that cannot fall below 0 is the free walk minus its lowest point so far.
    counts = walk - np.minimum(np.minimum.accumulate(walk, 0), 0)
    # Few walks ever exceed the cap; those are counted step by step.
    b, k = np.nonzero((counts > task.cap).any(0))
    if len(b):
        now = np.zeros(len(b), dtype=np.int16)
        for t in range(T):
            now = np.clip(now + moves[t, b, k], 0, task.cap)
            counts[t, b, k] = now
    return counts.astype(np.int64)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """torch's cross_entropy, which takes three times as long for very many rows of a few classes.

    >>> rows, labels = torch.randn(5, 11), torch.arange(5)
    >>> torch.allclose(cross_entropy(rows, labels), nn.functional.cross_entropy(rows, labels))
    True
    """
    return (logits.logsumexp(-1) - logits.gather(-1, labels[:, None]).squeeze(-1)).mean()


class ParenthesisProblem(GeneratedProblem):
    task: Parenthesis

    def generate(self, rng: np.random.Generator, batch_size: int) -> Batch:
        """Uniformly random symbols and the counts after each."""
        inputs = rng.integers(0, self.task.symbols, (self.task.length, batch_size), dtype=np.int64)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(count(self.task, inputs)))

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        return StepTagger(make_recurrent, symbols=self.task.symbols, outputs=self.task.kinds * (self.task.cap + 1))

    def _logits(self, network: nn.Module, inputs: Tensor) -> Tensor:
        return network(inputs).view(-1, self.task.cap + 1)

    def loss(self, network: nn.Module, batch: Batch, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Mean cross-entropy over steps and kinds."""
        logits = self._logits(network, batch.inputs)
        return cross_entropy(logits, batch.targets.flatten().to(logits.device)), carry

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        """Loss and accuracy over steps and kinds."""
        loss = right = 0.0
        for inputs, targets in self.test_batches():
            logits = self._logits(network, inputs)
            labels = targets.flatten().to(logits.device)
            loss += cross_entropy(logits, labels).item() * inputs.shape[1]
            right += (logits.argmax(-1) == labels).double().mean().item() * inputs.shape[1]
        return {"loss": loss / self.task.test_size, "accuracy": right / self.task.test_size}

    def baseline(self) -> float:
        """Entropy of the labels, pooled over steps and kinds."""
        share = torch.bincount(self.test.targets.flatten(), minlength=self.task.cap + 1).double()
        share = share[share > 0] / share.sum()
        return float(-(share * share.log()).sum())

    def figure(self, network: nn.Module) -> dict[str, Any] | None:
        """Share of update-gate units above 0.7: by step on one sequence; on noise against brackets."""
        inputs = self.test.inputs[:, :GATE_SEQUENCES]
        gates = update_gates(network, inputs)
        if gates is None:
            return None
        share = (gates > OPEN_GATE).double().mean(-1).cpu()  # (T, B)
        noise = inputs >= 2 * self.task.kinds
        return {
            "gate_threshold": OPEN_GATE,
            "gate_share": share[:, 0].tolist(),
            "noise": noise[:, 0].tolist(),
            "gate_share_noise": share[noise].mean().item() if noise.any() else None,
            "gate_share_brackets": share[~noise].mean().item(),
            "gate_sequences": inputs.shape[1],
        }
