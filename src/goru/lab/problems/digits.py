"""Digits pixel by pixel: T = 784 pixels of a picture, one at a step, then its class.

Legend: T steps, B batch, N digits. Inputs (T, B, 1): pixels from 0 to 1; targets (B): classes.
The order of the pixels, if permuted, is the same for every digit and every run.
The 10,000 digits have no official split: the last tenth of each class is for testing, the tenth before for validation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from goru.lab import data as datasets
from goru.lab.data.generated import digits as drawn
from goru.lab.data.readers import digits as files
from goru.lab.networks import LastStep
from goru.lab.problems import classes
from goru.lab.problems.epochs import Epochs
from goru.lab.tasks.digits import Digits
from goru.lab.tasks.task import TEST_SEED, Batch, DataProblem, MakeRecurrent, stream

CLASSES = 10
VALIDATION = 5000
"""Of the 60,000 training digits, the last ones."""
_EVALUATION_BATCH = 250

Labeled = tuple[np.ndarray, np.ndarray]
"""Pictures (N, 784) and labels (N), bytes."""


def load(task: Digits) -> dict[str, Labeled]:
    """The digits of each split."""
    if task.data == "generated":
        sizes = {"train": task.digits, "valid": task.digits // 8, "test": task.digits // 8}
        return {split: drawn.write(size, stream(TEST_SEED, split)) for split, size in sizes.items()}
    known = datasets.dataset(task.data)
    content = datasets.read(known, [part.name for part in known.parts])
    with datasets.with_remedy(known):
        return _all(content) if task.data == "mnist" else _some(content)


def _all(content: dict[str, bytes]) -> dict[str, Labeled]:
    def of(split: str) -> Labeled:
        names = f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte"
        return files.parse_images(content[names[0]], names[0]), files.parse_labels(content[names[1]], names[1])

    (pictures, labels), test = of("train"), of("t10k")
    return {
        "train": (pictures[:-VALIDATION], labels[:-VALIDATION]),
        "valid": (pictures[-VALIDATION:], labels[-VALIDATION:]),
        "test": test,
    }


def _some(content: dict[str, bytes]) -> dict[str, Labeled]:
    names = [f"src/digits/{digit}.json" for digit in range(CLASSES)]
    digits = [files.parse_list(content[name], name) for name in names]

    def of(first: int, last: int) -> Labeled:
        """The digits from `first` tenths of each class to `last` tenths."""
        parts = [one[len(one) * first // 10 : len(one) * last // 10] for one in digits]
        return np.concatenate(parts), np.repeat(np.arange(CLASSES, dtype=np.uint8), [len(part) for part in parts])

    return {"train": of(0, 8), "valid": of(8, 9), "test": of(9, 10)}


class DigitsProblem(DataProblem):
    def __init__(self, task: Digits, splits: dict[str, Labeled], seed: int, batch_size: int) -> None:
        self.steps = task.side**2
        order = stream(TEST_SEED, "train").permutation(self.steps) if task.permuted else np.arange(self.steps)
        self._sets = {split: _encode(*digits, task.side, order) for split, digits in splits.items()}
        self._epochs = Epochs(len(self._sets["train"].targets), batch_size, seed)
        self.steps_per_epoch = self._epochs.steps

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        return LastStep(make_recurrent, 1, CLASSES)

    def _take(self, split: str, rows: Tensor) -> Batch:
        inputs, targets = self._sets[split]
        return Batch(inputs.index_select(1, rows).float().unsqueeze(-1) / 255, targets[rows])

    def batch(self, step: int) -> Batch:
        return self._take("train", self._epochs.rows(step))

    def loss(self, network: nn.Module, batch: Batch, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Cross-entropy of the class."""
        logits = network(batch.inputs)
        return cross_entropy(logits, batch.targets.to(logits.device)), carry

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        count = len(self._sets[split].targets)
        loss = right = 0.0
        for rows in torch.arange(count).split(_EVALUATION_BATCH):
            inputs, targets = self._take(split, rows)
            logits = network(inputs).cpu()
            loss += cross_entropy(logits, targets, reduction="sum").item()
            right += (logits.argmax(-1) == targets).sum().item()
        return {"loss": loss / count, "accuracy": right / count}

    def baseline(self) -> float:
        """Entropy of the training classes."""
        return classes.entropy(self._shares("train"))

    def _shares(self, split: str) -> Tensor:
        return classes.shares(self._sets[split].targets, CLASSES)

    def about(self) -> dict[str, Any]:
        return {
            "digits": {split: len(some.targets) for split, some in self._sets.items()},
            "majority_accuracy": classes.majority(self._shares("train"), self._shares("test")),
        }


def _encode(pictures: np.ndarray, labels: np.ndarray, side: int, order: np.ndarray) -> Batch:
    """Pixels (T, N) in their order, as bytes, and classes (N)."""
    step = files.SIDE // side
    squares = pictures.reshape(-1, side, step, side, step).mean((2, 4)).round().astype(np.uint8)
    pixels = np.ascontiguousarray(squares.reshape(len(pictures), -1)[:, order].T)
    return Batch(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64)))
