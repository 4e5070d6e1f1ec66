"""Questions about stories: read statements and a question, answer with one word (or one joined list).

Legend: T words, B batch. Words and answers are numbered per task, from its training and test files.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from goru.lab import data as datasets
from goru.lab.data.generated import small_world
from goru.lab.data.readers import stories
from goru.lab.data.readers.stories import Question
from goru.lab.networks import QuestionReader
from goru.lab.problems import classes
from goru.lab.problems.concatenated import ConcatenatedSequences
from goru.lab.problems.epochs import Epochs, in_order
from goru.lab.tasks.babi import Babi
from goru.lab.tasks.task import TEST_SEED, DataProblem, MakeRecurrent, stream

VALIDATION_SHARE = 10
"""One in ten of the training questions, the last ones of the file, is for validation, in whole stories."""
_EVALUATION_BATCH = 250


class Asked(NamedTuple):
    """Statements (T, B) and question (T', B) with their lengths (B), and the answers' classes (B)."""

    statements: Tensor
    statement_lengths: Tensor
    question: Tensor
    question_lengths: Tensor
    answers: Tensor


def load(task: Babi) -> tuple[list[Question], list[Question]]:
    """The questions of the training and of the test file."""
    if task.data == "generated":
        train, test = (
            small_world.write(task.number, task.questions, stream(TEST_SEED + task.number, split))
            for split in ("train", "test")
        )
        name = f"small world, task {task.number}"
        return stories.parse(train, name), stories.parse(test, name)
    babi = datasets.dataset("babi")
    names = sorted(part.name for part in babi.parts if part.name.startswith(f"en/qa{task.number}_"))
    test_name, train_name = names
    content = datasets.read(babi, names)
    return stories.parse(content[train_name], train_name), stories.parse(content[test_name], test_name)


class _Questions:
    """A set of questions as numbers."""

    def __init__(self, questions: list[Question], words: dict[str, int], answers: dict[str, int]) -> None:
        def numbers(text: tuple[str, ...]) -> np.ndarray:
            return np.array([words[word] for word in text], dtype=np.int64)

        self.statements = ConcatenatedSequences([numbers(one.statements) for one in questions])
        self.question = ConcatenatedSequences([numbers(one.question) for one in questions])
        self.answers = torch.tensor([answers[one.answer] for one in questions])

    def __len__(self) -> int:
        return len(self.answers)

    def batch(self, rows: Tensor) -> Asked:
        return Asked(*self.statements.padded(rows), *self.question.padded(rows), self.answers[rows])


class BabiProblem(DataProblem):
    def __init__(self, task: Babi, train: list[Question], test: list[Question], *, seed: int, batch_size: int) -> None:
        self.task = task
        everything = train + test
        self.words = _numbered(word for one in everything for word in (*one.statements, *one.question))
        self.answers = _numbered(one.answer for one in everything)
        cut = _first_story_after(train, len(train) - len(train) // VALIDATION_SHARE)
        self.sets = {
            split: _Questions(questions, self.words, self.answers)
            for split, questions in (("train", train[:cut]), ("valid", train[cut:]), ("test", test))
        }
        lengths = self.sets["train"].statements.lengths
        self._epochs = Epochs(len(self.sets["train"]), batch_size, seed, lengths)
        self.steps_per_epoch = self._epochs.steps

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        task, sizes = self.task, (len(self.words), self.task.embedding, len(self.answers))
        sequence = task.joined == "sequence"
        return QuestionReader(
            make_recurrent, *sizes, word_scale=task.word_scale, sequence=sequence, dropout=task.dropout
        )

    def batch(self, step: int) -> Asked:
        return self.sets["train"].batch(self._epochs.rows(step))

    def _logits(self, network: nn.Module, batch: Asked) -> tuple[Tensor, Tensor]:
        logits = network(*batch[:4])
        return logits, batch.answers.to(logits.device)

    def loss(self, network: nn.Module, batch: Asked, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Cross-entropy of the answer."""
        return cross_entropy(*self._logits(network, batch)), carry

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        questions = self.sets[split]
        loss = right = 0.0
        for rows in in_order(questions.statements.lengths, _EVALUATION_BATCH):
            logits, answers = self._logits(network, questions.batch(rows))
            loss += cross_entropy(logits, answers, reduction="sum").item()
            right += (logits.argmax(-1) == answers).sum().item()
        return {"loss": loss / len(questions), "accuracy": right / len(questions)}

    def _answer_shares(self, split: str) -> Tensor:
        return classes.shares(self.sets[split].answers, len(self.answers))

    def baseline(self) -> float:
        """Entropy of the training answers."""
        return classes.entropy(self._answer_shares("train"))

    def about(self) -> dict[str, Any]:
        return {
            "questions": {split: len(questions) for split, questions in self.sets.items()},
            "words": len(self.words),
            "answers": len(self.answers),
            "majority_accuracy": classes.majority(self._answer_shares("train"), self._answer_shares("test")),
        }


def _first_story_after(questions: list[Question], place: int) -> int:
    """The place, moved on to where a story begins, so that no story is cut; the place itself if none begins."""
    begins = (k for k in range(place, len(questions)) if questions[k].story != questions[k - 1].story)
    return next(begins, place)


def _numbered(names: Any) -> dict[str, int]:
    """Every name once, with its number in alphabetical order."""
    return {name: k for k, name in enumerate(sorted(Counter(names)))}
