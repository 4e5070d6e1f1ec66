"""The generated tasks against examples made by hand, and their statistics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from goru.lab.problems.parenthesis import count
from goru.lab.problems.recall import CopyingProblem, DenoiseProblem, RecallProblem
from goru.lab.tasks.copying import Copying
from goru.lab.tasks.denoise import Denoise
from goru.lab.tasks.parenthesis import Parenthesis
from goru.lab.tasks.recall import RecallTask
from goru.lab.tasks.task import stream

RECALL_TASKS = [Copying(delay=50), Copying(delay=50, placement="random"), Denoise(delay=50)]


class Scripted:
    """Stands in for a random generator: gives out prepared answers, in order."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def integers(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.array(self._answers.pop(0))

    random = integers


def test_copying_by_hand() -> None:
    # T = 4, three symbols: 3 data, T - 1 blanks, the marker (9), 3 blanks.
    batch = Copying(delay=4, recall=3).problem(0, 1).generate(Scripted([[5, 1], [8, 1], [2, 7]]), 2)  # pyright: ignore[reportArgumentType]
    assert batch.inputs.T.tolist() == [[5, 8, 2, 0, 0, 0, 9, 0, 0, 0], [1, 1, 7, 0, 0, 0, 9, 0, 0, 0]]
    assert batch.targets.T.tolist() == [[0, 0, 0, 0, 0, 0, 0, 5, 8, 2], [0, 0, 0, 0, 0, 0, 0, 1, 1, 7]]


def test_copying_at_a_random_place_by_hand() -> None:
    task = Copying(delay=4, recall=3, placement="random")
    batch = task.problem(0, 1).generate(Scripted([[5, 1], [8, 1], [2, 7]], [3, 1]), 2)  # pyright: ignore[reportArgumentType]
    assert batch.inputs.T.tolist() == [[0, 0, 0, 5, 8, 2, 9, 0, 0, 0], [0, 1, 1, 7, 0, 0, 9, 0, 0, 0]]
    assert batch.targets.T.tolist() == [[0, 0, 0, 0, 0, 0, 0, 5, 8, 2], [0, 0, 0, 0, 0, 0, 0, 1, 1, 7]]


def test_denoise_by_hand() -> None:
    # The three smallest of the six numbers stand at 1, 3 and 4.
    order = [[0.9, 0.1, 0.8, 0.3, 0.2, 0.7]]
    batch = Denoise(delay=4, recall=3).problem(0, 1).generate(Scripted([[5], [8], [2]], order), 1)  # pyright: ignore[reportArgumentType]
    assert batch.inputs.T.tolist() == [[0, 5, 0, 8, 2, 0, 9, 0, 0, 0]]
    assert batch.targets.T.tolist() == [[0, 0, 0, 0, 0, 0, 0, 5, 8, 2]]


@pytest.mark.parametrize("task", RECALL_TASKS, ids=["start", "random", "denoise"])
def test_recall_tasks_keep_their_form(task: RecallTask) -> None:
    problem = task.problem(0, 1)
    assert isinstance(problem, RecallProblem)
    inputs, targets = problem.generate(stream(0, "train"), 500)
    assert inputs.shape == targets.shape == (70, 500)
    assert (inputs[59] == 9).all()
    assert (inputs == 9).sum() == 500
    assert (inputs[60:] == 0).all()
    assert (targets[:60] == 0).all()
    data = (inputs >= 1) & (inputs <= 8)
    assert (data.sum(0) == 10).all()
    # The answer is what was shown, in order.
    assert torch.equal(inputs.T[data.T].view(500, 10).T, targets[60:])
    # All eight symbols are equally likely: 5000 draws, 5 deviations of room.
    counts = torch.bincount(targets[60:].flatten(), minlength=9)[1:].double()
    assert (counts - 625).abs().max() < 5 * math.sqrt(5000 * 1 / 8 * 7 / 8)


def test_places() -> None:
    rng = stream(1, "train")
    start = CopyingProblem(Copying(delay=20, placement="random"), 0, 1).places(rng, 4000)
    assert (np.diff(start, axis=0) == 1).all()
    assert (start.min(), start.max()) == (0, 28)  # the last block ends just before the marker
    scattered = DenoiseProblem(Denoise(delay=20), 0, 1).places(rng, 4000)
    assert (np.diff(scattered, axis=0) > 0).all()  # distinct and rising
    # Each of the 29 places is taken with probability 10/29.
    taken = np.bincount(scattered.ravel(), minlength=29)
    assert len(taken) == 29
    assert abs(taken - 4000 * 10 / 29).max() < 5 * math.sqrt(4000 * 10 / 29 * 19 / 29)


