"""Denoise: ten symbols scattered in noise, a marker; then say the ten symbols in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goru.lab.tasks.recall import RecallTask


@dataclass(frozen=True)
class Denoise(RecallTask):
    """The denoise task."""

    def places(self, rng: np.random.Generator, batch_size: int) -> np.ndarray:
        """Distinct places, every choice equally likely: where the N smallest of random numbers stand."""
        order = rng.random((batch_size, self.length - self.recall - 1), dtype=np.float32)
        return np.sort(order.argpartition(self.recall - 1)[:, : self.recall]).T
