"""Next characters of a text, the state carried through.

Legend: T steps, B lanes of the text read side by side.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from goru.lab import data as datasets
from goru.lab.data.generated import text
from goru.lab.data.readers import characters
from goru.lab.errors import LabError
from goru.lab.networks import LanguageModel
from goru.lab.tasks.penn_treebank import PennTreebank
from goru.lab.tasks.task import TEST_SEED, DataProblem, MakeRecurrent, stream

SPLITS = ("train", "valid", "test")
_CHUNK = 1000
"""Steps evaluated at a time; the state is carried from one segment to the next."""
_HELD_OUT = 10
"""Generated validation and test texts are this many times shorter than the training text."""


class Segment(NamedTuple):
    """Characters (T, B), those that follow them (T, B), and whether the text begins here."""

    inputs: Tensor
    targets: Tensor
    beginning: bool


def load(task: PennTreebank) -> dict[str, str]:
    """The text of each split."""
    if task.data == "generated":
        sizes = {split: task.characters // (1 if split == "train" else _HELD_OUT) for split in SPLITS}
        return {
            split: characters.parse(text.write(size, stream(TEST_SEED, split)), f"generated {split} text")
            for split, size in sizes.items()
        }
    names = {split: f"ptb.char.{split}.txt" for split in SPLITS}
    content = datasets.read(datasets.dataset("ptb"), list(names.values()))
    return {split: characters.parse(content[name], name) for split, name in names.items()}


class PennTreebankProblem(DataProblem):
    def __init__(self, texts: dict[str, str], length: int, lanes: int) -> None:
        self.alphabet = tuple(sorted(set(texts["train"])))
        self.texts = {split: _numbers(content, self.alphabet, split) for split, content in texts.items()}
        train = self.texts["train"]
        lane = (len(train) - 1) // lanes
        self.steps_per_epoch = lane // length
        if not self.steps_per_epoch:
            raise LabError(f"{len(train)} characters are too few for {lanes} lanes of {length} steps.")
        self._length = length
        # (steps, lanes); the lanes follow one another in the text. An incomplete segment is dropped.
        self._inputs = train[: lane * lanes].view(lanes, lane).t().contiguous()
        self._targets = train[1 : lane * lanes + 1].view(lanes, lane).t().contiguous()

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        return LanguageModel(make_recurrent, len(self.alphabet), len(self.alphabet))

    def batch(self, step: int) -> Segment:
        assert self.steps_per_epoch is not None
        place = step % self.steps_per_epoch
        steps = slice(place * self._length, (place + 1) * self._length)
        return Segment(self._inputs[steps].long(), self._targets[steps].long(), place == 0)

    def loss(self, network: nn.Module, batch: Segment, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Mean cross-entropy in nats; the state of the segment before goes in, this one's comes out."""
        logits, after = network(batch.inputs, [] if batch.beginning else carry)
        return cross_entropy(logits.flatten(0, 1), batch.targets.to(logits.device).flatten()), after

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        """The whole text in one pass from a zero state."""
        content = self.texts[split].long()
        state: list[Tensor] = []
        nats = 0.0
        for first in range(0, len(content) - 1, _CHUNK):
            piece = content[first : first + _CHUNK + 1].unsqueeze(1)
            logits, state = network(piece[:-1], state)
            targets = piece[1:].to(logits.device).flatten()
            nats += cross_entropy(logits.flatten(0, 1), targets, reduction="sum").item()
        loss = nats / (len(content) - 1)
        return {"loss": loss, "bpc": loss / math.log(2)}

    def baseline(self) -> float:
        """Cross-entropy on the test text of the training text's character frequencies."""
        counts = torch.bincount(self.texts["train"].long(), minlength=len(self.alphabet)).double()
        surprise = -(counts / counts.sum()).log()
        return surprise[self.texts["test"].long()].mean().item()

    def about(self) -> dict[str, Any]:
        return {
            "characters": {split: len(content) for split, content in self.texts.items()},
            "symbols": len(self.alphabet),
            "unigram_bpc": self.baseline() / math.log(2),
        }


def _numbers(content: str, alphabet: tuple[str, ...], split: str) -> Tensor:
    """The text as one number per character (uint8)."""
    points = np.frombuffer(content.encode("utf-32-le"), dtype=np.uint32)
    symbols = np.array([ord(symbol) for symbol in alphabet], dtype=np.uint32)
    places = np.minimum(np.searchsorted(symbols, points), len(symbols) - 1)
    strange = symbols[places] != points
    if strange.any():
        raise LabError(f"the {split} text has {chr(points[strange][0])!r}, which the training text lacks.")
    if len(alphabet) > 256:
        raise LabError(f"the training text has {len(alphabet)} different characters, at most 256 are expected.")
    return torch.from_numpy(places.astype(np.uint8))
