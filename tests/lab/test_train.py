"""The loop: it learns, resumes to the bit, stops early, and tells of losses that are not numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from goru.lab.errors import LabError, RunInterruptedError
from goru.lab.tasks.task import MakeRecurrent, Problem, Task
from goru.lab.training import run_directory as runs
from goru.lab.training.config import RunConfig, from_json, override
from goru.lab.training.loop import train
from goru.lab.training.state import Training
from tests.lab.small import outcome, small, without_clock

RUNS = [
    small("copying", "goru"),
    small("copying", "eurnn-complex"),
    small("denoise", "gru"),
    small("parenthesis", "lstm", {"optimizer.rule": "adam"}),
    small("penn_treebank", "goru", {"optimizer.schedule": "linear"}),
    small("babi", "goru", {"task.dropout": 0.3}),
]


def in_pieces(config: RunConfig, folder: Path, piece: int) -> int:
    """Train, stopping after every `piece` steps; returns the number of attempts."""
    attempts = 0
    while True:
        attempts += 1
        asked = iter(range(1, 10_000))
        try:
            train(config, folder, stop=lambda asked=asked: next(asked) >= piece)
            return attempts
        except RunInterruptedError:
            continue


@pytest.mark.parametrize("config", RUNS, ids=lambda c: f"{c.experiment}-{c.model}")
def test_a_run_in_pieces_is_the_same_run(config: RunConfig, tmp_path: Path) -> None:
    train(config, tmp_path / "whole")
    assert in_pieces(config, tmp_path / "pieces", 7) == 6
    whole, pieces = (config.directory(tmp_path / name) for name in ("whole", "pieces"))
    assert outcome(whole) == outcome(pieces)
    # Everything in the checkpoint is the same to the bit, optimizer and random state included.
    assert same_tensors(whole, pieces, config)


def same_tensors(a: Path, b: Path, config: RunConfig) -> bool:
    (first, _), (second, _) = (runs.RunDirectory(path, config).load_checkpoint() or ({}, {}) for path in (a, b))
    return bool(first) and first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_checkpoints_do_not_change_the_run(tmp_path: Path) -> None:
    config = small("copying", "goru")
    train(config, tmp_path / "often", checkpoint_seconds=0)
    train(config, tmp_path / "never", checkpoint_seconds=1e9)
    often, never = (config.directory(tmp_path / name) for name in ("often", "never"))
    assert outcome(often) == outcome(never)
    assert same_tensors(often, never, config)


def test_the_same_configuration_is_the_same_run(tmp_path: Path) -> None:
    """Re-running from config.json gives the same bits; another seed does not."""
    config = small("parenthesis", "goru")
    train(config, tmp_path / "first")
    text = (config.directory(tmp_path / "first") / "config.json").read_text()
    again = from_json(text, "config.json")
    torch.manual_seed(99)  # whatever happened in the process before
    train(again, tmp_path / "second")
    first, second = (config.directory(tmp_path / name) for name in ("first", "second"))
    assert outcome(first) == outcome(second)
    assert same_tensors(first, second, config)
    other = override(config, {"seed": 1})
    train(other, tmp_path / "first")
    before, after = outcome(first)["result"], outcome(other.directory(tmp_path / "first"))["result"]
    assert before["parameters_sha256"] != after["parameters_sha256"]


def test_what_is_logged(tmp_path: Path) -> None:
    config = small("copying", "gru", steps=25)
    result = train(config, tmp_path)
    lines = runs.read_metrics(config.directory(tmp_path))
    assert [line["step"] for line in lines if "loss" in line] == [5, 10, 15, 20, 25]
    assert [line["step"] for line in lines if "test_loss" in line] == [0, 10, 20, 25]
    assert lines[0]["last_step"] == 25
    assert lines[0]["baseline"] == pytest.approx(result["baseline"])
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    assert all(line["steps_per_s"] > 0 for line in lines if "loss" in line)
    assert result["final"]["test_loss"] == lines[-1]["test_loss"]
    # The logged training loss is the mean since the line before.
    training = Training(config)
    losses = [training.learn(training.problem.batch(step)) for step in range(5)]
    assert next(line["loss"] for line in lines if "loss" in line) == sum(losses) / 5
    assert {"steps_per_s", "seconds"}.isdisjoint(without_clock(lines)[1])


@pytest.mark.parametrize("rule", ["rmsprop", "adam"])
def test_the_learning_rate_follows_its_schedule(rule: str) -> None:
    """The last of n steps is taken at one nth of the first rate, from the same gradient a step of that share."""
    config = small("copying", "gru", {"optimizer.rule": rule, "optimizer.schedule": "linear"}, steps=10)
    training = Training(config)
    rates = []
    for step in range(10):
        training.learn(training.problem.batch(step))
        rates += [group["lr"] for group in training.optimizer.param_groups]
    assert rates == pytest.approx([0.001 * share / 10 for share in range(10, 0, -1)])
    ends = []
    for schedule in ("constant", "linear"):
        last = Training(override(config, {"optimizer.schedule": schedule}))
        head = dict(last.network.named_parameters())["head.weight"]
        before = head.detach().clone()
        last.position.step = 9
        last.learn(last.problem.batch(0))
        ends.append(head.detach() - before)
    torch.testing.assert_close(ends[1], 0.1 * ends[0], rtol=1e-3, atol=1e-7)


def test_gates_are_kept_for_the_figure(tmp_path: Path) -> None:
    for model, has_gates in (("goru", True), ("gru", True), ("lstm", False)):
        config = small("parenthesis", model)
        train(config, tmp_path)
        figure = runs.read_json(config.directory(tmp_path) / "figure.json")
        assert (figure is not None) == has_gates
        if figure is not None:
            assert len(figure["gate_share"]) == len(figure["noise"]) == 12
            assert 0 <= figure["gate_share_noise"] <= 1
            assert 0 <= figure["gate_share_brackets"] <= 1


def test_a_small_goru_solves_a_small_copying_task(tmp_path: Path) -> None:
    changes = {"task.delay": 10, "task.recall": 2, "task.test_size": 64, "layer.hidden_size": 32, "batch": 32}
    # With this rate all of eight trials (four seeds, two backends) end well; 0.01 leaves the end to the last bits.
    config = small("copying", "goru", {**changes, "optimizer.lr": 0.005, "eval_every": 100}, steps=800)
    result = train(config, tmp_path)
    assert result["final"]["test_loss"] < 0.1 * result["baseline"]
    assert result["final"]["test_sequence_accuracy"] > 0.95


def test_a_loss_that_is_not_a_number(tmp_path: Path) -> None:
    config = small("copying", "gru", {"optimizer.lr": 3e38})
    with pytest.raises(LabError, match=r"the loss became (nan|inf) at step \d+") as error:
        train(config, tmp_path, checkpoint_seconds=0)
    assert "\n" not in str(error.value)
    directory = config.directory(tmp_path)
    assert not (directory / "result.json").exists()
    # What is kept can be loaded, and holds numbers; the run fails in the same way again.
    kept = runs.RunDirectory(directory, config).load_checkpoint()
    if kept is not None:
        assert all(t.isfinite().all() for name, t in kept[0].items() if name.startswith("parameter/"))
    with pytest.raises(LabError) as again:
        train(config, tmp_path, checkpoint_seconds=0)
    assert str(again.value).split(" of ")[0] == str(error.value).split(" of ")[0]


def test_parameters_that_are_not_numbers_are_never_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of a step can be finite and its gradient not: the checkpoint before stays."""
    config = small("copying", "gru")
    learn = Training.learn

    def poisoned(self: Training, batch: Any) -> float:
        loss = learn(self, batch)
        if self.position.step == 9:
            next(self.network.parameters()).data.fill_(float("nan"))
        return loss

    monkeypatch.setattr(Training, "learn", poisoned)
    with pytest.raises(LabError, match=r"the loss became nan at step 10 .*\(step 8 is saved\)"):
        train(config, tmp_path, checkpoint_seconds=0)


