"""The order of a finite training set: a function of the seed and the step."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from goru.lab.tasks.task import stream

POOL = 8
"""Batches per pool of sequences of similar length; more means less padding, but less shuffling."""


class Epochs:
    """Batches, reshuffled in every epoch; the last batch of an epoch may be smaller.

    With `lengths`, sequences are sorted by length inside pools of a few batches, so that a batch holds little
    padding; the batches then come in random order.
    """

    def __init__(self, count: int, batch_size: int, seed: int, lengths: Tensor | None = None) -> None:
        self.count, self.batch_size, self.seed = count, batch_size, seed
        self.steps = -(-count // batch_size)
        self._lengths = None if lengths is None else lengths.numpy()
        self._epoch = -1
        self._batches: list[Tensor] = []

    def rows(self, step: int) -> Tensor:
        """The numbers of the sequences of a step."""
        epoch, place = divmod(step, self.steps)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._shuffle(stream(self.seed, "train", epoch))
        return self._batches[place]

    def _shuffle(self, rng: np.random.Generator) -> list[Tensor]:
        order = rng.permutation(self.count)
        if self._lengths is not None:
            pool = POOL * self.batch_size
            for first in range(0, self.count, pool):
                part = order[first : first + pool]
                order[first : first + pool] = part[np.argsort(self._lengths[part], kind="stable")]
        batches = [
            torch.from_numpy(order[first : first + self.batch_size]) for first in range(0, self.count, self.batch_size)
        ]
        if self._lengths is not None:
            batches = [batches[k] for k in rng.permutation(len(batches))]
        return batches


def in_order(lengths: Tensor, batch_size: int) -> list[Tensor]:
    """All rows, shortest first, in batches: for evaluating."""
    return list(torch.argsort(lengths, stable=True).split(batch_size))