@pytest.mark.parametrize("task", [*RECALL_TASKS, Parenthesis(length=50)], ids=["start", "random", "denoise", "paren"])
def test_a_batch_depends_on_seed_and_step_alone(task: Any) -> None:
    problem, other = task.problem(3, 8), task.problem(4, 8)
    later = [problem.batch(7), problem.batch(5), problem.batch(7)]
    assert torch.equal(later[0].inputs, later[2].inputs)
    assert torch.equal(task.problem(3, 8).batch(5).inputs, later[1].inputs)
    assert not torch.equal(later[0].inputs, later[1].inputs)
    assert not torch.equal(other.batch(7).inputs, later[0].inputs)
    # The held-out set is the same for every seed, and not a training batch.
    assert torch.equal(problem.test.inputs, other.test.inputs)
    assert not torch.equal(problem.test.inputs[:, :8], task.problem(20170610, 8).batch(0).inputs)


class Fixed(torch.nn.Module):
    """A network that always gives the same logits."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        return self.logits[:, : symbols.shape[1]]


@pytest.mark.parametrize("loss_on", ["all", "recall"])
def test_recall_scores(loss_on: Any) -> None:
    task = Copying(delay=5, recall=4, test_size=6, loss_on=loss_on)
    problem = task.problem(seed=0, batch_size=4)
    # The memoryless answer: blank for certain, then a uniform guess over the eight symbols.
    logits = torch.full((13, 4, 9), -60.0)
    logits[:9, :, 0] = 60.0
    logits[9:, :, 1:] = 0.0
    assert problem.evaluate(Fixed(logits), "test")["loss"] == pytest.approx(problem.baseline(), rel=1e-6)
    assert problem.baseline() == pytest.approx(math.log(8) * (4 / 13 if loss_on == "all" else 1))
    # The right answers but for one symbol of one sequence.
    answers = torch.nn.functional.one_hot(problem.test.targets, 9).float() * 60
    answers[-1, 5] = answers[-1, 5].roll(1, -1)
    network = torch.nn.Module()
    parts = iter([answers[:, :4], answers[:, 4:]])
    network.forward = lambda symbols: next(parts)
    scores = problem.evaluate(network, "test")
    assert scores["accuracy"] == pytest.approx(23 / 24)
    assert scores["sequence_accuracy"] == pytest.approx(5 / 6)


def test_the_papers_baseline() -> None:
    assert Copying().problem(0, 1).baseline() == pytest.approx(0.0945, abs=5e-5)
    assert Denoise().problem(0, 1).baseline() == pytest.approx(10 * math.log(8) / 220)


def test_parenthesis_by_hand() -> None:
    # Two kinds: a ( opens kind 0, b [ kind 1; A ) and B ] close them; n is noise. The cap is 2.
    task = Parenthesis(length=9, kinds=2, noise=1, cap=2)
    symbols = {"a": 0, "b": 1, "A": 2, "B": 3, "n": 4}
    text = ["aaanAAAbB", "AbbnbBaBB"]
    inputs = np.array([[symbols[c] for c in line] for line in text]).T
    counts = count(task, inputs)
    assert counts[:, 0].T.tolist() == [[1, 2, 2, 2, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1, 0]]
    assert counts[:, 1].T.tolist() == [[0, 0, 0, 0, 0, 0, 1, 1, 1], [0, 1, 2, 2, 2, 1, 1, 0, 0]]


def test_parenthesis_counts_step_by_step() -> None:
    task = Parenthesis(length=300, kinds=2, noise=1, cap=3)  # few kinds, low cap: walks pass it often
    inputs, targets = task.problem(0, 1).generate(stream(5, "train"), 40)
    passed = 0
    for b in range(40):
        now = [0, 0]
        for t in range(300):
            symbol = int(inputs[t, b])
            if symbol < 2:
                passed += now[symbol] == 3
                now[symbol] = min(3, now[symbol] + 1)
            elif symbol < 4:
                now[symbol - 2] = max(0, now[symbol - 2] - 1)
            assert targets[t, b].tolist() == now
    assert passed > 100


def test_parenthesis_statistics() -> None:
    problem = Parenthesis().problem(0, 128)
    assert problem.baseline() == pytest.approx(1.68, abs=0.02)
    inputs, targets = problem.batch(0)
    assert inputs.shape == (200, 128)
    assert targets.shape == (200, 128, 10)
    assert (targets.min(), targets.max()) == (0, 10)
    noise = (inputs >= 20).double().mean().item()
    assert noise == pytest.approx(1 / 3, abs=5 * math.sqrt(2 / 9 / inputs.numel()))


def test_parenthesis_scores() -> None:
    problem = Parenthesis(length=6, test_size=4).problem(0, 4)
    labels = problem.test.targets
    logits = torch.nn.functional.one_hot(labels, 11).float() * 80
    logits[0, 0, 0] = logits[0, 0, 0].roll(1)
    scores = problem.evaluate(Fixed(logits.flatten(2)), "test")
    assert scores["accuracy"] == pytest.approx(1 - 1 / labels.numel())
    assert scores["loss"] == pytest.approx(80 / labels.numel(), rel=1e-5)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Copying(delay=0)
    with pytest.raises(ValueError, match="at least 1"):
        Parenthesis(kinds=0)