@pytest.mark.parametrize("changes", [{"steps": 0}, {"log_every": 0}, {"eval_every": 0}])
def test_counts_are_checked(changes: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(LabError, match="should be at least 1"):
        train(small("copying", "gru", changes), tmp_path)


# A task that no experiment has: finite data, a validation set, a state that is carried from step to step.


@dataclass(frozen=True)
class Walk(Task):
    """Predict a number from the carried state; the validation score is scripted."""

    scores: tuple[float, ...] = (5.0, 3.0, 4.0, 4.5, 2.0)

    def problem(self, seed: int, batch_size: int) -> Problem:
        return WalkProblem(self)


class WalkProblem(Problem):
    steps_per_epoch = 4
    tracked = ("valid",)
    final = ("valid", "test")

    def __init__(self, task: Walk) -> None:
        self.task = task

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3))

    def batch(self, step: int) -> int:
        return step

    def loss(self, network: nn.Module, batch: int, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        state = carry[0] if carry and batch % 4 else torch.ones(3)
        state = torch.tanh(network(state) + 0.1 * batch)
        return (state**2).mean(), [state]

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        self.evaluations = getattr(self, "evaluations", -1) + 1
        weight = float(next(network.parameters()).detach().sum())
        return {"loss": self.task.scores[min(self.evaluations, 4)], "weight": weight}

    def score(self, metrics: dict[str, float]) -> float:
        return metrics["valid_loss"]

    def baseline(self) -> float:
        return 1.0


def walk(**changes: Any) -> RunConfig:
    config = small("copying", "gru", {"epochs": 4, "eval_every": 0, "log_every": 2}, steps=0)
    return override(config, {"task": Walk(), **changes})


@pytest.fixture
def known_task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunConfig]:
    monkeypatch.setattr("goru.lab.training.run_directory.read_config", lambda path: None)
    return walk


def test_epochs_and_the_best_parameters(known_task: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = known_task()
    result = train(config, tmp_path)
    lines = [line for line in runs.read_metrics(config.directory(tmp_path)) if "valid_loss" in line]
    assert [line["step"] for line in lines] == [0, 4, 8, 12, 16]
    assert [line["valid_loss"] for line in lines] == [5.0, 3.0, 4.0, 4.5, 2.0]
    assert (result["step"], result["best_step"]) == (16, 16)
    assert set(result["final"]) == {"valid_loss", "valid_weight", "test_loss", "test_weight"}


def test_patience(known_task: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = known_task(patience=2)
    result = train(config, tmp_path)
    lines = [line for line in runs.read_metrics(config.directory(tmp_path)) if "valid_loss" in line]
    assert (result["step"], result["best_step"]) == (12, 4)
    # The final scores are those of the best parameters, not of the last.
    assert result["final"]["test_weight"] == lines[1]["valid_weight"] != lines[3]["valid_weight"]


def test_carried_state_and_dropout_survive_a_stop(
    known_task: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = known_task(task=Walk(scores=(1.0,) * 5))
    train(config, tmp_path / "whole")
    in_pieces(config, tmp_path / "pieces", 3)
    assert outcome(config.directory(tmp_path / "whole")) == outcome(config.directory(tmp_path / "pieces"))
