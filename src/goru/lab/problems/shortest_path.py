"""Shortest path: read a graph edge by edge and a query, then output the nodes of the path.

Legend: T steps, B batch, K outputs. The inputs are 76 tokens, the 76th the first `ans`; an `ans` follows for each node
of the path, or that node itself. The outputs (the path, then the end symbol) are read from the 76th step on; with
`padded`, more end symbols follow until all answers have the length of the longest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from goru.lab import data as datasets
from goru.lab.data.generated import graphs
from goru.lab.data.readers import paths
from goru.lab.data.readers.paths import ANSWER, END, INPUT_STEPS, NODES, TOKENS, Example
from goru.lab.networks import StepTagger
from goru.lab.problems.epochs import Epochs
from goru.lab.tasks.shortest_path import ShortestPath
from goru.lab.tasks.task import TEST_SEED, Batch, DataProblem, MakeRecurrent, stream

SIZES = {"train": 950, "valid": 50, "test": 1000}
_FILES = {"train": "train/4_tokens.txt", "valid": "train/4_tokens.txt.val", "test": "test/4_tokens.txt"}
_NO_OUTPUT = -100
"""A step after the end symbol; cross_entropy leaves it out."""


def load(task: ShortestPath) -> dict[str, list[Example]]:
    """The examples of each split."""
    if task.data == "generated":
        made = {
            split: graphs.write(size * task.graphs // SIZES["train"], stream(TEST_SEED + task.fold, split))
            for split, size in SIZES.items()
        }
        return {name: paths.parse(made[name], f"generated graphs, fold {task.fold}, {name}") for name in made}
    names = {split: f"fold_{task.fold}/noisy_rnn/{file}" for split, file in _FILES.items()}
    content = datasets.read(datasets.dataset("shortest_path"), list(names.values()))
    return {split: paths.parse(content[name], name) for split, name in names.items()}


def encode(examples: list[Example], *, feed_path: bool = False, padded_to: int = 0) -> Batch:
    """Examples as tensors, all at once: tokens in (T, B), classes out (K, B), nodes, the end, then nothing.

    With `feed_path`, the input after an output is that node, not `ans`. With `padded_to`, more ends follow, as if every
    path had so many nodes.
    """
    longest = padded_to or _longest(examples)
    inputs = np.full((INPUT_STEPS + longest, len(examples)), ANSWER)
    targets = np.full((longest + 1, len(examples)), END if padded_to else _NO_OUTPUT)
    for k, (tokens, path) in enumerate(examples):
        inputs[:INPUT_STEPS, k] = tokens
        targets[: len(path) + 1, k] = (*path, END)
        if feed_path:
            inputs[INPUT_STEPS : INPUT_STEPS + len(path), k] = path
    return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))


def _longest(examples: list[Example]) -> int:
    """The nodes of the longest path."""
    return max(len(example.path) for example in examples)


class ShortestPathProblem(DataProblem):
    def __init__(
        self,
        examples: dict[str, list[Example]],
        seed: int,
        batch_size: int,
        *,
        feed_path: bool = False,
        padded: bool = False,
    ) -> None:
        self._padded_to = max(map(_longest, examples.values())) if padded else 0
        self._sets = {
            split: encode(some, feed_path=feed_path, padded_to=self._padded_to) for split, some in examples.items()
        }
        self._examples = examples
        self._epochs = Epochs(len(examples["train"]), batch_size, seed)
        self.steps_per_epoch = self._epochs.steps

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        return StepTagger(make_recurrent, symbols=len(TOKENS), outputs=NODES + 1)

    def batch(self, step: int) -> Batch:
        rows = self._epochs.rows(step)
        return Batch(*(part.index_select(1, rows) for part in self._sets["train"]))

    def _logits(self, network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = network(batch.inputs)[INPUT_STEPS - 1 :]
        return logits, batch.targets.to(logits.device)

    def loss(self, network: nn.Module, batch: Batch, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Mean cross-entropy over the outputs that count."""
        logits, targets = self._logits(network, batch)
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=_NO_OUTPUT), carry

    def weight(self, batch: Batch) -> float:
        return int((batch.targets != _NO_OUTPUT).sum())

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        """Loss over the outputs; accuracy of single outputs (end symbols too) and of whole answers."""
        logits, targets = self._logits(network, self._sets[split])
        counts = targets != _NO_OUTPUT
        right = (logits.argmax(-1) == targets) & counts
        return {
            "loss": cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=_NO_OUTPUT).item(),
            "accuracy": (right.sum() / counts.sum()).item(),
            "sequence_accuracy": (right | ~counts).all(0).double().mean().item(),
        }

    def baseline(self) -> float:
        """Entropy of the classes at each place of the output, pooled over the test set."""
        targets = self._sets["test"].targets
        bits = 0.0
        for place in targets:
            share = torch.bincount(place[place != _NO_OUTPUT], minlength=NODES + 1).double()
            chance = share[share > 0] / share.sum()
            bits -= float((share[share > 0] * chance.log()).sum())
        return bits / int((targets != _NO_OUTPUT).sum())

    def about(self) -> dict[str, Any]:
        """The score on the test set of answers without learning.

        The answer is source, a middle node, target, end, end: the middle is any other node, or a neighbor
        of the source.
        """
        found: dict[str, Any] = {"examples": {split: len(some) for split, some in self._examples.items()}}
        for middle in ("any_node", "neighbour"):
            right = whole = outputs = 0.0
            for tokens, path in self._examples["test"]:
                statements = tokens[: INPUT_STEPS - 4].reshape(-1, 4)
                choices = NODES - 2 if middle == "any_node" else int((statements[:, 0] == path[0]).sum())
                padding = max(0, self._padded_to - len(path))
                outputs += len(path) + 1 + padding
                # Besides the middle: source, target and end of a path of three; else source and the last end.
                right += 1 / choices + (3 if len(path) == 3 else 2) + padding
                whole += 1 / choices if len(path) == 3 else 0
            accuracy, of_sequences = right / outputs, whole / len(self._examples["test"])
            found |= {f"{middle}_accuracy": accuracy, f"{middle}_sequence_accuracy": of_sequences}
        return found
